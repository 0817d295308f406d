"""The real clock and the real threads of a coordinator; the simulation brings its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    def wall(self) -> float:
        """UTC epoch seconds."""
        return time.time()


class ThreadOffload:
    """Runs blocking or heavy work on a small pool of threads."""

    def __init__(self, threads: int | None = None):
        self._pool = ThreadPoolExecutor(threads or max(2, min(8, os.cpu_count() or 2)), thread_name_prefix="offload")

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work` on a thread; begins at once."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for what runs, and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)
