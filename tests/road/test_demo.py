"""`moregpu demo` shows the whole road, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest


def environment(folder: Path) -> dict[str, str]:
    """Where the demo's temporary home lies is ours to look at afterwards."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MOREGPU_")} | {
        "TMPDIR": str(folder),
        "HOME": str(folder),
    }


def left_behind(folder: Path) -> list[str]:
    """Processes that work below the folder, and files in it."""
    processes = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        environ = process.info["environ"] or {}
        if environ.get("MOREGPU_HOME", "").startswith(str(folder)):
            processes.append(" ".join(process.info["cmdline"] or []))
    return processes + [str(path) for path in folder.glob("moregpu-demo-*")]


@pytest.fixture
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="demo-test-"))


@pytest.mark.slow
def test_the_demo_prints_one_object(folder: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "moregpu", "demo", "--json"],
        env=environment(folder), capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout + shown.stderr
    told = json.loads(shown.stdout)
    assert told["checked"] is True
    assert told["signed"] is True
    assert told["ledger_ok"] is True
    assert told["workers"] == 2
    assert sum(told["evidence"].values()) == sum(told["signers"].values())
    assert set(told["evidence"]) == {"recomputed"}
    assert 0.0 < told["worst_error"] <= 1.0
    assert len(told["digest"]) == 64
    assert told["seconds"] > 0
    assert left_behind(folder) == []


@pytest.mark.slow
def test_the_demo_tells_a_person_the_same(folder: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "moregpu", "demo"],
        env=environment(folder), capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout + shown.stderr
    for word in ("digest", "checked", "recomputed", "anna", "ben", "ledger", "Nothing is left running"):
        assert word in shown.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_stops_all_it_started(folder: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "moregpu", "demo"],
        env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if "joins" in line:
            break
    until = time.monotonic() + 30
    while len(left_behind(folder)) < 3:  # the coordinator, a worker, the folder
        assert time.monotonic() < until
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert left_behind(folder) == []
