"""What each event does to a task or a job: pure functions from row to row, along the moves of `moregpu.jobs` only.

No clock, no randomness, no storage. Every move is checked against the tables there, so that a step that they do not
know raises `IllegalMove` before anything is kept.
"""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from moregpu.coordinator.store.protocol import (
    ASSIGN_LEASE_S,
    LEASE_S,
    MAX_LOSSES,
    Accepted,
    AttemptRow,
    Failed,
    JobRow,
    TaskRow,
)
from moregpu.errors import EngineError, JobFailed, MoreGPUError
from moregpu.jobs import (
    JOB_ENDED,
    TASK_ENDED,
    AttemptState,
    JobState,
    TaskState,
    check_move,
)
from moregpu.wire.api import Problem, ResultManifest
from moregpu.wire.messages import LeaseRef
from moregpu.workloads.protocol import TaskSpec

# ---- where a lease stands --------------------------------------------------------------------------------------------


class Standing(Enum):
    """What a worker's claim to a lease is worth."""

    HELD = "held"  # leased to it, with this very token
    BACK = "back"  # went back to waiting, but nobody leased it since: its token still holds
    ACCEPTED = "accepted"  # this attempt's result was accepted: a resend
    REJECTED = "rejected"  # this attempt failed: a resend
    FENCED = "fenced"  # not this lease, or not any more


def standing(task: TaskRow | None, ref: LeaseRef, worker: str) -> Standing:
    """Judge a claim by task, attempt, token and worker: all four, or it is fenced."""
    if task is None or task.id != ref.task or not 1 <= ref.attempt <= len(task.attempts) or not ref.token:
        return Standing.FENCED
    attempt = task.attempts[ref.attempt - 1]
    if attempt.token != ref.token or attempt.worker != worker:
        return Standing.FENCED
    if attempt.state is AttemptState.ACCEPTED:
        return Standing.ACCEPTED
    if attempt.state is AttemptState.REJECTED:
        return Standing.REJECTED
    if ref.attempt != len(task.attempts) or task.token != ref.token:
        return Standing.FENCED
    if task.state is TaskState.LEASED and task.worker == worker:
        return Standing.HELD
    return Standing.BACK if task.state is TaskState.WAITING else Standing.FENCED


# ---- tasks -----------------------------------------------------------------------------------------------------------


def cut_task(id: str, job: JobRow, spec: TaskSpec) -> tuple[JobRow, TaskRow]:
    """Cut a task from the job's cursor. Raises `ValueError` when the cut does not begin there or runs past the end."""
    start, stop = spec.grains
    if start != job.cursor or not start < stop <= job.plan.grains:
        raise ValueError(f"grains {start}–{stop} do not follow the cursor {job.cursor} of {job.plan.grains}")
    task = TaskRow(id=id, job=job.id, number=job.tasks_total, state=TaskState.WAITING, spec=spec)
    return replace(job, cursor=stop, tasks_total=job.tasks_total + 1), task


def leased(task: TaskRow, worker: str, token: bytes, now: float, wall: float) -> TaskRow:
    """Lease a waiting task: from here on the earlier token is worth nothing."""
    attempt = AttemptRow(
        number=len(task.attempts) + 1, worker=worker, token=token, state=AttemptState.ASSIGNED, leased_at=wall
    )
    return _moved(
        task,
        TaskState.LEASED,
        attempts=(*task.attempts, attempt),
        worker=worker,
        token=token,
        expires=now + ASSIGN_LEASE_S,
    )


def renewed(task: TaskRow, now: float) -> TaskRow:
    """Give a held lease its full time again, from `now` on; the worker thereby confirmed that it has it."""
    last = task.attempts[-1]
    expires = max(task.expires, now + LEASE_S)
    if last.state is AttemptState.STARTED:
        return replace(task, expires=expires)
    return replace(task, attempts=_last(task, AttemptState.STARTED), expires=expires)


def held_again(task: TaskRow, now: float) -> TaskRow:
    """A task that went back is still held by its last worker, and nobody leased it since: let it go on there."""
    worker = task.attempts[-1].worker
    attempts = _last(task, AttemptState.STARTED, ended_at=None)
    return _moved(task, TaskState.LEASED, attempts=attempts, worker=worker, expires=now + LEASE_S)


def lost(task: TaskRow, wall: float, reason: str, *, keep_token: bool = True) -> TaskRow:
    """A lease ended without a result: back to waiting, or failed at the loss that makes it `MAX_LOSSES`.

    The token holds until the task is leased again, so that a result that is on its way is not lost; a worker that
    handed the task back untouched (`keep_token=False`) has no such claim.
    """
    losses = task.losses + 1
    state = TaskState.FAILED if losses >= MAX_LOSSES else TaskState.WAITING
    return _moved(
        task,
        state,
        attempts=_last(task, AttemptState.LOST, ended_at=wall, error=reason),
        losses=losses,
        worker=None,
        token=task.token if keep_token and state is TaskState.WAITING else b"",
        expires=0.0,
    )


