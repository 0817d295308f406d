"""Ends the console when it is told to by a signal, also where its terminal takes nothing any more."""

from __future__ import annotations

import os
import signal
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from types import FrameType

LAST_S = 3.0
"""A terminal that is gone, or stands still, is given so long to take the last bytes; then the process ends without."""


def end_when_told(loop: AbstractEventLoop, end: Callable[[int], None]) -> None:
    """Call `end` with the number of a SIGTERM or SIGHUP, from the loop: Textual itself would restore no terminal.

    Plain handlers, not the loop's: the thread that draws can be stuck before a full queue to a terminal that no longer
    reads, and then the loop never comes to look. Does nothing where signals cannot be had (Windows, another thread).
    """

    def told(number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(end, number)
        last = threading.Timer(LAST_S, os._exit, (128 + number,))
        last.daemon = True
        last.start()

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            try:
                signal.signal(int(getattr(signal, name)), told)
            except (OSError, ValueError):
                return
