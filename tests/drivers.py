"""Graphics drivers of the machine: any adapter, and SwiftShader as a second one, which browsers bring along."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from moregpu_kernels.device import probe
from moregpu_kernels.errors import ProbeFailed

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


def any_adapter() -> str:
    """The key of the best adapter here, a software one too."""
    try:
        there = probe()
    except ProbeFailed as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    if not there:
        pytest.skip("missing: a graphics adapter")
    return there[0].key
