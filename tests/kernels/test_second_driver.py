"""The same kernels on a second driver: SwiftShader, where a browser or a package brings it along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACES = ("/usr/lib/chromium", "/usr/lib64/chromium-browser", "/opt/google/chrome", "/usr/lib/swiftshader")


def swiftshader() -> Path:
    """Its driver file: named by MOREGPU_SWIFTSHADER, or beside a browser."""
    named = os.environ.get("MOREGPU_SWIFTSHADER")
    for path in [Path(named)] if named else [Path(place) / "vk_swiftshader_icd.json" for place in PLACES]:
        if path.is_file():
            return path
    pytest.skip("missing: SwiftShader (vk_swiftshader_icd.json, or MOREGPU_SWIFTSHADER)")


@pytest.mark.slow
def test_every_operation_is_right_on_swiftshader_too():
    done = subprocess.run(
        [sys.executable, "-m", "moregpu_kernels", "check", "--json", "--device", "vulkan:swiftshader"],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "VK_DRIVER_FILES": str(swiftshader())},
    )
    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "SwiftShader" in answer["device"] and "(software)" in answer["device"]
    assert answer["wrong"] == [] and len(answer["worst"]) > 100
    assert {"matmul.float32 hard data", "softmax.float16 hard data", "gemv_q4_0.float32"} <= set(answer["worst"])
