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
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.disk import Disk, JobFilter
from moregpu.coordinator.store.protocol import (
    Accepted,
    BlobRow,
    Checkpoint,
    Choose,
    Completed,
    Failed,
    FleetWorker,
    InviteRow,
    JobRow,
    Lease,
    LedgerBatch,
    LedgerRow,
    SignedBatch,
    TaskRow,
    TokenRow,
    Undone,
    WorkerRow,
)
from moregpu.coordinator.store.table import Transaction, undo
from moregpu.errors import MoreGPUError, Unavailable
from moregpu.jobs import JobState, TaskState
from moregpu.wire.api import Event, Problem, ResultManifest
from moregpu.wire.messages import LeaseRef

T = TypeVar("T")

COMMIT_WITHIN_S = 0.010
"""How long rows that nobody waits for may gather before they are committed anyway."""

KEEP_ENDED = 256
"""Ended jobs that stay in memory, for whoever waited for them; older ones are read back from the disk."""

log = logging.getLogger("moregpu.store")


class BookStore(ABC):
    """All of `store.protocol.Store`; how a commit happens is the subclass's."""

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
        self._book.evict(self._keep_ended)
        if future is not None and not future.done():
            future.set_result(None)
        if transaction.events:
            self._committed_seq = transaction.events[-1].seq or self._committed_seq
            for subscriber in list(self._subscribers):
                _call(subscriber, transaction.events)

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
        with self._book.journal.step():
            return step(self._book)

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

    # ---- jobs and tasks

    async def add_job(self, job: JobRow, *, told: bool = True) -> JobRow:
        self._must_be_open()
        if job.idempotency_key and (job.submitter, job.idempotency_key) not in self._book.index.by_key:
            earlier = self._disk.job_id_by_key(job.submitter, job.idempotency_key)
            if earlier is not None and (row := await self.job(earlier)) is not None:
                return row
        await self._admit(*job.spec.after)
        row = self._step(lambda book: book.add_job(job))
        if told:
            await self.settle()
        else:
            self._told_later()
        return row

    async def job(self, id: str) -> JobRow | None:
        self._must_be_open()
        return self._book.jobs.get(id) or await self._read(lambda: self._disk.job(id))

    async def jobs(
        self,
        *,
        submitter: str | None = None,
        states: Iterable[JobState] | None = None,
        kind: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[JobRow]:
        self._must_be_open()
        wanted = JobFilter(submitter, None if states is None else frozenset(states), kind, before)
        in_memory = set(self._book.jobs.rows)
        asked = limit + len(self._book.ended)
        from_disk = await self._read(lambda: self._disk.ended_jobs(wanted, asked))
        # A job that was let go while the disk was read is in neither of the two sets for sure; so look again.
        rows = {row.id: row for row in from_disk if row.id not in in_memory or row.id not in self._book.jobs.rows}
        rows.update({row.id: row for row in self._book.jobs.rows.values() if matches(row, wanted)})
        return [rows[id] for id in sorted(rows, reverse=True)[:limit]]

    async def find_jobs(self, prefix: str) -> list[str]:
        self._must_be_open()
        found = set(await self._read(lambda: self._disk.find_jobs(prefix, 10)))
        found.update(id for id in self._book.jobs.rows if id.startswith(prefix))
        return sorted(found)[:10]

    async def tasks(self, job: str) -> list[TaskRow]:
        self._must_be_open()
        if job in self._book.jobs.rows:
            return self._book.index.tasks(job)
        return await self._read(lambda: self._disk.tasks(job))

    async def task(self, id: str) -> TaskRow | None:
        self._must_be_open()
        if (row := self._book.tasks.get(id)) is not None:
            return row
        job = await self._read(lambda: self._disk.job_id_of_task(id))
        return None if job is None else next((task for task in await self.tasks(job) if task.id == id), None)

    def has_ready_work(self) -> bool:
        return self._book.index.has_ready_work()

    def blocked_by(self, job: JobRow) -> list[str]:
        return self._book.index.blocked_by(job)

    async def lease(self, worker: FleetWorker, slots: int, choose: Choose, now: float, wall: float) -> list[Lease]:
        leases = self._step(lambda book: book.lease(worker, slots, choose, now, wall))
        self._told_later()
        return leases

    async def taken(self, worker: str, refs: Sequence[LeaseRef], now: float) -> list[LeaseRef]:
        return await self.renew(worker, refs, now)

    async def renew(self, worker: str, refs: Sequence[LeaseRef], now: float) -> list[LeaseRef]:
        lost = self._step(lambda book: book.renew(worker, refs, now))
        self._told_later()
        return lost

    async def complete(
        self, worker: str, ended: Sequence[Accepted | Failed], batch: SignedBatch | None, wall: float
    ) -> list[Completed]:
        self._must_be_open()
        unknown = [entry.ref.task for entry in ended if entry.ref.task not in self._book.tasks.rows]
        if unknown:  # of a job that was let go, perhaps: a resend of what was accepted long ago
            disk = self._disk
            jobs = await self._read(lambda: {job for task in unknown if (job := disk.job_id_of_task(task)) is not None})
            await self._admit(*sorted(jobs))
        answers = self._step(lambda book: book.complete(worker, ended, batch, wall))
        await self.settle()
        return answers

    async def hand_back(self, worker: str, refs: Sequence[LeaseRef], wall: float) -> list[LeaseRef]:
        back = self._step(lambda book: book.hand_back(worker, refs, wall))
        self._told_later()
        return back

    async def release(self, worker: str, keep: Sequence[LeaseRef], now: float, wall: float) -> list[LeaseRef]:
        back = self._step(lambda book: book.release(worker, keep, wall))
        self._told_later()
        return back

    async def reap(self, now: float, wall: float) -> list[LeaseRef]:
        back = self._step(lambda book: book.reap(now, wall))
        self._told_later()
        return back

    async def extend_all(self, now: float) -> None:
        self._step(lambda book: book.extend_all(now))

    async def cancel(self, job: str, wall: float) -> list[tuple[str, LeaseRef]]:
        await self._admit(job)
        out = self._step(lambda book: book.cancel(job, wall))
        await self.settle()
        return out

    async def finish(
        self, job: str, *, result: ResultManifest | None, error: Problem | None, combining_s: float, wall: float
    ) -> JobRow:
        await self._admit(job)
        row = self._step(lambda book: book.finish(job, result, error, combining_s, wall))
        await self.settle()
        return row

    async def ready_jobs(self) -> list[str]:
        self._must_be_open()
        return sorted(self._book.index.complete)

    async def purge(self, job: str) -> JobRow:
        await self._admit(job)
        row = self._step(lambda book: book.purge(job))
        await self.settle()
        return row

    async def _admit(self, *ids: str) -> None:
        """Take ended jobs back into memory, all at once, so that the step that follows sees them."""
        self._must_be_open()
        gone = [id for id in ids if id not in self._book.jobs.rows]
        if gone:
            disk = self._disk
            found = await self._read(lambda: [(disk.job(id), disk.tasks(id), disk.receipts(id)) for id in gone])
            for job, tasks, receipts in found:
                if job is not None:
                    self._book.admit(job, tasks, receipts)

    # ---- ledger

    async def statements(self, job: str) -> list[tuple[LedgerRow, LedgerBatch]]:
        await self.settle()
        disk = self._disk

        def read() -> list[tuple[LedgerRow, LedgerBatch]]:
            rows = disk.statements(job)
            batches: dict[tuple[str, int], LedgerBatch] = {}
            for writer in {row.writer for row in rows}:
                numbers = sorted({row.batch for row in rows if row.writer == writer})
                batches.update({(writer, number): each for number, each in disk.batches(writer, numbers).items()})
            return [(row, batches[row.writer, row.batch]) for row in rows]

        return await self._read(read)

    async def ledger(self, writer: str | None = None, after: int = 0, limit: int = 1000) -> list[LedgerRow]:
        await self.settle()
        return await self._read(lambda: self._disk.ledger(writer or self._book.writer, after, limit))

    async def batches(self, writer: str, numbers: Sequence[int]) -> dict[int, LedgerBatch]:
        await self.settle()
        return await self._read(lambda: self._disk.batches(writer, numbers))

    async def ledger_head(self) -> tuple[str, int, bytes]:
        await self.settle()
        return self._book.writer, *self._book.head

    async def ledger_writers(self) -> list[str]:
        await self.settle()
        return await self._read(self._disk.writers)

    async def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._step(lambda book: book.checkpoints.put((checkpoint.writer, checkpoint.row), checkpoint))
        await self.settle()

    async def checkpoints(self, writer: str) -> list[Checkpoint]:
        await self.settle()
        return await self._read(lambda: self._disk.checkpoints(writer))

    # ---- events

    async def events_since(self, seq: int, limit: int = 1000) -> list[Event] | None:
        self._must_be_open()
        if seq > self._committed_seq:
            return None  # numbered by another history
        return await self._read(lambda: self._disk.events_since(seq, limit))

    def last_seq(self) -> int:
        return self._committed_seq

    async def note(self, event: Event) -> Event:
        noted = self._step(lambda book: book.journal.event(event.type, event.id, event.at, event.data))
        await self.settle()
        return noted

    # ---- workers, invites, tokens, blobs

    async def enrol(self, worker: WorkerRow, invite: str, secret_hash: bytes, wall: float) -> WorkerRow | None:
        row = self._step(lambda book: book.registry.enrol(worker, invite, secret_hash, wall))
        await self.settle()
        return row

    async def worker(self, id: str) -> WorkerRow | None:
        self._must_be_open()
        return self._book.registry.workers.get(id)

    async def workers(self) -> list[WorkerRow]:
        self._must_be_open()
        return sorted(self._book.registry.workers.rows.values(), key=lambda row: (row.enrolled_at, row.id))

    async def save_worker(self, worker: WorkerRow, event: str = "worker.changed") -> WorkerRow:
        row = self._step(lambda book: book.registry.save_worker(worker, event, self._clock.wall()))
        await self.settle()
        return row

    async def add_invite(self, invite: InviteRow) -> None:
        self._step(lambda book: book.registry.add_invite(invite))
        await self.settle()

    async def invites(self) -> list[InviteRow]:
        self._must_be_open()
        return self._book.registry.live_invites(self._clock.wall())

    async def drop_invite(self, id: str) -> bool:
        dropped = self._step(lambda book: book.registry.drop_invite(id, self._clock.wall()))
        await self.settle()
        return dropped

    async def save_token(self, token: TokenRow) -> None:
        self._step(lambda book: book.registry.tokens.put(token.id, token))
        await self.settle()

    async def token(self, id: str) -> TokenRow | None:
        self._must_be_open()
        return self._book.registry.tokens.get(id)

    async def tokens(self) -> list[TokenRow]:
        self._must_be_open()
        return sorted(self._book.registry.tokens.rows.values(), key=lambda row: (row.created_at, row.id))

    async def add_blob(self, blob: BlobRow) -> None:
        self._step(lambda book: book.registry.add_blob(blob))
        await self.settle()

    async def blob(self, digest: str) -> BlobRow | None:
        self._must_be_open()
        return self._book.registry.blobs.get(digest)

    async def blob_readable(self, digest: str, submitter: str) -> bool:
        self._must_be_open()
        return self._book.registry.readable(digest, submitter)

    async def unreferenced_blobs(self, older_than: float) -> list[str]:
        await self.settle()
        return self._book.registry.unreferenced(older_than)

    async def drop_blobs(self, digests: Sequence[str]) -> None:
        def drop(book: Book) -> None:
            for digest in digests:
                book.registry.drop_blob(digest)

        self._step(drop)
        await self.settle()

    # ---- settings

    async def setting(self, key: str) -> str | None:
        self._must_be_open()
        return self._book.registry.settings.get(key)

    async def set_setting(self, key: str, value: str) -> None:
        self._step(lambda book: book.registry.settings.put(key, value))
        await self.settle()


def matches(row: JobRow, wanted: JobFilter) -> bool:
    """Whether a job is among those asked for."""
    return (
        (wanted.submitter is None or row.submitter == wanted.submitter)
        and (wanted.states is None or row.state in wanted.states)
        and (wanted.kind is None or row.kind == wanted.kind)
        and (wanted.before is None or row.id < wanted.before)
    )


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
