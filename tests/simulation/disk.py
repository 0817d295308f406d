"""Disks of a simulated coordinator: the real memory store with commits that take time, and blobs that survive.

A commit is taken, is on its way for as long as the disk needs, and lands, as in the SQLite store: a crash meanwhile
may find it on the disk or not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.commits import COMMIT_WITHIN_S
from moregpu.coordinator.store.memory import MemoryDisk, MemoryStore
from moregpu.coordinator.store.table import Transaction
from moregpu.errors import Conflict, MoreGPUError, NotFound, OutOfSpace, TooLarge

if TYPE_CHECKING:
    from tests.simulation.invariants import Watch


class Drive:
    """What outlives a coordinator: rows and blobs on one disk that can be full or slow."""

    def __init__(self) -> None:
        self.rows = MemoryDisk()
        self.blobs: dict[str, bytes] = {}
        self.written_at: dict[str, float] = {}
        self.slow_until = 0.0

    @property
    def full(self) -> bool:
        return self.rows.full

    @full.setter
    def full(self, full: bool) -> None:
        self.rows.full = full


class SimulatedStore(MemoryStore):
    """`MemoryStore` on a drive, with the SQLite store's way of committing; every step and commit is watched."""

    def __init__(
        self,
        drive: Drive,
        watch: Watch,
        clock: Any,
        entropy: Callable[[int], bytes],
        random_: random.Random,
        keep_ended: int,
    ) -> None:
        super().__init__(clock, entropy, disk=drive.rows, auto_commit=False, keep_ended=keep_ended)
        self.drive = drive
        self.watch = watch
        self.random = random_
        self._scheduled = False

    # -- commits, as in `store.sqlite`

    def _commit_soon(self) -> None:
        if self._inflight is None and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _commit_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COMMIT_WITHIN_S, self._time_is_up)

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
            transaction = self._take()
            asyncio.get_running_loop().call_later(self.commit_s(), self._write, transaction)

    def commit_s(self) -> float:
        """Seconds that the disk takes."""
        if self._clock.monotonic() < self.drive.slow_until:
            return self.random.uniform(0.2, 1.5)
        return self.random.choice((0.0001, 0.001, 0.004, 0.03))

    def _write(self, transaction: Transaction) -> None:
        error: MoreGPUError | None = None
        try:
            self.disk.apply(transaction, self._clock.wall())
        except OutOfSpace as full:
            error = full
        else:
            self.watch.committed(transaction)
        self._landed(error)

    def _landed(self, error: MoreGPUError | None) -> None:
        super()._landed(error)
        if self._book.journal:
            if self._waiting is not None:
                self._commit_soon()
            else:
                self._commit_later()

    def die(self) -> None:
        """The process is killed: what was on its way may have reached the disk."""
        inflight = self._inflight
        if inflight is not None and not self.drive.full and self.random.random() < 0.5:
            self.disk.apply(inflight[0], self._clock.wall())
            self.watch.committed(inflight[0])
        self.crash()

    async def _read(self, read: Callable[[], Any]) -> Any:
        await asyncio.sleep(self.random.choice((0.0, 0.0005, 0.003)))
        found = read()
        await asyncio.sleep(0.0)
        return found

    # -- every step is watched

    def _step(self, step: Callable[[Book], Any]) -> Any:
        before = len(self._book.journal.changes)
        result = super()._step(step)
        self.watch.stepped(self._book, self._book.journal.changes[before:])
        return result

    async def lease(self, worker: Any, slots: int, choose: Any, now: float, wall: float) -> Any:
        leases = await super().lease(worker, slots, choose, now, wall)
        self.watch.leased(self._book, worker, slots, leases)
        return leases

    async def complete(self, worker: str, ended: Any, batch: Any, wall: float) -> Any:
        answers = await super().complete(worker, ended, batch, wall)
        self.watch.completed(worker, answers)
        return answers


class MemoryBlobs:
    """The coordinator's blob files, in memory: the interface of `BlobFiles`. Unfinished uploads die with a process."""

    def __init__(self, drive: Drive, watch: Watch, wall: Callable[[], float]) -> None:
        self._drive = drive
        self._watch = watch
        self._wall = wall

    def begin(self, principal: str, digest: str | None, total_bytes: int) -> _Upload:
        if self._drive.full:
            raise OutOfSpace("the simulated disk is full")
        return _Upload(self._drive, self._wall, total_bytes)

    def size(self, digest: str) -> int | None:
        sealed = self._drive.blobs.get(digest)
        return None if sealed is None else len(sealed)

    def open_reader(self, digest: str) -> _Reader:
        sealed = self._drive.blobs.get(digest)
        if sealed is None:
            raise NotFound("That blob is not here")
        return _Reader(sealed)

    def delete(self, digest: str) -> bool:
        self._watch.blob_deleted(digest)
        self._drive.written_at.pop(digest, None)
        return self._drive.blobs.pop(digest, None) is not None

    def used_bytes(self) -> int:
        return sum(map(len, self._drive.blobs.values()))

    def free_bytes(self) -> int:
        """Room for all that a history makes: when the disk is full nothing can be written, whoever holds how much."""
        return 1 << 40

    def older_than(self, at: float) -> list[str]:
        return [digest for digest, written_at in self._drive.written_at.items() if written_at < at]

    def clean_partials(self, older_than: float) -> int:
        return 0

    def drop_unfinished(self, principal: str, wanted_bytes: int, but: str = "") -> int:
        return 0


class _Upload:
    def __init__(self, drive: Drive, wall: Callable[[], float], total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._drive = drive
        self._wall = wall
        self._sealed = bytearray()
        self._over = False

    @property
    def offset(self) -> int:
        return len(self._sealed)

    def write(self, data: memoryview | bytes) -> None:
        if self._over:
            raise Conflict("The upload has ended")
        if len(self._sealed) + len(data) > self.total_bytes:
            raise TooLarge("More bytes come than were announced")
        if self._drive.full:
            raise OutOfSpace("the simulated disk is full")
        self._sealed += data

    def finish(self) -> str:
        if self._over or self.offset != self.total_bytes:
            raise Conflict("bytes are missing, or the upload has ended")
        if self._drive.full:
            raise OutOfSpace("the simulated disk is full")
        self._over = True
        digest = blake3(self._sealed).hexdigest()
        self._drive.blobs[digest] = bytes(self._sealed)
        self._drive.written_at[digest] = self._wall()
        return digest

    def abort(self) -> None:
        self._over = True


class _Reader:
    def __init__(self, sealed: bytes) -> None:
        self._sealed = sealed
        self.size_bytes = len(sealed)

    def read_at(self, start: int, stop: int) -> bytes:
        return self._sealed[start:stop]

    def close(self) -> None:
        pass

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        pass
