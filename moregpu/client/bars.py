"""A line about a job that takes long, rewritten as it goes on; only where somebody looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moregpu.client.telling import is_watched, tell
from moregpu.wire.text import clean

if TYPE_CHECKING:
    from moregpu.client.job import JobHandle, Progress

WIDTH = 30


def show(handle: JobHandle, *, always: bool) -> None:
    """Show how far a job is until it ends. Without `always` only on a terminal."""
    from moregpu.jobs import JOB_ENDED

    if handle.view.state in JOB_ENDED or not (always or is_watched()):
        return
    start, clear = ("\r\x1b[K", "\r\x1b[K") if is_watched() else ("", "")
    end = "" if start else "\n"
    try:
        for progress in handle.watch():
            tell(f"{start}{clean(describe(progress), 200)}{end}")
    finally:
        tell(clear)


def describe(progress: Progress) -> str:
    """One line about how far a job is."""
    if progress.waiting_reason and not progress.done:
        return f"waiting: {progress.waiting_reason}"
    filled = round(progress.share * WIDTH)
    waits = f" waiting: {progress.waiting_reason}" if progress.waiting_reason else ""
    return f"{progress.state:9} {'█' * filled}{'·' * (WIDTH - filled)} {progress.done}/{progress.total}{waits}"
