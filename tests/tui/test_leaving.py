"""The console ends when it is told to, also when nobody reads its terminal any more."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals")]

WAIT_S = 60.0


@contextmanager
def demo(home: Path, *before: str) -> Generator[tuple[psutil.Popen, int]]:
    """The console before a simulated pool, and our end of its terminal. `before`: what starts it."""
    import fcntl
    import termios

    home.mkdir(mode=0o700)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 160, 0, 0))
    console = psutil.Popen(
        [*before, sys.executable, "-m", "moregpu_tui", "--demo"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file", "TERM": "xterm-256color"},
    )
    os.close(theirs)
    try:
        yield console, ours
    finally:
        with suppress(OSError):
            os.close(ours)
        with suppress(psutil.NoSuchProcess):
            console.kill()
        console.wait(WAIT_S)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s for {what}"


@pytest.mark.parametrize("told", ["SIGTERM", "SIGHUP"])
def test_a_console_whose_terminal_stands_still_ends_when_it_is_told_to(tmp_path: Path, told: str) -> None:
    import fcntl
    import termios

    with demo(tmp_path / "home") as (console, terminal):
        seen = bytearray()
        until(lambda: b"live" in seen or not seen.extend(os.read(terminal, 65_536)), "the first screen")

        def stands_still() -> bool:
            """Nobody reads: what draws waits for a full queue. Each new size makes it draw all anew."""
            before = sum(console.cpu_times()[:2])
            for columns in range(100, 140):
                fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 45, columns, 0, 0))
                console.send_signal(signal.SIGWINCH)
            with pytest.raises(psutil.TimeoutExpired):
                console.wait(1.0)
            return sum(console.cpu_times()[:2]) == before

        until(stands_still, "a full terminal")
        number = int(getattr(signal, told))
        console.send_signal(number)
        assert console.wait(WAIT_S) in (128 + number, -number)


@pytest.mark.parametrize("moment", ["as it starts", "as it draws"])
def test_a_console_whose_terminal_goes_without_a_signal_ends(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path / "home") as (console, terminal):
        seen = bytearray()
        while moment == "as it draws" and b"Overview" not in seen:
            seen += os.read(terminal, 65_536)
        seen += os.read(terminal, 65_536)
        os.close(terminal)  # it is no controlling terminal of anybody: the system sends no SIGHUP
        assert console.wait(WAIT_S) in (129, -1)


def test_so_does_one_that_was_started_by_what_ignores_the_signal(tmp_path: Path) -> None:
    with demo(tmp_path / "home", "sh", "-c", 'trap "" HUP; exec "$@"', "sh") as (console, terminal):
        os.read(terminal, 65_536)
        os.close(terminal)
        assert console.wait(WAIT_S) in (129, -1)


def test_leaving_waits_for_no_thread_and_loses_no_word() -> None:
    program = (
        "import threading; threading.Thread(target=threading.Event().wait).start(); print('last words');"
        "from moregpu_tui.leaving import leave; leave(3)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (3, "last words\n")
