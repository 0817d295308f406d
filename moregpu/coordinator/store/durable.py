"""All that a store promises, over a book: each call is one step, and what is told to the outside is settled first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.commits import CommittedBook
from moregpu.coordinator.store.disk import JobFilter
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
    Voted,
    WorkerRow,
)
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.wire.api import Event, JobChange, Problem, ResultManifest
from moregpu.wire.messages import LeaseRef


class BookStore(CommittedBook):
    """All of `store.protocol.Store`; where the disk is, and when commits happen, is the subclass's."""

    # ---- jobs and tasks

    async def add_job(self, job: JobRow, *, told: bool = True) -> JobRow:
        self._must_be_open()
        await self._admit(*job.spec.after)
        # Nothing is waited for between this look and the step: the same submit, sent twice, might end meanwhile.
        if job.idempotency_key and (job.submitter, job.idempotency_key) not in self._book.index.by_key:
            earlier = self._disk.job_id_by_key(job.submitter, job.idempotency_key)
            if earlier is not None and (row := await self.job(earlier)) is not None:
                return row
        row = self._step(lambda book: book.add_job(job))
        if told:
            await self.settle()
        else:
            self._told_later()
        return row

    async def job(self, id: str) -> JobRow | None:
        self._must_be_open()
        return self._book.jobs.get(id) or await self._read(lambda: self._disk.job(id))

    def job_in_memory(self, id: str) -> JobRow | None:
        return self._book.jobs.get(id)

    async def job_under_key(self, submitter: str, key: str) -> JobRow | None:
        self._must_be_open()
        id = self._book.index.by_key.get((submitter, key)) if key else None
        if id is None and key:
            id = self._disk.job_id_by_key(submitter, key)
        return None if id is None else await self.job(id)

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
        rows: dict[str, JobRow] = {}
        if wanted.states is None or wanted.states & JOB_ENDED:  # those that have not ended are all in memory
            rows = {row.id: row for row in await self._read(lambda: self._disk.ended_jobs(wanted, limit))}
        # Looked at after the disk: what was let go of meanwhile is in what it said, and what both have counts as here.
        alive = self._book.jobs.rows
        newest_first = sorted(alive, reverse=True)  # as good as sorted already: a walk at the speed of memory
        rows.update({id: alive[id] for id in islice((id for id in newest_first if matches(alive[id], wanted)), limit)})
        return [rows[id] for id in sorted(rows, reverse=True)[:limit]]

    async def find_jobs(self, prefix: str, submitter: str | None = None) -> list[str]:
        self._must_be_open()
        found = set(await self._read(lambda: self._disk.find_jobs(prefix, submitter, 10)))
        rows = self._book.jobs.rows
        found.update(id for id in rows if id.startswith(prefix) and submitter in (None, rows[id].submitter))
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

    def ready_count(self) -> int:
        return self._book.index.ready_count()

    def work_version(self) -> int:
        return self._book.index.version

    def tails(self) -> list[str]:
        return sorted(self._book.index.tails)

    def jobs_alive(self, submitter: str) -> int:
        return self._book.index.alive.get(submitter, 0)

    def calls_alive(self, submitter: str) -> int:
        return self._book.index.calls.get(submitter, 0)

    def needs_ready(self, submitter: str) -> int:
        return self._book.index.needs_ready(submitter)

    def bytes_of(self, submitter: str) -> int:
        return self._book.registry.bytes_of(submitter)

    def loose_blobs(self, worker: str) -> list[BlobRow]:
        return self._book.registry.loose_blobs(worker)

    async def lease_again(self, worker: FleetWorker, task: str, device: str, now: float, wall: float) -> Lease | None:
        lease = self._step(lambda book: book.lease_again(worker, task, device, now, wall))
        self._told_later()
        return lease

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
        self, worker: str, ended: Sequence[Accepted | Voted | Failed], batch: SignedBatch | None, wall: float
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

    async def hand_back(
        self, worker: str, refs: Sequence[LeaseRef], wall: float, reason: str = "handed back", *, untouched: bool
    ) -> list[LeaseRef]:
        back = self._step(lambda book: book.hand_back(worker, refs, wall, reason, untouched=untouched))
        self._told_later()
        return back

    async def release(
        self, worker: str, keep: Sequence[LeaseRef], now: float, wall: float, reason: str = "the connection ended"
    ) -> list[LeaseRef]:
        back = self._step(lambda book: book.release(worker, keep, wall, reason))
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

    async def change_job(self, job: str, change: JobChange, wall: float) -> JobRow:
        await self._admit(job)
        row = self._step(lambda book: book.change_job(job, change, wall))
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

    async def save_worker(self, worker: WorkerRow, event: str = "worker.changed", *, durable: bool = True) -> WorkerRow:
        row = self._step(lambda book: book.registry.save_worker(worker, event, self._clock.wall()))
        if durable:
            await self.settle()
        else:
            self._told_later()
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