def accepted(task: TaskRow, result: Accepted, wall: float) -> TaskRow:
    """A checked output: the task is done."""
    attempts = _last(_returned(task), AttemptState.ACCEPTED, ended_at=wall, seconds=result.seconds, error="")
    held = task if task.state is TaskState.LEASED else _moved(task, TaskState.LEASED)
    return _moved(
        held,
        TaskState.DONE,
        attempts=attempts,
        outputs=result.outputs,
        evidence=result.evidence,
        worker=attempts[-1].worker,
        expires=0.0,
    )


def failed(task: TaskRow, result: Failed, retries: int, wall: float) -> TaskRow:
    """A failed or wrong attempt: waiting again, or failed for good.

    The engine's failures and wrong results count, up to `retries`; what was the worker's own trouble counts as a loss;
    `final` ends the task at once. The worker is remembered, so that another one tries next.
    """
    last = task.attempts[-1]
    attempts = _last(
        _returned(task),
        AttemptState.REJECTED,
        ended_at=wall,
        seconds=result.seconds,
        error=f"{result.error.code}: {result.error.message}",
    )
    workers_fault = result.error.fault == "worker" and not result.final and not result.proven_wrong
    failures = task.failures + (not workers_fault)
    losses = task.losses + workers_fault
    over = result.final or failures >= max(1, retries) or losses >= MAX_LOSSES
    held = task if task.state is TaskState.LEASED else _moved(task, TaskState.LEASED)
    return _moved(
        held,
        TaskState.FAILED if over else TaskState.WAITING,
        attempts=attempts,
        failures=failures,
        losses=losses,
        failed_on=task.failed_on if last.worker in task.failed_on else (*task.failed_on, last.worker),
        worker=None,
        token=b"",
        expires=0.0,
    )


def withdrawn(task: TaskRow, wall: float) -> TaskRow:
    """The job ended: a task that had not is cancelled, and its lease is worth nothing."""
    attempts = task.attempts
    if task.state is TaskState.LEASED:
        attempts = _last(task, AttemptState.LOST, ended_at=wall, error="the job ended")
    return _moved(task, TaskState.CANCELLED, attempts=attempts, worker=None, token=b"", expires=0.0)


def _moved(task: TaskRow, state: TaskState, **fields: object) -> TaskRow:
    check_move(task.state, state)
    return replace(task, state=state, **fields)


def _last(task: TaskRow, state: AttemptState, **fields: object) -> tuple[AttemptRow, ...]:
    last = task.attempts[-1]
    check_move(last.state, state)
    return (*task.attempts[:-1], replace(last, state=state, **fields))


def _returned(task: TaskRow) -> TaskRow:
    return replace(task, attempts=_last(task, AttemptState.RETURNED))


# ---- jobs ------------------------------------------------------------------------------------------------------------


def started(job: JobRow, wall: float) -> JobRow:
    """A task of the job was leased."""
    if job.state is not JobState.QUEUED:
        return job
    check_move(job.state, JobState.RUNNING)
    return replace(job, state=JobState.RUNNING, started_at=wall)


def advanced(job: JobRow, task: TaskRow, checking_s: float) -> JobRow:
    """A task of the job is done."""
    kind = task.evidence.kind if task.evidence else "unchecked"
    start, stop = task.spec.grains
    return replace(
        job,
        grains_done=job.grains_done + stop - start,
        tasks_done=job.tasks_done + 1,
        evidence={**job.evidence, kind: job.evidence.get(kind, 0) + 1},
        checking_s=job.checking_s + checking_s,
    )


def is_ready(job: JobRow) -> bool:
    """Whether every grain is accepted and the job has not ended: it is to be combined."""
    return job.state not in JOB_ENDED and job.grains_done == job.plan.grains


def ended(
    job: JobRow,
    state: JobState,
    wall: float,
    *,
    result: ResultManifest | None = None,
    error: Problem | None = None,
    combining_s: float = 0.0,
) -> JobRow:
    """Move a job to an end state. Done only when every grain was accepted."""
    check_move(job.state, state)
    if state is JobState.DONE and job.grains_done != job.plan.grains:
        raise ValueError(f"{job.id}: {job.grains_done} of {job.plan.grains} grains are accepted; it cannot be done")
    return replace(
        job,
        state=state,
        ended_at=wall,
        result=result if state is JobState.DONE else None,
        error=error,
        combining_s=combining_s,
    )


def failure_of(task: TaskRow) -> Problem:
    """Why a job fails whose task failed for good: the last attempt's own words."""
    last = task.attempts[-1]
    if task.losses >= MAX_LOSSES:
        return problem(
            JobFailed(
                f"task {task.number} was lost {task.losses} times, the last time on {last.worker}: {last.error}",
                "its workers may be crashing on it; see the attempts, then retry the job",
            )
        )
    times = "once" if task.failures == 1 else f"{task.failures} times"
    kind: type[MoreGPUError] = EngineError if last.error.startswith("engine-error") else JobFailed
    return problem(
        kind(
            f"task {task.number} failed {times}, the last time on {last.worker}: {last.error}",
            "the job's attempts tell what each worker said",
        )
    )


def problem(error: MoreGPUError) -> Problem:
    """Write an error as the problem document that a job keeps."""
    return Problem(
        type=f"about:moregpu/{error.code}",
        title=error.title,
        status=error.status,
        detail=error.detail,
        hint=error.hint,
    )


def is_over(task: TaskRow) -> bool:
    """Whether the task reached an end state."""
    return task.state in TASK_ENDED
