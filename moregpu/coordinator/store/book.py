"""The pool's memory: jobs, tasks and their ledger as rows, changed only by whole steps, all synchronous.

A step either happens in full, journalled for the next commit, or raises and changes nothing. What a step returns is
true in memory; whoever tells it to the outside waits for the commit first (`commits.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from moregpu.coordinator import fairness, transitions
from moregpu.coordinator.store.outcomes import Outcomes
from moregpu.coordinator.store.protocol import (
    Choose,
    FleetWorker,
    JobRow,
    Lease,
    TaskRow,
)
from moregpu.coordinator.store.references import blobs_in, without_data
from moregpu.coordinator.transitions import HeldLease, Standing
from moregpu.errors import Conflict, InvalidJob
from moregpu.ids import task_id
from moregpu.jobs import JOB_ENDED, JobState, TaskState
from moregpu.wire.api import JobChange, Problem, ResultManifest
from moregpu.wire.messages import LeaseRef

ID_BYTES, TOKEN_BYTES = 10, 16

WEIGH_EVERY_S = 1.0
"""Shares of submitters are worked out anew after so long: usage moves slowly."""


class Book(Outcomes):
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

    # ---- leases

    def lease(self, worker: FleetWorker, slots: int, choose: Choose, now: float, wall: float) -> list[Lease]:
        """Let `choose` pick, cut what was never cut, and write attempts with fresh tokens."""
        if slots <= 0 or not self.index.has_ready_work() or not self._may_work(worker.id):
            return []
        self._weigh(wall)
        leases: list[Lease] = []
        moved: dict[str, JobRow] = {}  # put once, however many tasks of one job are cut
        for choice in choose(self.index, worker, slots, now)[:slots]:
            job = moved.get(choice.job)
            if job is None:
                job = self.known(choice.job)
                if job.state in JOB_ENDED or self.index.blocked_by(job):
                    raise ValueError(f"{job.id} has nothing to lease")
            random = self._entropy(ID_BYTES + TOKEN_BYTES)
            if choice.task is not None:
                task = self.tasks.rows[choice.task]
                if task.job != job.id:
                    raise ValueError(f"{task.id} is not a task of {job.id}")
            elif choice.cut is not None:
                job, task = transitions.cut_task(task_id(wall, random[:ID_BYTES]), job, choice.cut)
            else:
                raise ValueError("a choice names a waiting task or a fresh cut")
            task = transitions.leased(task, worker.id, random[ID_BYTES:], now, wall)
            self.tasks.put(task.id, task)
            if job.state is JobState.QUEUED:
                job = transitions.started(job, wall)
                self._job_event("job.running", job, wall)
            moved[job.id] = job
            self.index.served(job.submitter, worker.profile.seconds(task.spec.cost))
            leases.append(Lease(job=job, task=task, attempt=len(task.attempts), token=task.token, device=choice.device))
        for id, job in moved.items():
            if job is not self.jobs.rows[id]:
                self.jobs.put(id, job)
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

    # ---- leases that end without a result

    def hand_back(
        self, worker: str, refs: Sequence[LeaseRef], wall: float, reason: str = "handed back", *, untouched: bool
    ) -> list[LeaseRef]:
        """Handed back untouched, or taken back: back to waiting, and the worker's claim is over."""
        held = [pair for ref in refs if (pair := self._held(ref, worker)) is not None]
        return self._lose(held, wall, reason, keep_token=False, untouched=untouched)

    def release(
        self, worker: str, keep: Sequence[LeaseRef], wall: float, reason: str = "the connection ended"
    ) -> list[LeaseRef]:
        """The session is gone: the worker's leases but `keep` go back."""
        kept = {(ref.task, ref.token) for ref in keep}
        held = [
            (id, lease)
            for id in sorted(self.index.leased_by.get(worker, ()))
            for lease in transitions.leases_of(self.tasks.rows[id])
            if lease.worker == worker and (id, lease.token) not in kept
        ]
        return self._lose(held, wall, reason)

    def reap(self, now: float, wall: float) -> list[LeaseRef]:
        """Leases past their time go back."""
        # Once each: after a commit that failed, the index may name a lease twice. In the order of their ids: those that
        # ran out at one moment stand in the index as they came, and after a restart they come in another order.
        past = sorted({(task.id, token) for task, token in self.index.expired(now)})
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
        self,
        held: Sequence[tuple[str, HeldLease]],
        wall: float,
        reason: str,
        *,
        keep_token: bool = True,
        untouched: bool = False,
    ) -> list[LeaseRef]:
        by_worker: dict[str, list[TaskRow]] = {}
        for id, lease in held:
            task = self.tasks.rows[id]
            by_worker.setdefault(lease.worker, []).append(task)
            lost = transitions.lost(task, lease.token, wall, reason, keep_token=keep_token, untouched=untouched)
            self.tasks.put(id, lost)
        for worker, lost_tasks in by_worker.items():
            self._task_events("task.lost", lost_tasks, worker, wall)
        for id, _ in held:
            lost = self.tasks.rows[id]
            job = self.jobs.rows[lost.job]
            if lost.state is TaskState.FAILED and job.state not in JOB_ENDED:
                self._end(job, JobState.FAILED, wall, error=transitions.failure_of(lost))
        return [lease.ref(id) for id, lease in held]
