"""What each event does to a task or a job: pure functions from row to row, along the moves of `moregpu.jobs` only.

No clock, no randomness, no storage. Every move is checked against the tables there, so that a step that they do not
know raises `IllegalMove` before anything is kept.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from msgspec.structs import replace

from moregpu.coordinator.store.protocol import (
    ASSIGN_LEASE_S,
    LEASE_S,
    MAX_LOSSES,
    Accepted,
    AttemptRow,
    Failed,
    JobRow,
    Rival,
    TaskRow,
    Vote,
    Voted,
)
from moregpu.errors import EngineError, JobFailed, MoreGPUError, NotReproducible, TaskLost
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
    VOTED = "voted"  # this attempt's result stands beside others, until two owners agree: a resend
    FENCED = "fenced"  # not this lease, or not any more


class HeldLease(NamedTuple):
    """One lease that is out on a task."""

    attempt: int
    worker: str
    token: bytes
    expires: float

    def ref(self, task: str) -> LeaseRef:
        """Its exact name."""
        return LeaseRef(task=task, attempt=self.attempt, token=self.token)


def leases_of(task: TaskRow) -> tuple[HeldLease, ...]:
    """The leases that are out: none, one, or two when somebody else tries as well."""
    if task.state is not TaskState.LEASED or task.worker is None:
        return ()
    first = HeldLease(_number(task, task.token), task.worker, task.token, task.expires)
    rival = task.rival
    return (first,) if rival is None else (first, HeldLease(rival.attempt, rival.worker, rival.token, rival.expires))


def leases_beside(task: TaskRow, token: bytes) -> list[HeldLease]:
    """The leases that are out but the one under `token`."""
    if task.rival is None and task.token == token:
        return []  # as nearly always
    return [lease for lease in leases_of(task) if lease.token != token]


def standing(task: TaskRow | None, ref: LeaseRef, worker: str) -> Standing:
    """Judge a claim by task, attempt, token and worker: all four, or it is fenced."""
    if task is None or task.id != ref.task or not 1 <= ref.attempt <= len(task.attempts) or not ref.token:
        return Standing.FENCED
    attempt = task.attempts[ref.attempt - 1]
    if attempt.token != ref.token or attempt.worker != worker:
        return Standing.FENCED
    ended = _ENDED.get(attempt.state)
    if ended is not None:
        return ended
    if task.token == ref.token and task.worker == worker and task.state is TaskState.LEASED:
        return Standing.HELD
    if task.state is TaskState.WAITING and task.token == ref.token:
        return Standing.BACK
    return Standing.HELD if any(lease.token == ref.token for lease in leases_of(task)) else Standing.FENCED


_ENDED = {
    AttemptState.ACCEPTED: Standing.ACCEPTED,
    AttemptState.REJECTED: Standing.REJECTED,
    AttemptState.RETURNED: Standing.VOTED,
}


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
    return _moved(
        task,
        TaskState.LEASED,
        attempts=(*task.attempts, _attempt(task, worker, token, wall)),
        worker=worker,
        token=token,
        expires=now + ASSIGN_LEASE_S,
    )


def leased_again(task: TaskRow, worker: str, token: bytes, now: float, wall: float) -> TaskRow:
    """Lease a task that is out to somebody else, too. Raises `ValueError` when it is not, or twice already."""
    if len(leases_of(task)) != 1 or task.worker == worker:
        raise ValueError(f"{task.id} is not out to one other worker")
    attempt = _attempt(task, worker, token, wall)
    rival = Rival(attempt=attempt.number, worker=worker, token=token, expires=now + ASSIGN_LEASE_S)
    return replace(task, attempts=(*task.attempts, attempt), rival=rival)


def renewed(task: TaskRow, token: bytes, now: float) -> TaskRow:
    """Give a held lease its full time again, from `now` on; the worker thereby confirmed that it has it."""
    number, until = _number(task, token), now + LEASE_S
    if task.attempts[number - 1].state is not AttemptState.STARTED:
        task = _with(task, number, AttemptState.STARTED)
    if task.rival is not None and task.rival.token == token:
        return replace(task, rival=replace(task.rival, expires=max(task.rival.expires, until)))
    return replace(task, expires=max(task.expires, until))


def extended(task: TaskRow, until: float) -> TaskRow:
    """Give every lease of a task the same time."""
    rival = task.rival
    return replace(task, expires=until, rival=rival if rival is None else replace(rival, expires=until))


def held_again(task: TaskRow, now: float) -> TaskRow:
    """A task that went back is still held by its last worker, and nobody leased it since: let it go on there."""
    number = _number(task, task.token)
    task = _with(task, number, AttemptState.STARTED, ended_at=None)
    return _moved(task, TaskState.LEASED, worker=task.attempts[number - 1].worker, expires=now + LEASE_S)


def lost(
    task: TaskRow, token: bytes, wall: float, reason: str, *, keep_token: bool = True, untouched: bool = False
) -> TaskRow:
    """A lease ended without a result: back to waiting, or failed at the loss that makes it `MAX_LOSSES`.

    The token holds until the task is leased again, so that a result that is on its way is not lost; a worker from which
    the task was taken, or that handed it back, has no such claim (`keep_token=False`). What may run only once fails
    unless its worker never began it (`untouched`). Where somebody else has the task, too, it simply stays with them,
    and nothing is counted.
    """
    if len(leases_of(task)) > 1:
        return _left_to_other(_with(task, _number(task, token), AttemptState.LOST, ended_at=wall, error=reason), token)
    losses = task.losses + 1
    over = losses >= MAX_LOSSES or (task.spec.once and not untouched)
    state = TaskState.FAILED if over else TaskState.WAITING
    return _moved(
        _with(task, _number(task, token), AttemptState.LOST, ended_at=wall, error=reason),
        state,
        losses=losses,
        worker=None,
        token=token if keep_token and state is TaskState.WAITING else b"",
        expires=0.0,
    )


def accepted(task: TaskRow, result: Accepted, wall: float) -> TaskRow:
    """A checked output: the task is done; who else tried stops. Votes that agree with it are accepted with it."""
    number = result.ref.attempt
    task = _out(task, wall, number, "another attempt was first")
    check_move(task.attempts[number - 1].state, AttemptState.RETURNED)
    attempts = _moved_on(task.attempts, number, AttemptState.RETURNED, AttemptState.ACCEPTED, ended_at=wall,
                         seconds=result.seconds, error="")  # fmt: skip
    for vote in task.votes:
        agrees = vote.worker in result.evidence.workers
        state = AttemptState.ACCEPTED if agrees else AttemptState.REJECTED
        error = "" if agrees else "suspect: workers of two other owners agreed on another result"
        attempts = _moved_on(attempts, vote.attempt, attempts[vote.attempt - 1].state, state, error=error)
    attempt = attempts[number - 1]
    return _moved(
        task if task.state is TaskState.LEASED else _moved(task, TaskState.LEASED),
        TaskState.DONE,
        attempts=attempts,
        outputs=result.outputs,
        evidence=result.evidence,
        worker=attempt.worker,
        token=attempt.token,
        expires=0.0,
        rival=None,
        votes=tuple([replace(vote, outputs={}) for vote in task.votes]) if task.votes else (),
    )


def voted(task: TaskRow, result: Voted, vote: Vote, wall: float) -> TaskRow:
    """A result that stands beside others: the task waits for a worker of another owner, or fails with the last one."""
    number = result.ref.attempt
    return _moved(
        _with(task, number, AttemptState.RETURNED, ended_at=wall, seconds=result.seconds, error="")
        if task.state is TaskState.LEASED
        else _moved(_with(task, number, AttemptState.RETURNED, seconds=result.seconds, error=""), TaskState.LEASED),
        TaskState.FAILED if result.last else TaskState.WAITING,
        votes=(*task.votes, vote),
        worker=None,
        token=b"",
        expires=0.0,
    )


def failed(task: TaskRow, result: Failed, retries: int, wall: float) -> TaskRow:
    """A failed or wrong attempt: waiting again, left to whoever else has it, or failed for good.

    The engine's failures and wrong results count, up to `retries`; what was the worker's own trouble counts as a loss;
    `final` ends the task at once. The worker is remembered, so that another one tries next.
    """
    number = result.ref.attempt
    worker = task.attempts[number - 1].worker
    error = f"{result.error.code}: {result.error.message}"
    workers_fault = result.error.fault == "worker" and not result.final and not result.proven_wrong
    failures = task.failures + (not workers_fault)
    losses = task.losses + workers_fault
    others = len(leases_of(task)) > 1
    over = result.final or task.spec.once or (not others and (failures >= max(1, retries) or losses >= MAX_LOSSES))
    check_move(task.attempts[number - 1].state, AttemptState.RETURNED)
    attempts = _moved_on(task.attempts, number, AttemptState.RETURNED, AttemptState.REJECTED, ended_at=wall,
                         seconds=result.seconds, error=error)  # fmt: skip
    task = replace(
        task,
        attempts=attempts,
        failures=failures,
        losses=losses,
        failed_on=task.failed_on if worker in task.failed_on else (*task.failed_on, worker),
    )
    if others and not over:
        return _left_to_other(task, result.ref.token)
    task = _out(task, wall, number, "the task failed")
    held = task if task.state is TaskState.LEASED else _moved(task, TaskState.LEASED)
    return _moved(
        held, TaskState.FAILED if over else TaskState.WAITING, worker=None, token=b"", expires=0.0, rival=None
    )


def withdrawn(task: TaskRow, wall: float) -> TaskRow:
    """The job ended: a task that had not is cancelled, and its leases are worth nothing."""
    task = _out(task, wall, 0, "the job ended")
    return _moved(task, TaskState.CANCELLED, worker=None, token=b"", expires=0.0, rival=None)


def _attempt(task: TaskRow, worker: str, token: bytes, wall: float) -> AttemptRow:
    number = len(task.attempts) + 1
    return AttemptRow(number=number, worker=worker, token=token, state=AttemptState.ASSIGNED, leased_at=wall)


def _moved(task: TaskRow, state: TaskState, **fields: Any) -> TaskRow:
    check_move(task.state, state)
    return replace(task, state=state, **fields)


def _with(task: TaskRow, number: int, state: AttemptState, **fields: Any) -> TaskRow:
    """The task with one of its attempts moved."""
    return replace(task, attempts=_moved_on(task.attempts, number, task.attempts[number - 1].state, state, **fields))


def _moved_on(
    attempts: tuple[AttemptRow, ...], number: int, now: AttemptState, state: AttemptState, **fields: Any
) -> tuple[AttemptRow, ...]:
    """A task's attempts, with the one that stands at `now`, whatever its row says, moved to `state`."""
    check_move(now, state)
    moved = replace(attempts[number - 1], state=state, **fields)
    return (moved,) if len(attempts) == 1 else (*attempts[: number - 1], moved, *attempts[number:])


