"""What results come to: accepted, set beside others until two owners agree, or failed; each in the ledger, signed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from moregpu.coordinator import fairness, ledger, transitions, trust
from moregpu.coordinator.store.endings import Endings
from moregpu.coordinator.store.protocol import (
    Accepted,
    Completed,
    Failed,
    JobRow,
    LedgerBatch,
    SignedBatch,
    TaskRow,
    UsageRow,
    Vote,
    Voted,
    WorkerRow,
)
from moregpu.coordinator.store.references import blobs_in
from moregpu.coordinator.transitions import Standing
from moregpu.jobs import JobState, TaskState
from moregpu.wire.api import ResultManifest
from moregpu.wire.messages import LeaseRef


class _Ahead:
    """A job that accepted results brought on, before its row and the event say so: once for all that come in a row."""

    def __init__(self) -> None:
        self.job: JobRow | None = None
        self.numbers: list[int] = []


class Outcomes(Endings):
    """The steps that a worker's results take."""

    def complete(
        self, worker: str, ended: Sequence[Accepted | Voted | Failed], batch: SignedBatch | None, wall: float
    ) -> list[Completed]:
        """Accept, set beside others, or fail attempts, fenced by task, attempt, token and worker."""
        row = self.registry.workers.get(worker)
        if row is not None and row.revoked:
            return [Completed(ref=entry.ref, verdict="fenced", detail="the worker was revoked") for entry in ended]
        number: int | None = None
        judged: list[Accepted | Voted | Failed] = []
        used: dict[str, float] = {}
        answers: list[Completed] = []
        ahead = _Ahead()
        for entry in ended:
            task = self.tasks.get(entry.ref.task)
            claim = transitions.standing(task, entry.ref, worker)
            if task is None or claim not in (Standing.HELD, Standing.BACK):
                answers.append(self._answered(task, entry.ref, claim))
                continue
            if not isinstance(entry, Failed) and number is None:
                number = self._keep_batch(worker, batch)
            judged.append(entry)
            submitter = self.jobs.rows[task.job].submitter
            used[submitter] = used.get(submitter, 0.0) + max(0.0, entry.seconds)
            if ahead.job is not None and (ahead.job.id != task.job or not isinstance(entry, Accepted)):
                self._catch_up(ahead, worker, wall)
            match entry:
                case Accepted():
                    answers.append(self._accept(task, entry, worker, number or 0, wall, ahead))
                case Voted():
                    answers.append(self._vote(task, entry, worker, number or 0, wall))
                case Failed():
                    answers.append(self._fail(task, entry, wall))
        self._catch_up(ahead, worker, wall)
        self._use(used, wall)
        row = self.registry.workers.get(worker)
        if row is not None and judged:
            self._count(row, judged, wall)
        return answers

    def _answered(self, task: TaskRow | None, ref: LeaseRef, claim: Standing) -> Completed:
        """What a claim that holds nothing is told: the earlier answer again, or that it is over."""
        if task is None or claim is Standing.FENCED:
            return Completed(ref=ref, verdict="fenced", detail="this lease is over")
        if claim is Standing.REJECTED:
            detail = task.attempts[ref.attempt - 1].error
            return Completed(ref=ref, verdict="rejected", detail=detail, job=task.job)
        receipt = next((vote.receipt for vote in task.votes if vote.attempt == ref.attempt), None)
        return Completed(ref=ref, verdict="accepted", ledger=receipt or self.receipts.get(task.id), job=task.job)

    def _count(self, row: WorkerRow, judged: Sequence[Accepted | Voted | Failed], wall: float) -> None:
        """Keep what a worker did, and what it says about it."""
        done = [entry for entry in judged if not isinstance(entry, Failed)]
        trusted = trust.after(
            row.trust,
            right=sum(isinstance(entry, Accepted) and entry.checked_by_us for entry in judged),
            wrong=sum(isinstance(entry, Failed) and entry.proven_wrong for entry in judged),
            wall=wall,
        )
        self.registry.workers.put(
            row.id,
            replace(
                row,
                tasks_done=row.tasks_done + len(done),
                tasks_failed=row.tasks_failed + len(judged) - len(done),
                busy_s=row.busy_s + sum(entry.seconds for entry in done),
                seen_at=max(row.seen_at, wall),
                trust=trusted,
            ),
        )
        if trusted.wrong > row.trust.wrong:
            event = "worker.quarantined" if trusted.quarantined else "worker.probation"
            self.journal.event(event, row.id, wall, {"name": row.name, "owner": row.owner, "wrong": trusted.wrong})

    def _use(self, seconds_by_submitter: dict[str, float], wall: float) -> None:
        for who, seconds in seconds_by_submitter.items():
            row = self.registry.usage.get(who)
            before = fairness.faded(row.seconds, wall - row.at) if row is not None else 0.0
            self.registry.usage.put(who, UsageRow(submitter=who, seconds=before + seconds, at=wall))

    def _keep_batch(self, worker: str, batch: SignedBatch | None) -> int:
        if batch is None or batch.worker != worker:
            raise ValueError("a result is accepted only under its worker's signature")
        number = self.next_batch
        kept = LedgerBatch(
            writer=self.writer, number=number, worker=worker, digests=batch.digests, signature=batch.signature
        )
        self.batches.put((self.writer, number), kept)
        return number

    def _accept(self, task: TaskRow, entry: Accepted, worker: str, batch: int, wall: float, ahead: _Ahead) -> Completed:
        """`ahead` is of the task's job, or empty; it is so again for the next of it."""
        others = transitions.leases_beside(task, entry.ref.token)
        suspects = [vote.worker for vote in task.votes if vote.worker not in entry.evidence.workers]
        task = self.tasks.put(task.id, transitions.accepted(task, entry, wall))
        job = transitions.advanced(ahead.job or self.jobs.rows[task.job], task, entry.checking_s, entry.failed_calls)
        ready = transitions.is_ready(job)
        finished = ready and entry.result is not None
        receipt = self._write(task, entry, worker, batch)
        ahead.job = job
        ahead.numbers.append(task.number)
        if finished:  # its row is put once, with its end
            self._task_event("task.done", job, ahead.numbers, worker, wall)
            ahead.job, ahead.numbers = None, []
        elif suspects:
            self._catch_up(ahead, worker, wall)
        for suspect in suspects:
            self._suspect(suspect, job, task, wall)
        if finished:  # its outputs are the job's: they are referred to from there
            self._end(job, JobState.DONE, wall, result=entry.result)
        else:
            for blob in blobs_in(task.outputs):
                self.registry.refer(blob.digest, job.id, job.submitter)
        return Completed(
            ref=entry.ref,
            verdict="accepted",
            ledger=receipt,
            job=job.id,
            ready=ready and not finished,
            ended=finished,
            out=tuple((lease.worker, lease.ref(task.id)) for lease in others),
        )

    def _catch_up(self, ahead: _Ahead, worker: str, wall: float) -> None:
        """Put the row of the job that is ahead of it, and tell of the tasks that brought it there."""
        if ahead.job is not None:
            self.jobs.put(ahead.job.id, ahead.job)
            self._task_event("task.done", ahead.job, ahead.numbers, worker, wall)
            ahead.job, ahead.numbers = None, []

    def _vote(self, task: TaskRow, entry: Voted, worker: str, batch: int, wall: float) -> Completed:
        """A result that waits for another owner's. It is durable and signed for: its worker may forget it."""
        job = self.jobs.rows[task.job]
        row = self.registry.workers.get(worker)
        receipt = self._write(task, entry, worker, batch)
        vote = Vote(
            attempt=entry.ref.attempt,
            worker=worker,
            owner=row.owner if row is not None else worker,
            outputs=entry.outputs,
            receipt=receipt,
        )
        for blob in blobs_in(entry.outputs):
            self.registry.refer(blob.digest, job.id, job.submitter)
        task = self.tasks.put(task.id, transitions.voted(task, entry, vote, wall))
        self._task_event("task.voted", job, [task.number], worker, wall)
        out: list[tuple[str, LeaseRef]] = []
        if entry.last:
            # None of them is the job's result, but its submitter should see what came out.
            outputs = {
                f"{name} of {each.worker}": tensor for each in task.votes for name, tensor in each.outputs.items()
            }
            error = transitions.failure_of(task)
            out = self._end(job, JobState.FAILED, wall, error=error, result=ResultManifest(outputs=outputs))
        return Completed(
            ref=entry.ref, verdict="accepted", ledger=receipt, job=job.id, ended=entry.last, out=tuple(out)
        )

    def _suspect(self, worker: str, job: JobRow, task: TaskRow, wall: float) -> None:
        row = self.registry.workers.get(worker)
        if row is not None:
            self.registry.workers.put(worker, replace(row, trust=trust.after(row.trust, suspected=1, wall=wall)))
            data = {"name": row.name, "owner": row.owner, "job": job.id, "task": task.number}
            self.journal.event("worker.suspect", worker, wall, data)

    def _write(self, task: TaskRow, entry: Accepted | Voted, worker: str, batch: int) -> tuple[str, int, bytes]:
        """Add a result's statement to the ledger; gives its receipt."""
        previous_row, previous = self.head
        row = ledger.next_row(
            previous_row,
            previous,
            writer=self.writer,
            batch=batch,
            index=entry.index,
            job=task.job,
            task=task.id,
            attempt=entry.ref.attempt,
            worker=worker,
            statement=entry.statement,
        )
        self.ledger.put((row.writer, row.row), row)
        return row.writer, row.row, row.hash

    def _fail(self, task: TaskRow, entry: Failed, wall: float) -> Completed:
        job = self.jobs.rows[task.job]
        attempt = task.attempts[entry.ref.attempt - 1]
        others = transitions.leases_beside(task, entry.ref.token)
        task = self.tasks.put(task.id, transitions.failed(task, entry, job.spec.retries, wall))
        self._task_event("task.failed", job, [task.number], attempt.worker, wall)
        out: tuple[tuple[str, LeaseRef], ...] = ()
        over = task.state is TaskState.FAILED
        if over:
            ended = self._end(job, JobState.FAILED, wall, error=transitions.failure_of(task))
            out = (*ended, *((lease.worker, lease.ref(task.id)) for lease in others))
        detail = task.attempts[attempt.number - 1].error
        return Completed(ref=entry.ref, verdict="rejected", detail=detail, job=job.id, ended=over, out=out)
