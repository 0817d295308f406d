"""The store that keeps: a book in memory, SQLite beneath it, one writer thread that commits in groups.

While one transaction is on its way to the disk, the next gathers; so the slower the disk, the larger the groups, and
one `fdatasync` serves everybody who waits.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.commits import COMMIT_WITHIN_S, KEEP_ENDED
from moregpu.coordinator.store.disk import KEEP_EVENTS, KEEP_EVENTS_S
from moregpu.coordinator.store.durable import BookStore
from moregpu.coordinator.store.sqlite_disk import SqliteDisk
from moregpu.coordinator.store.table import Transaction
from moregpu.errors import MoreGPUError, Unavailable

T = TypeVar("T")


class SqliteStore(BookStore):
    """`path`: the database's file; `wrap_key`: 32 bytes that seal what carries keys."""

    def __init__(
        self,
        path: Path,
        wrap_key: bytes,
        clock: Clock,
        entropy: Callable[[int], bytes] = os.urandom,
        *,
        keep_ended: int = KEEP_ENDED,
        keep_events: int = KEEP_EVENTS,
        keep_events_s: float = KEEP_EVENTS_S,
    ):
        self._sqlite = SqliteDisk(path, wrap_key, entropy, keep_events=keep_events, keep_events_s=keep_events_s)
        super().__init__(self._sqlite, clock, entropy, keep_ended=keep_ended)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="moregpu-store-reader")
        self._queue: queue.SimpleQueue[Transaction | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self.commits = 0
        """Transactions that reached the disk."""
        self.commit_s = 0.0
        """Seconds that a commit takes lately, `fdatasync` included (moving average)."""

    async def open(self, now: float) -> None:
        """Load what is alive, and start the writer thread."""
        self._loop = asyncio.get_running_loop()
        await super().open(now)
        self._writer = threading.Thread(
            target=self._write, args=(self._loop,), name="moregpu-store-writer", daemon=True
        )
        self._writer.start()

    async def close(self) -> None:
        """Commit what is queued, end the threads, let go of the file."""
        try:
            await super().close()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._writer is not None:
                self._queue.put(None)
                self._writer = None
            self._reader.shutdown(wait=True)

    def _commit_soon(self) -> None:
        if self._inflight is None and not self._scheduled and self._loop is not None:
            # Not at once: whoever else is ready in this round of the loop rides along.
            self._scheduled = True
            self._loop.call_soon(self._start)

    def _commit_later(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(COMMIT_WITHIN_S, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._book.journal:
            self._commit_soon()

    def _start(self) -> None:
        self._scheduled = False
        if self._inflight is None and self._book.journal:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._queue.put(self._take())

    def _disk_is_free(self) -> None:
        if self._waiting is not None and self._book.journal:
            self._start()

    def _landed(self, error: MoreGPUError | None) -> None:
        super()._landed(error)
        if self._book.journal:
            if self._waiting is not None:
                self._commit_soon()
            else:
                self._commit_later()

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """The writer thread."""
        while (transaction := self._queue.get()) is not None:
            error: MoreGPUError | None = None
            begun = time.perf_counter()
            try:
                self._sqlite.apply(transaction, self._clock.wall())
            except MoreGPUError as refused:
                error = refused
            except Exception as broken:  # noqa: BLE001 — whoever waits must hear of it, or waits for ever
                error = Unavailable(f"the coordinator's database cannot be written: {broken!r}")
            else:
                self.commits += 1
                took_s = time.perf_counter() - begun
                self.commit_s = took_s if self.commits == 1 else 0.9 * self.commit_s + 0.1 * took_s
            try:
                loop.call_soon_threadsafe(self._landed, error)
            except RuntimeError:  # the loop was closed: nobody waits any more
                return

    async def _read(self, read: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, read)
