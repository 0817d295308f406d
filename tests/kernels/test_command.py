"""`python -m moregpu_kernels`: what people type, run as they run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from moregpu_kernels.__main__ import main
from moregpu_kernels.device import Device


def command(*arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    import os

    environment = {**os.environ, **({"MOREGPU_KERNEL_CACHE": str(cache)} if cache else {})}
    return subprocess.run(
        [sys.executable, "-m", "moregpu_kernels", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )


def test_info_lists_the_adapters_and_says_what_is_software(device: Device):
    done = command("info")
    assert done.returncode == 0
    assert device.info.key in done.stdout
    assert ("software" in done.stdout) == device.info.is_software
    assert json.loads(command("info", "--json").stdout)["adapters"][0]["key"]


def test_an_unknown_device_is_one_line_and_status_2(device: Device):
    done = command("check", "--device", "vulkan:voodoo")
    assert done.returncode == 2
    assert "there are: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("size", ["0", "-3", "x", "1e3", "99999999999999999999"])
def test_a_size_that_is_none_is_refused_before_anything_is_measured(size: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["tune", f"--size={size}"])
    assert ended.value.code == 2
    assert f"{size!r} is no size: give a whole number from 1 to 16,384" in capsys.readouterr().err


@pytest.mark.slow
def test_check_tune_and_bench(device: Device, tmp_path: Path):
    checked = json.loads(command("check", "--json").stdout)
    assert checked["wrong"] == [] and len(checked["worst"]) > 100
    tuned = json.loads(command("tune", "--json", "--size", "64", cache=tmp_path).stdout)
    assert tuned["choices"]
    measured = json.loads(command("bench", "--json", "--size", "64", cache=tmp_path).stdout)
    chosen = {row["name"]: row["variant"] for row in measured["results"]}
    assert all(chosen[name] == variant for name, variant in tuned["choices"].items())


def test_importing_the_library_loads_no_graphics_library():
    code = "import sys, moregpu_kernels.executor, moregpu_kernels.tune; sys.exit('wgpu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
