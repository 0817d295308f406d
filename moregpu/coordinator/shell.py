"""The real clock and the real threads of a coordinator; the simulation brings its own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from moregpu.platform import memory

T = TypeVar("T")

REST_S = 2.0
"""After so long without work, what the last of it left behind is given back: checks hold hundreds of megabytes."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    def wall(self) -> float:
        """UTC epoch seconds."""
        return time.time()


class SystemEntropy:
    """The system's randomness, fetched 4 KiB at a time. No byte is given out twice; any thread may ask.

    A job takes five pieces of 16 or 32 bytes; a call of the system costs more than all else that is done with one.
    """

    BYTES = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = memoryview(b"")

    def __call__(self, count: int) -> bytes:
        """So many bytes."""
        if count > self.BYTES // 8:
            return os.urandom(count)
        with self._lock:
            if len(self._left) < count:
                self._left = memoryview(os.urandom(self.BYTES))
            piece, self._left = bytes(self._left[:count]), self._left[count:]
        return piece


LEAST_THREADS = 4
"""Some of them wait for the disk, an upload's for 5 to 10 ms: on two cores two threads left nobody to check results."""


class ThreadOffload:
    """Runs blocking or heavy work on a small pool of threads."""

    def __init__(self, threads: int | None = None):
        threads = threads or max(LEAST_THREADS, min(8, os.cpu_count() or LEAST_THREADS))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="offload")
        self._running = 0
        self._tidying: asyncio.TimerHandle | None = None

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work` on a thread; begins at once."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        self._running += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._ended)
        return future

    def close(self) -> None:
        """Wait for what runs, and end the threads."""
        if self._tidying is not None:
            self._tidying.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _ended(self, future: asyncio.Future[T]) -> None:
        self._running -= 1
        if self._running == 0:
            self._tidying = future.get_loop().call_later(REST_S, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        self._pool.submit(memory.trim)
