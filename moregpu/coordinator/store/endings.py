"""How jobs end, with all that hangs on them, and the events that tell of jobs and tasks.

Events of tasks are compact: one for a step and job. `id` is the job, `data` names submitter, worker and task numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moregpu.coordinator import transitions
from moregpu.coordinator.store.pages import Pages
from moregpu.coordinator.store.protocol import JobRow, TaskRow
from moregpu.coordinator.store.references import blobs_in
from moregpu.errors import JobFailed, NotFound
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.wire.api import Problem, ResultManifest
from moregpu.wire.messages import LeaseRef


class Endings(Pages):
    """Steps that other steps are made of."""

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
        kept = set() if result is None else {blob.digest for blob in blobs_in(result.outputs)}
        if kept or self.registry.refers(job.id):  # of most jobs everything travels inline
            kept.update(blob.digest for blob in blobs_in(ended.spec))
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