def _out(task: TaskRow, wall: float, but: int, reason: str) -> TaskRow:
    """The task with every lease that is out, but that of one attempt, lost."""
    if task.rival is None and (task.state is not TaskState.LEASED or _number(task, task.token) == but):
        return task
    for lease in leases_of(task):
        if lease.attempt != but:
            task = _with(task, lease.attempt, AttemptState.LOST, ended_at=wall, error=reason)
    return task


def _left_to_other(task: TaskRow, token: bytes) -> TaskRow:
    """One of two leases is over: the other one is the task's lease from here on."""
    rival = task.rival
    if rival is None or rival.token == token:
        return replace(task, rival=None)
    return replace(task, worker=rival.worker, token=rival.token, expires=rival.expires, rival=None)


def _number(task: TaskRow, token: bytes) -> int:
    """The attempt under a token; the newest where there is none."""
    for attempt in reversed(task.attempts):
        if attempt.token == token:
            return attempt.number
    return len(task.attempts)


# ---- jobs ------------------------------------------------------------------------------------------------------------


def started(job: JobRow, wall: float) -> JobRow:
    """A task of the job was leased."""
    if job.state is not JobState.QUEUED:
        return job
    check_move(job.state, JobState.RUNNING)
    return replace(job, state=JobState.RUNNING, started_at=wall)


