"""A line about a job that takes long, rewritten as it goes on; only where somebody looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from moregpu.wire.text import clean

if TYPE_CHECKING:
    from moregpu.client.job import JobHandle, Progress

WIDTH = 30


def show(handle: JobHandle, *, always: bool) -> None:
    """Show how far a job is until it ends. Without `always` only on a terminal."""
    from moregpu.jobs import JOB_ENDED

    if handle.view.state in JOB_ENDED or not (always or sys.stderr.isatty()):
        return
    start, clear = ("\r\x1b[K", "\r\x1b[K") if sys.stderr.isatty() else ("", "")
    end = "" if start else "\n"
    try:
        for progress in handle.watch():
            sys.stderr.write(f"{start}{clean(describe(progress), 200)}{end}")
            sys.stderr.flush()
    finally:
        sys.stderr.write(clear)
        sys.stderr.flush()


def describe(progress: Progress) -> str:
    """One line about how far a job is."""
    if progress.waiting_reason and not progress.done:
        return f"waiting: {progress.waiting_reason}"
    filled = round(progress.share * WIDTH)
    waits = f" waiting: {progress.waiting_reason}" if progress.waiting_reason else ""
    return f"{progress.state:9} {'█' * filled}{'·' * (WIDTH - filled)} {progress.done}/{progress.total}{waits}"
