"""The pool's memory: jobs, tasks and their ledger as rows, changed only by whole steps, all synchronous.

A step either happens in full, journalled for the next commit, or raises and changes nothing. What a step returns is
true in memory; whoever tells it to the outside waits for the commit first (`commits.py`).

Events of tasks are compact: one for a step and job. `id` is the job, `data` names submitter, worker and task numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from moregpu.coordinator import ledger, transitions
from moregpu.coordinator.store.pages import Pages
from moregpu.coordinator.store.protocol import (
    Accepted,
    Choose,
    Completed,
    Failed,
    FleetWorker,
    JobRow,
    Lease,
    LedgerBatch,
    SignedBatch,
    TaskRow,
)
from moregpu.coordinator.store.references import blobs_in, without_data
from moregpu.coordinator.transitions import Standing
from moregpu.errors import Conflict, InvalidJob, JobFailed, NotFound
from moregpu.ids import named
from moregpu.jobs import JOB_ENDED, JobState, TaskState
from moregpu.wire.api import Problem, ResultManifest
from moregpu.wire.messages import LeaseRef

TOKEN_BYTES = 16


class Book(Pages):
    """Every step that a pool's memory can take."""

    # ---- jobs

    def add_job(self, job: JobRow) -> JobRow:
        """Keep a job; the same (submitter, idempotency key) gives back the earlier one.

        Raises `InvalidJob` when it is to wait for a job that its submitter does not have.
        """
        if job.idempotency_key:
            earlier = self.index.by_key.get((job.submitter, job.idempotency_key))
            if earlier is not None:
                return self.jobs.rows[earlier]
        if job.id in self.jobs.rows:
            return self.jobs.rows[job.id]
        broken = ""
        for id in job.spec.after:
            dependency = self.jobs.get(id)
            if dependency is None or dependency.submitter != job.submitter:
                raise InvalidJob(f"there is no job {id} to wait for", "`after` takes ids of your own jobs")
            if dependency.state in (JobState.FAILED, JobState.CANCELLED):
                broken = broken or id
        self.jobs.put(job.id, job)
        for blob in blobs_in(job.spec):
            self.registry.refer(blob.digest, job.id, job.submitter)
        self._job_event("job.queued", job, job.created_at)
        if broken:
            self._fail_follower(job.id, broken, job.created_at)
        return self.jobs.rows[job.id]

    def cancel(self, id: str, wall: float) -> list[tuple[str, LeaseRef]]:
        """End a job as cancelled; one that ended stays as it is."""
        job = self.known(id)
        return [] if job.state in JOB_ENDED else self._end(job, JobState.CANCELLED, wall)

    def finish(
        self, id: str, result: ResultManifest | None, error: Problem | None, combining_s: float, wall: float
    ) -> JobRow:
        """Done, or failed with `error`; one that ended stays as it is."""
        job = self.known(id)
        if job.state not in JOB_ENDED:
            state = JobState.FAILED if error is not None else JobState.DONE
            self._end(job, state, wall, result=result, error=error, combining_s=combining_s)
        return self.jobs.rows[id]

    def purge(self, id: str) -> JobRow:
        """Forget outputs and keys of an ended job; its names, shapes, evidence and statements stay."""
        job = self.known(id)
        if job.state not in JOB_ENDED:
            raise Conflict(f"{id} is {job.state}; only a job that ended can be forgotten", "cancel it first")
        if job.purged:
            return job
        for task in self.index.tasks(id):
            self.tasks.put(task.id, replace(task, spec=without_data(task.spec), outputs={}, token=b""))
        self.registry.unrefer(id, keep=())
        bare = replace(
            job, spec=without_data(job.spec), plan=without_data(job.plan), digest_key=b"", result=None, purged=True
        )
        return self.jobs.put(id, bare)

    def known(self, id: str) -> JobRow:
        """A job in memory; raises `NotFound`."""
        job = self.jobs.get(id)
        if job is None:
            raise NotFound(f"there is no job {id}")
        return job

    def _end(
        self,
        job: JobRow,
        state: JobState,
        wall: float,
        *,
        result: ResultManifest | None = None,
        error: Problem | None = None,
        combining_s: float = 0.0,
    ) -> list[tuple[str, LeaseRef]]:
        """Move a job to an end state with all that hangs on it; gives back the leases that were out."""
        ended = transitions.ended(job, state, wall, result=result, error=error, combining_s=combining_s)
        out: list[tuple[str, LeaseRef]] = []
        for task in self.index.tasks(job.id):
            if not transitions.is_over(task):
                if task.state is TaskState.LEASED and task.worker is not None:
                    out.append((task.worker, LeaseRef(task=task.id, attempt=len(task.attempts), token=task.token)))
                self.tasks.put(task.id, transitions.withdrawn(task, wall))
        self.jobs.put(job.id, ended)
        # Parts are no longer needed; the inputs are, for a retry, and the result, until the job is purged.
        kept = {blob.digest for blob in blobs_in((ended.spec, ended.result))}
        for digest in kept:
            self.registry.refer(digest, job.id, job.submitter)
        self.registry.unrefer(job.id, keep=kept)
        self._job_event(f"job.{state}", ended, wall, detail=error.detail if error is not None else "")
        if state is not JobState.DONE:
            for follower in sorted(self.index.followers.get(job.id, ())):
                out += self._fail_follower(follower, job.id, wall)
        return out

    def _fail_follower(self, id: str, dependency: str, wall: float) -> list[tuple[str, LeaseRef]]:
        job = self.jobs.rows[id]
        if job.state in JOB_ENDED:
            return []
        state = self.jobs.rows[dependency].state
        error = transitions.problem(
            JobFailed(f"{dependency}, which this job waits for, was {state}", "retry that one, then this one")
            if state is JobState.CANCELLED
            else JobFailed(f"{dependency}, which this job waits for, failed", "retry that one, then this one")
        )
        return self._end(job, JobState.FAILED, wall, error=error)

    # ---- leases

    def lease(self, worker: FleetWorker, slots: int, choose: Choose, now: float, wall: float) -> list[Lease]:
        """Let `choose` pick, cut what was never cut, and write attempts with fresh tokens."""
        row = self.registry.workers.get(worker.id)
        if slots <= 0 or not self.index.has_ready_work() or (row is not None and row.revoked):
            return []
        leases: list[Lease] = []
        for choice in choose(self.index, worker, slots, now)[:slots]:
            job = self.known(choice.job)
            if job.state in JOB_ENDED or self.index.blocked_by(job):
                raise ValueError(f"{job.id} has nothing to lease")
            if choice.task is not None:
                task = self.tasks.rows[choice.task]
                if task.job != job.id:
                    raise ValueError(f"{task.id} is not a task of {job.id}")
            elif choice.cut is not None:
                job, task = transitions.cut_task(named("t", self._entropy(16)), job, choice.cut)
            else:
                raise ValueError("a choice names a waiting task or a fresh cut")
            task = transitions.leased(task, worker.id, self._entropy(TOKEN_BYTES), now, wall)
            self.tasks.put(task.id, task)
            job = transitions.started(job, wall)
            if job is not self.jobs.rows[job.id]:
                if self.jobs.rows[job.id].state is not job.state:
                    self._job_event("job.running", job, wall)
                self.jobs.put(job.id, job)
            self.index.served(job.submitter)
            leases.append(Lease(job=job, task=task, attempt=len(task.attempts), token=task.token, device=choice.device))
        self._task_events("task.leased", [lease.task for lease in leases], worker.id, wall)
        return leases

    def renew(self, worker: str, refs: Sequence[LeaseRef], now: float) -> list[LeaseRef]:
        """Give held leases their full time; a task that went back and that nobody leased since is held again.

        Time is never written to the disk (a restart gives everyone the full lease), so a renewal costs no commit.
        """
        row = self.registry.workers.get(worker)
        if row is not None and row.revoked:
            return list(refs)
        lost: list[LeaseRef] = []
        for ref in refs:
            task = self.tasks.get(ref.task)
            claim = transitions.standing(task, ref, worker)
            if task is None or claim not in (Standing.HELD, Standing.BACK):
                # An accepted attempt is not lost: its acknowledgement is on the way.
                if claim is not Standing.ACCEPTED:
                    lost.append(ref)
            elif claim is Standing.HELD:
                self.tasks.restore(task.id, transitions.renewed(task, now))
            else:
                self.tasks.put(task.id, transitions.held_again(task, now))
        return lost

    def complete(
        self, worker: str, ended: Sequence[Accepted | Failed], batch: SignedBatch | None, wall: float
    ) -> list[Completed]:
        """Accept or fail attempts, fenced by task, attempt, token and worker."""
        row = self.registry.workers.get(worker)
        if row is not None and row.revoked:
            return [Completed(ref=entry.ref, verdict="fenced", detail="the worker was revoked") for entry in ended]
        number: int | None = None
        done: list[TaskRow] = []
        failed: list[TaskRow] = []
        answers: list[Completed] = []
        for entry in ended:
            task = self.tasks.get(entry.ref.task)
            claim = transitions.standing(task, entry.ref, worker)
            if task is None or claim is Standing.FENCED:
                answers.append(Completed(ref=entry.ref, verdict="fenced", detail="this lease is over"))
            elif claim is Standing.ACCEPTED:
                answers.append(
                    Completed(ref=entry.ref, verdict="accepted", ledger=self.receipts.get(task.id), job=task.job)
                )
            elif claim is Standing.REJECTED:
                detail = task.attempts[entry.ref.attempt - 1].error
                answers.append(Completed(ref=entry.ref, verdict="rejected", detail=detail, job=task.job))
            elif isinstance(entry, Accepted):
                if number is None:
                    number = self._keep_batch(worker, batch)
                answers.append(self._accept(task, entry, worker, number, wall))
                done.append(self.tasks.rows[task.id])
            else:
                answers.append(self._fail(task, entry, wall))
                failed.append(self.tasks.rows[task.id])
        if row is not None and (done or failed):
            self.registry.workers.put(
                worker,
                replace(
                    row,
                    tasks_done=row.tasks_done + len(done),
                    tasks_failed=row.tasks_failed + len(failed),
                    busy_s=row.busy_s + sum(task.attempts[-1].seconds or 0.0 for task in done),
                    seen_at=max(row.seen_at, wall),
                ),
            )
        return answers

    def _keep_batch(self, worker: str, batch: SignedBatch | None) -> int:
        if batch is None or batch.worker != worker:
            raise ValueError("a result is accepted only under its worker's signature")
        number = self.next_batch
        kept = LedgerBatch(
            writer=self.writer, number=number, worker=worker, digests=batch.digests, signature=batch.signature
        )
        self.batches.put((self.writer, number), kept)
        return number

    def _accept(self, task: TaskRow, entry: Accepted, worker: str, batch: int, wall: float) -> Completed:
        task = self.tasks.put(task.id, transitions.accepted(task, entry, wall))
        job = self.jobs.put(task.job, transitions.advanced(self.jobs.rows[task.job], task, entry.checking_s))
        self._task_event("task.done", job, [task.number], worker, wall)
        for blob in blobs_in(task.outputs):
            self.registry.refer(blob.digest, job.id, job.submitter)
        previous_row, previous = self.head
        row = ledger.next_row(
            previous_row,
            previous,
            writer=self.writer,
            batch=batch,
            index=entry.index,
            job=job.id,
            task=task.id,
            attempt=entry.ref.attempt,
            worker=worker,
            statement=entry.statement,
        )
        self.ledger.put((row.writer, row.row), row)
        ready = transitions.is_ready(job)
        finished = ready and entry.result is not None
        if finished:
            self._end(job, JobState.DONE, wall, result=entry.result)
        return Completed(
            ref=entry.ref,
            verdict="accepted",
            ledger=(row.writer, row.row, row.hash),
            job=job.id,
            ready=ready and not finished,
            ended=finished,
        )

    def _fail(self, task: TaskRow, entry: Failed, wall: float) -> Completed:
        job = self.jobs.rows[task.job]
        worker = task.attempts[-1].worker
        task = self.tasks.put(task.id, transitions.failed(task, entry, job.spec.retries, wall))
        self._task_event("task.failed", job, [task.number], worker, wall)
        out: tuple[tuple[str, LeaseRef], ...] = ()
        over = task.state is TaskState.FAILED
        if over:
            out = tuple(self._end(job, JobState.FAILED, wall, error=transitions.failure_of(task)))
        detail = task.attempts[-1].error
        return Completed(ref=entry.ref, verdict="rejected", detail=detail, job=job.id, ended=over, out=out)

    # ---- leases that end without a result

    def hand_back(self, worker: str, refs: Sequence[LeaseRef], wall: float) -> list[LeaseRef]:
        """Handed back untouched: back to waiting, and the worker's claim is over."""
        tasks = [task for ref in refs if (task := self._held(ref, worker)) is not None]
        return self._lose(tasks, wall, "handed back", keep_token=False)

    def release(self, worker: str, keep: Sequence[LeaseRef], wall: float) -> list[LeaseRef]:
        """The session is gone: the worker's leases but `keep` go back."""
        kept = {(ref.task, ref.token) for ref in keep}
        tasks = [self.tasks.rows[id] for id in sorted(self.index.leased_by.get(worker, ()))]
        return self._lose([task for task in tasks if (task.id, task.token) not in kept], wall, "the connection ended")

    def reap(self, now: float, wall: float) -> list[LeaseRef]:
        """Leases past their time go back."""
        return self._lose(list(self.index.expired(now)), wall, "the lease ran out")

    def extend_all(self, now: float) -> None:
        """Every lease gets its full time from `now` on."""
        for task in list(self.index.leased()):
            self.tasks.restore(task.id, replace(task, expires=now + transitions.LEASE_S))

    def _held(self, ref: LeaseRef, worker: str) -> TaskRow | None:
        task = self.tasks.get(ref.task)
        return task if transitions.standing(task, ref, worker) is Standing.HELD else None

    def _lose(self, tasks: Sequence[TaskRow], wall: float, reason: str, *, keep_token: bool = True) -> list[LeaseRef]:
        refs = [LeaseRef(task=task.id, attempt=len(task.attempts), token=task.token) for task in tasks]
        by_worker: dict[str, list[TaskRow]] = {}
        for task in tasks:
            by_worker.setdefault(task.worker or "", []).append(task)
            self.tasks.put(task.id, transitions.lost(task, wall, reason, keep_token=keep_token))
        for worker, lost_tasks in by_worker.items():
            self._task_events("task.lost", lost_tasks, worker, wall)
        for task in tasks:
            lost = self.tasks.rows[task.id]
            job = self.jobs.rows[task.job]
            if lost.state is TaskState.FAILED and job.state not in JOB_ENDED:
                self._end(job, JobState.FAILED, wall, error=transitions.failure_of(lost))
        return refs

    # ---- events

    def _job_event(self, event: str, job: JobRow, wall: float, detail: str = "") -> None:
        data: dict[str, Any] = {
            "submitter": job.submitter,
            "kind": job.kind,
            "name": job.spec.name,
            "state": str(job.state),
            "grains": job.plan.grains,
            "grains_done": job.grains_done,
        }
        if detail:
            data["detail"] = detail
        self.journal.event(event, job.id, wall, data)

    def _task_events(self, event: str, tasks: Sequence[TaskRow], worker: str, wall: float) -> None:
        by_job: dict[str, list[int]] = {}
        for task in tasks:
            by_job.setdefault(task.job, []).append(task.number)
        for id, numbers in by_job.items():
            self._task_event(event, self.jobs.rows[id], numbers, worker, wall)

    def _task_event(self, event: str, job: JobRow, numbers: Sequence[int], worker: str, wall: float) -> None:
        """Results of one job that come together make one event: the last one is added to."""
        last = self.journal.last_event
        more = last is not None and (last.type, last.id, last.data.get("worker")) == (event, job.id, worker)
        data = {
            "submitter": job.submitter,
            "worker": worker,
            "tasks": [*last.data["tasks"], *numbers] if last is not None and more else list(numbers),
            "grains": job.plan.grains,
            "grains_done": job.grains_done,
        }
        if more:
            self.journal.amend_event(data)
        else:
            self.journal.event(event, job.id, wall, data)
