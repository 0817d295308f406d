"""Ends the console: at once when it is left, and when a signal says so, also where its terminal takes nothing more."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

LAST_S = 3.0
"""A terminal that is gone, or stands still, is given so long to take the last bytes; then the process ends without."""


def end_when_told(loop: AbstractEventLoop, end: Callable[[int], None]) -> Callable[[], None]:
    """Call `end` with the number of a SIGTERM or SIGHUP, from the loop: Textual itself would restore no terminal.

    Plain handlers, not the loop's: the thread that draws can be stuck before a full queue to a terminal that no longer
    reads, and then the loop never comes to look. Does nothing where signals cannot be had (Windows, another thread).
    Gives what puts the handlers back that were there before.
    """
    before: dict[int, Any] = {}

    def told(number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(end, number)
        last = threading.Timer(LAST_S, os._exit, (128 + number,))
        last.daemon = True
        last.start()

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            number = int(getattr(signal, name))
            with contextlib.suppress(OSError, ValueError):
                before[number] = signal.signal(number, told)

    def restore() -> None:
        for number, handler in before.items():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, handler)

    return restore


def end_with_the_terminal() -> None:
    """From here on, a terminal that goes without a word is told as SIGHUP: it may be nobody's controlling terminal.

    Else what draws would wait for ever, and what reads keys spin. Sleeps in the system meanwhile; where that cannot
    wait for a terminal (Windows; a system that says it is no file), nothing is told.
    """
    if hasattr(signal, "SIGHUP") and hasattr(select, "poll") and sys.__stdin__ is not None and sys.__stdin__.isatty():
        threading.Thread(target=_wait_for_its_end, args=(sys.__stdin__.fileno(),), daemon=True).start()


def _wait_for_its_end(terminal: int) -> None:
    poll = select.poll()
    poll.register(terminal, 0)  # a hang-up is told whether or not it is asked for
    with contextlib.suppress(OSError):
        if any(happened & select.POLLHUP for _, happened in poll.poll()):
            if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # whoever started it ignores them, and it starts yet
                leave(128 + signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)


def leave(status: int) -> NoReturn:
    """End the process: the terminal is given back, what was recorded is written, connections are let go.

    Taking the interpreter apart would leave an empty screen for up to a second more, and a call that hangs on a thread,
    to a coordinator that does not answer, for half a minute.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)
