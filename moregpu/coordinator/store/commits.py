"""A store over a `Book` and a `Disk`: every call is one step of the book, and what is told waits for the disk.

Steps change memory at once and gather in the open transaction. One transaction at a time is on its way to the disk;
what gathers meanwhile is the next (group commit). When a commit fails, everything since the last good one is undone in
memory, newest first, and every caller that waited for any of it gets the error: nothing was told, so nothing needs
taking back. What left without waiting (assignments) is fenced, since its tokens are gone; `watch_undone` names it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.disk import Disk
from moregpu.coordinator.store.protocol import JobRow, TaskRow, Undone
from moregpu.coordinator.store.table import Transaction, undo
from moregpu.errors import MoreGPUError, Unavailable
from moregpu.jobs import TaskState
from moregpu.wire.api import Event
from moregpu.wire.messages import LeaseRef

T = TypeVar("T")

COMMIT_WITHIN_S = 0.010
"""How long rows that nobody waits for may gather before they are committed anyway."""

KEEP_ENDED = 256
"""Ended jobs that stay in memory, for whoever waited for them; older ones are read back from the disk."""

log = logging.getLogger("moregpu.store")


class CommittedBook(ABC):
    """A book, its disk, and the commits between them; how a commit happens is the subclass's."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        entropy: Callable[[int], bytes],
        *,
        keep_ended: int = KEEP_ENDED,
    ):
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._keep_ended = keep_ended
        self._book = Book("", entropy)
        self._opened = False
        self._inflight: tuple[Transaction, asyncio.Future[None] | None] | None = None
        self._waiting: asyncio.Future[None] | None = None  # for the open transaction
        self._committed_seq = 0
        self._subscribers: list[Callable[[list[Event]], None]] = []
        self._undone_watchers: list[Callable[[Undone], None]] = []

    # ---- how commits happen

    @abstractmethod
    def _commit_soon(self) -> None:
        """Somebody waits for the open transaction: commit it as soon as the one on its way is done."""

    @abstractmethod
    def _commit_later(self) -> None:
        """Nobody waits: commit within `COMMIT_WITHIN_S`."""

    @abstractmethod
    def _disk_is_free(self) -> None:
        """A transaction landed, and nobody was told yet: the next may begin, so that no disk waits for them."""

    @abstractmethod
    async def _read(self, read: Callable[[], T]) -> T:
        """Run a read of the disk where it does not hold up the loop."""

    def _take(self) -> Transaction:
        """Close the open transaction and put it on its way."""
        transaction = self._book.journal.take()
        self._inflight, self._waiting = (transaction, self._waiting), None
        return transaction

    def _landed(self, error: MoreGPUError | None) -> None:
        """The transaction on its way is on the disk, or was refused."""
        if self._inflight is None:
            return
        transaction, future = self._inflight
        self._inflight = None
        if error is not None:
            self._undo(transaction, future, error)
            return
        self._book.forget_written(transaction.changes)
        self._disk_is_free()
        if future is not None and not future.done():
            future.set_result(None)
        if transaction.events:
            self._committed_seq = transaction.events[-1].seq or self._committed_seq
            for subscriber in list(self._subscribers):
                _call(subscriber, transaction.events)
        # After them: whoever is told of an end may look at what ended.
        self._book.evict(self._keep_ended, () if self._inflight is None else self._inflight[0].changes)

    def _undo(self, failed: Transaction, future: asyncio.Future[None] | None, error: MoreGPUError) -> None:
        journal = self._book.journal
        later = journal.take()
        undo(later.changes)
        undo(failed.changes)
        journal.seq = self._committed_seq
        futures = [each for each in (future, self._waiting) if each is not None and not each.done()]
        self._waiting = None
        log.warning("a commit failed and was undone", extra={"error": error.code, "detail": error.detail})
        undone = _undone([failed, later])
        for watcher in list(self._undone_watchers):
            _call(watcher, undone)
        for each in futures:
            each.set_exception(error)

    async def settle(self) -> None:
        """Wait until everything that this store has shown so far is durable.

        Raises what the disk raised (`OutOfSpace`, `Unavailable`) when some of it was undone instead.
        """
        self._must_be_open()
        if self._book.journal:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
                self._waiting.add_done_callback(_retrieve)
            future = self._waiting
            self._commit_soon()
        elif self._inflight is not None:
            transaction, on_its_way = self._inflight
            if on_its_way is None:
                on_its_way = asyncio.get_running_loop().create_future()
                on_its_way.add_done_callback(_retrieve)
                self._inflight = transaction, on_its_way
            future = on_its_way
        else:
            return
        await asyncio.shield(future)

    def _step(self, step: Callable[[Book], T]) -> T:
        """One step of the book: all or nothing."""
        self._must_be_open()
        return self._book.journal.step(step, self._book)

    def _told_later(self) -> None:
        if self._book.journal:
            self._commit_later()

    def _must_be_open(self) -> None:
        if not self._opened:
            raise Unavailable("the store is not open")

    def subscribe(self, callback: Callable[[list[Event]], None]) -> Callable[[], None]:
        """Call `callback` on the loop with the durable events of each commit, in order; returns the way to stop."""
        self._subscribers.append(callback)
        return lambda: _forget(self._subscribers, callback)

    def watch_undone(self, callback: Callable[[Undone], None]) -> Callable[[], None]:
        """Call `callback` on the loop when a commit failed, with what vanished; returns the way to stop."""
        self._undone_watchers.append(callback)
        return lambda: _forget(self._undone_watchers, callback)

    # ---- life

    async def open(self, now: float) -> None:
        """Load what is alive; every lease that was out gets the full time."""
        loaded = await self._read(lambda: self._disk.load("c-" + self._entropy(8).hex()))
        book = self._book = Book(loaded.writer, self._entropy)
        tables = book.tables()
        for name, rows in loaded.rows.items():
            for key, row in rows.items():
                tables[name].restore(key, row)
        book.registry.forget_loose()
        book.receipts.update(loaded.receipts)
        book.head, book.next_batch = loaded.head, loaded.next_batch
        book.journal.seq = self._committed_seq = loaded.seq
        book.extend_all(now)
        self._opened = True

    async def close(self) -> None:
        """Commit what is there and let go."""
        if self._opened:
            try:
                await self.settle()
            finally:
                self._opened = False
                await self._read(self._disk.close)


def _undone(transactions: Sequence[Transaction]) -> Undone:
    jobs: set[str] = set()
    leases: list[tuple[str, LeaseRef]] = []
    for transaction in transactions:
        for change in transaction.changes:
            if isinstance(change.new, JobRow) and change.old is None:
                jobs.add(change.new.id)
            elif isinstance(change.new, TaskRow) and change.new.state is TaskState.LEASED:
                task = change.new
                if change.old is None or change.old.token != task.token:
                    ref = LeaseRef(task=task.id, attempt=len(task.attempts), token=task.token)
                    leases.append((task.worker or "", ref))
    return Undone(jobs=frozenset(jobs), leases=tuple(leases))


def _call(callback: Callable[[T], None], value: T) -> None:
    """One listener's fault must not stop the commits that others wait for."""
    try:
        callback(value)
    except Exception:
        log.exception("a listener of the store failed")


def _retrieve(future: asyncio.Future[None]) -> None:
    """Everybody who waited may be gone: an error that nobody reads is no surprise."""
    if not future.cancelled():
        future.exception()


def _forget(callbacks: list[Callable[[T], None]], callback: Callable[[T], None]) -> None:
    if callback in callbacks:
        callbacks.remove(callback)
