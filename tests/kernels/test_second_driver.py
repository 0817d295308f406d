"""The same kernels on a second driver: SwiftShader, where a browser or a package brings it along."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.drivers import swiftshader


@pytest.mark.slow
@pytest.mark.timeout(500)  # half a minute of CPU, on cores that others want
def test_every_operation_is_right_on_swiftshader_too():
    done = subprocess.run(
        [sys.executable, "-m", "moregpu_kernels", "check", "--json", "--device", "vulkan:swiftshader"],
        capture_output=True,
        text=True,
        timeout=480,
        env={**os.environ, "VK_DRIVER_FILES": str(swiftshader())},
    )
    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "SwiftShader" in answer["device"] and "(software)" in answer["device"]
    assert answer["wrong"] == [] and len(answer["worst"]) > 100
    assert {"matmul.float32 hard data", "softmax.float16 hard data", "gemv_q4_0.float32"} <= set(answer["worst"])
