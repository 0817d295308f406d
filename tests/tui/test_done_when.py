"""The promise of the console: a person who has never seen it runs a pool with the keys that are on the screen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from moregpu.cli.loopback import free_port
from tests.tui.terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="tmux")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A home of its own; whatever was started in it is stopped."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    port = free_port()
    yield {"MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file", "MOREGPU_YIELD": "off", "MOREGPU_PORT": str(port)}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "serve" in words and str(port) in words:
            process.terminate()
            process.wait(20)


def test_start_a_pool_invite_submit_watch_pause_and_revoke_by_the_keys_on_the_screen(
    place: dict[str, str], tmp_path: Path
) -> None:
    with Terminal(columns=100, rows=30, environment=place) as console:
        console.wait("Start a pool on this machine")
        console.press("Enter")
        console.wait("● live", 60)
        console.wait("i creates an invite")
        console.press("i")
        console.wait("F10 make it")
        console.press("F10")
        shown = console.wait("MGPU1-")
        line = "".join(re.findall(r"[0-9A-Z-]{20,}", shown[shown.index("MGPU1-") :]))
        console.press("Escape")
        console.wait_gone("MGPU1-")
        worker = join(line, place, tmp_path)
        try:
            console.press("2")
            console.wait("anna", 60)
            console.wait("○ ready", 60)
            console.press("c")
            console.wait("F10 submit")
            console.wait("on 1 worker")
            console.press("F10")
            console.wait("✓ combined", 60)
            console.wait("✓ done")
            console.press("v")
            console.wait("verified here")
            console.press("2")
            console.wait("p pause")
            console.press("p")
            console.wait("◇ paused")
            console.press("X")
            shown = console.wait("cannot be taken back")
            asked = re.search(r"Type (w-\w+) and Enter", shown)
            assert asked is not None, shown
            console.type(asked.group(1))
            console.press("Enter")
            console.wait("– revoked")
        finally:
            stop(worker)
        console.press("q")
        console.press("q")
        console.wait("ended with 0")


def join(line: str, place: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """A worker on this machine, by the line that was on the screen."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MOREGPU_")}
    worker = subprocess.Popen(
        [sys.executable, "-m", "moregpu", "join", "--name", "anna", "--cores", "1", "--no-yield",
         "--state", str(folder / "worker")],
        stdin=subprocess.PIPE,
        stdout=(folder / "worker.log").open("wb"),
        stderr=subprocess.STDOUT,
        env=environment | place,
        start_new_session=True,
    )  # fmt: skip
    assert worker.stdin is not None
    worker.stdin.write(line.encode() + b"\n")
    worker.stdin.close()
    return worker


def stop(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    until = time.monotonic() + 15
    while worker.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
