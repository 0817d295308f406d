"""A second software driver for the kernels: SwiftShader, which browsers bring along, and some distributions package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PLACES = ("/usr/lib/chromium", "/usr/lib64/chromium-browser", "/opt/google/chrome", "/usr/lib/swiftshader")

_NAMED = os.environ.get("MOREGPU_SWIFTSHADER")
"""Read while tests are collected: none of them obeys the environment of whoever runs it."""


def swiftshader() -> Path:
    """Its driver file: named by MOREGPU_SWIFTSHADER, or beside a browser."""
    for path in [Path(_NAMED)] if _NAMED else [Path(place) / "vk_swiftshader_icd.json" for place in PLACES]:
        if path.is_file():
            return path
    pytest.skip(
        "missing: SwiftShader, or MOREGPU_SWIFTSHADER with its vk_swiftshader_icd.json; mend: apt-get install chromium"
    )