def advanced(job: JobRow, task: TaskRow, checking_s: float, failed_calls: int) -> JobRow:
    """A task of the job is done."""
    kind = task.evidence.kind if task.evidence else "unchecked"
    start, stop = task.spec.grains
    return replace(
        job,
        grains_done=job.grains_done + stop - start,
        tasks_done=job.tasks_done + 1,
        evidence={**job.evidence, kind: job.evidence.get(kind, 0) + 1},
        checking_s=job.checking_s + checking_s,
        failed_calls=job.failed_calls + failed_calls,
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
        result=None if state is JobState.CANCELLED else result,
        error=error,
        combining_s=combining_s,
    )


def failure_of(task: TaskRow) -> Problem:
    """Why a job fails whose task failed for good: the last attempt's own words."""
    last = next((each for each in reversed(task.attempts) if each.error), task.attempts[-1])
    if task.votes and not last.error:
        workers = ", ".join(vote.worker for vote in task.votes)
        return problem(
            NotReproducible(
                f"task {task.number} came out differently on {len(task.votes)} workers ({workers})",
                "each result is attached; a task must give the same result wherever it runs",
            )
        )
    if task.spec.once and task.losses:
        return problem(
            TaskLost(
                f"call {task.spec.grains[0]} was lost with its worker {last.worker}: {last.error}",
                "it may have run; see what it did, then make the call again yourself",
            )
        )
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
