"""The pool's memory: jobs, tasks and their ledger as rows, changed only by whole steps, all synchronous.

A step either happens in full, journalled for the next commit, or raises and changes nothing. What a step returns is
true in memory; whoever tells it to the outside waits for the commit first (`commits.py`).

Events of tasks are compact: one for a step and job. `id` is the job, `data` names submitter, worker and task numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from moregpu.coordinator import fairness, ledger, transitions, trust
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
    UsageRow,
    Vote,
    Voted,
    WorkerRow,
)
from moregpu.coordinator.store.references import blobs_in, without_data
from moregpu.coordinator.transitions import HeldLease, Standing
from moregpu.errors import Conflict, InvalidJob, JobFailed, NotFound
from moregpu.ids import named
from moregpu.jobs import JOB_ENDED, JobState, TaskState
from moregpu.wire.api import JobChange, Problem, ResultManifest
from moregpu.wire.messages import LeaseRef

TOKEN_BYTES = 16

WEIGH_EVERY_S = 1.0
"""Shares of submitters are worked out anew after so long: usage moves slowly."""


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

    def change_job(self, id: str, change: JobChange, wall: float) -> JobRow:
        """Change what may be changed of a job that was accepted: only what is named."""
        job = self.known(id)
        spec = replace(
            job.spec,
            name=job.spec.name if change.name is None else change.name,
            priority=job.spec.priority if change.priority is None else change.priority,
            keep_s=job.spec.keep_s if change.keep_s is None else change.keep_s,
        )
        if spec == job.spec:
            return job
        changed = self.jobs.put(id, replace(job, spec=spec))
        self._job_event("job.changed", changed, wall)
        return changed

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
            votes = tuple(replace(vote, outputs={}) for vote in task.votes)
            self.tasks.put(task.id, replace(task, spec=without_data(task.spec), outputs={}, votes=votes, token=b""))
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
                out += [(lease.worker, lease.ref(task.id)) for lease in transitions.leases_of(task)]
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
        if slots <= 0 or not self.index.has_ready_work() or not self._may_work(worker.id):
            return []
        self._weigh(wall)
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
            self.index.served(job.submitter, worker.profile.seconds(task.spec.cost))
            leases.append(Lease(job=job, task=task, attempt=len(task.attempts), token=task.token, device=choice.device))
        self._task_events("task.leased", [lease.task for lease in leases], worker.id, wall)
        return leases

    def lease_again(self, worker: FleetWorker, id: str, device: str, now: float, wall: float) -> Lease | None:
        """Lease a task that is out to somebody else, too."""
        task = self.tasks.get(id)
        if task is None or len(transitions.leases_of(task)) != 1 or task.worker == worker.id:
            return None
        if not self._may_work(worker.id):
            return None
        task = self.tasks.put(id, transitions.leased_again(task, worker.id, self._entropy(TOKEN_BYTES), now, wall))
        job = self.jobs.rows[task.job]
        self.index.served(job.submitter, worker.profile.seconds(task.spec.cost))
        self._task_events("task.leased", [task], worker.id, wall)
        attempt = task.attempts[-1]
        return Lease(job=job, task=task, attempt=attempt.number, token=attempt.token, device=device)

    def _may_work(self, worker: str) -> bool:
        row = self.registry.workers.get(worker)
        return row is None or not (row.revoked or row.trust.quarantined)

    def _weigh(self, wall: float) -> None:
        """Work out the shares of those with ready work, when somebody came or a while has passed."""
        ready = self.index.submitters()
        if len(ready) == len(self.index.shares) and 0.0 <= wall - self._weighed_at < WEIGH_EVERY_S:
            return
        tokens, usage = self.registry.tokens, self.registry.usage
        weights = {who: row.weight if (row := tokens.get(who)) is not None else 1.0 for who in ready}
        used = {who: fairness.faded(row.seconds, wall - row.at) for who in ready if (row := usage.get(who)) is not None}
        self.index.shares, self._weighed_at = fairness.shares(weights, used), wall

    def _use(self, seconds_by_submitter: dict[str, float], wall: float) -> None:
        for who, seconds in seconds_by_submitter.items():
            row = self.registry.usage.get(who)
            before = fairness.faded(row.seconds, wall - row.at) if row is not None else 0.0
            self.registry.usage.put(who, UsageRow(submitter=who, seconds=before + seconds, at=wall))

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
                if claim not in (Standing.ACCEPTED, Standing.VOTED):
                    lost.append(ref)
            elif claim is Standing.HELD:
                self.tasks.restore(task.id, transitions.renewed(task, ref.token, now))
            else:
                self.tasks.put(task.id, transitions.held_again(task, now))
        return lost

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
            match entry:
                case Accepted():
                    answers.append(self._accept(task, entry, worker, number or 0, wall))
                case Voted():
                    answers.append(self._vote(task, entry, worker, number or 0, wall))
                case Failed():
                    answers.append(self._fail(task, entry, wall))
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
        others = [lease for lease in transitions.leases_of(task) if lease.token != entry.ref.token]
        suspects = [vote.worker for vote in task.votes if vote.worker not in entry.evidence.workers]
        task = self.tasks.put(task.id, transitions.accepted(task, entry, wall))
        job = self.jobs.put(task.job, transitions.advanced(self.jobs.rows[task.job], task, entry.checking_s))
        self._task_event("task.done", job, [task.number], worker, wall)
        for blob in blobs_in(task.outputs):
            self.registry.refer(blob.digest, job.id, job.submitter)
        receipt = self._write(task, entry, worker, batch)
        for suspect in suspects:
            self._suspect(suspect, job, task, wall)
        ready = transitions.is_ready(job)
        finished = ready and entry.result is not None
        if finished:
            self._end(job, JobState.DONE, wall, result=entry.result)
        return Completed(
            ref=entry.ref,
            verdict="accepted",
            ledger=receipt,
            job=job.id,
            ready=ready and not finished,
            ended=finished,
            out=tuple((lease.worker, lease.ref(task.id)) for lease in others),
        )

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
        others = [lease for lease in transitions.leases_of(task) if lease.token != entry.ref.token]
        task = self.tasks.put(task.id, transitions.failed(task, entry, job.spec.retries, wall))
        self._task_event("task.failed", job, [task.number], attempt.worker, wall)
        out: tuple[tuple[str, LeaseRef], ...] = ()
        over = task.state is TaskState.FAILED
        if over:
            ended = self._end(job, JobState.FAILED, wall, error=transitions.failure_of(task))
            out = (*ended, *((lease.worker, lease.ref(task.id)) for lease in others))
        detail = task.attempts[attempt.number - 1].error
        return Completed(ref=entry.ref, verdict="rejected", detail=detail, job=job.id, ended=over, out=out)

    # ---- leases that end without a result

    def hand_back(self, worker: str, refs: Sequence[LeaseRef], wall: float) -> list[LeaseRef]:
        """Handed back untouched: back to waiting, and the worker's claim is over."""
        held = [pair for ref in refs if (pair := self._held(ref, worker)) is not None]
        return self._lose(held, wall, "handed back", keep_token=False)

    def release(self, worker: str, keep: Sequence[LeaseRef], wall: float) -> list[LeaseRef]:
        """The session is gone: the worker's leases but `keep` go back."""
        kept = {(ref.task, ref.token) for ref in keep}
        held = [
            (id, lease)
            for id in sorted(self.index.leased_by.get(worker, ()))
            for lease in transitions.leases_of(self.tasks.rows[id])
            if lease.worker == worker and (id, lease.token) not in kept
        ]
        return self._lose(held, wall, "the connection ended")

    def reap(self, now: float, wall: float) -> list[LeaseRef]:
        """Leases past their time go back."""
        # Once each: after a commit that failed, the index may name a lease twice.
        past = dict.fromkeys((task.id, token) for task, token in self.index.expired(now))
        leases = [
            (id, lease)
            for id, token in past
            for lease in transitions.leases_of(self.tasks.rows[id])
            if lease.token == token
        ]
        return self._lose(leases, wall, "the lease ran out")

    def extend_all(self, now: float) -> None:
        """Every lease gets its full time from `now` on."""
        for task in list(self.index.leased()):
            self.tasks.restore(task.id, transitions.extended(task, now + transitions.LEASE_S))

    def _held(self, ref: LeaseRef, worker: str) -> tuple[str, HeldLease] | None:
        task = self.tasks.get(ref.task)
        if task is None or transitions.standing(task, ref, worker) is not Standing.HELD:
            return None
        return task.id, next(lease for lease in transitions.leases_of(task) if lease.token == ref.token)

    def _lose(
        self, held: Sequence[tuple[str, HeldLease]], wall: float, reason: str, *, keep_token: bool = True
    ) -> list[LeaseRef]:
        by_worker: dict[str, list[TaskRow]] = {}
        for id, lease in held:
            task = self.tasks.rows[id]
            by_worker.setdefault(lease.worker, []).append(task)
            self.tasks.put(id, transitions.lost(task, lease.token, wall, reason, keep_token=keep_token))
        for worker, lost_tasks in by_worker.items():
            self._task_events("task.lost", lost_tasks, worker, wall)
        for id, _ in held:
            lost = self.tasks.rows[id]
            job = self.jobs.rows[lost.job]
            if lost.state is TaskState.FAILED and job.state not in JOB_ENDED:
                self._end(job, JobState.FAILED, wall, error=transitions.failure_of(lost))
        return [lease.ref(id) for id, lease in held]

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
