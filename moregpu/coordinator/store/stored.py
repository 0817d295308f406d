"""How rows look on the disk: the part that never changes, the part that does, and how each becomes bytes.

Arrays in field order: a later version appends fields with defaults, and removes or reorders none.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from moregpu.coordinator.store.protocol import AttemptRow, JobRow, Rival, TaskRow, Vote
from moregpu.coordinator.store.sealing import RowSealer
from moregpu.errors import StateRefused
from moregpu.jobs import Evidence, JobState, TaskState, Tensor
from moregpu.wire.api import Problem, ResultManifest
from moregpu.workloads import JobSpec
from moregpu.workloads.protocol import Plan, TaskSpec


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """What is kept as one text."""


class _JobBody(_Stored, frozen=True, array_like=True):
    spec: JobSpec
    plan: Plan
    digest_key: bytes
    created_at: float
    submitter_name: str = ""
    submitter_groups: tuple[str, ...] = ()
    wording: bytes = b""


class _JobProgress(_Stored, frozen=True, array_like=True):
    state: JobState
    started_at: float | None
    ended_at: float | None
    cursor: int
    grains_done: int
    tasks_total: int
    tasks_done: int
    evidence: dict[str, int]
    result: ResultManifest | None
    error: Problem | None
    checking_s: float
    combining_s: float
    purged: bool
    failed_calls: int = 0


class _TaskBody(_Stored, frozen=True, array_like=True):
    number: int
    spec: TaskSpec


class _TaskProgress(_Stored, frozen=True, array_like=True):
    state: TaskState
    attempts: tuple[AttemptRow, ...]
    failures: int
    losses: int
    failed_on: tuple[str, ...]
    worker: str | None
    token: bytes
    outputs: dict[str, Tensor]
    evidence: Evidence | None
    rival: Rival | None = None
    votes: tuple[Vote, ...] = ()


encode = msgspec.msgpack.Encoder().encode
_job_body = msgspec.msgpack.Decoder(_JobBody)
_job_progress = msgspec.msgpack.Decoder(_JobProgress)
_task_body = msgspec.msgpack.Decoder(_TaskBody)
_task_progress = msgspec.msgpack.Decoder(_TaskProgress)

Row = TypeVar("Row")


def decode(decoder: msgspec.msgpack.Decoder[Row], data: bytes, what: str) -> Row:
    """Decode a text of the database; raises `StateRefused` when it is not what it should be."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise StateRefused(
            f"the pool's database holds a {what} that this version cannot read: {error}",
            "update MoreGPU, or restore the state folder from a backup",
        ) from error


# ---- jobs ------------------------------------------------------------------------------------------------------------


def job_body(sealer: RowSealer, job: JobRow) -> bytes:
    """The part of a job that changes only when it is purged."""
    body = _JobBody(
        job.spec, job.plan, job.digest_key, job.created_at, job.submitter_name, job.submitter_groups, job.wording
    )
    return sealer.seal("job.body", job.id, encode(body))


def same_job_body(old: JobRow, new: JobRow) -> bool:
    """Whether `job_body` need not be written again. By identity: rows are changed by `replace`."""
    return old.spec is new.spec and old.plan is new.plan and old.digest_key is new.digest_key


def job_progress(sealer: RowSealer, job: JobRow) -> bytes:
    """The part of a job that every step changes."""
    progress = _JobProgress(
        job.state,
        job.started_at,
        job.ended_at,
        job.cursor,
        job.grains_done,
        job.tasks_total,
        job.tasks_done,
        job.evidence,
        job.result,
        job.error,
        job.checking_s,
        job.combining_s,
        job.purged,
        job.failed_calls,
    )
    return sealer.seal("job.progress", job.id, encode(progress))


def open_job(
    sealer: RowSealer, id: str, submitter: str, key: str, kind: str, body_text: bytes, progress_text: bytes
) -> JobRow:
    """Put a job together again."""
    body = decode(_job_body, sealer.open("job.body", id, body_text), "job")
    progress = decode(_job_progress, sealer.open("job.progress", id, progress_text), "job")
    return JobRow(
        id=id,
        submitter=submitter,
        kind=kind,
        spec=body.spec,
        plan=body.plan,
        digest_key=body.digest_key,
        created_at=body.created_at,
        submitter_name=body.submitter_name,
        submitter_groups=body.submitter_groups,
        wording=body.wording,
        idempotency_key=key,
        state=progress.state,
        started_at=progress.started_at,
        ended_at=progress.ended_at,
        cursor=progress.cursor,
        grains_done=progress.grains_done,
        tasks_total=progress.tasks_total,
        tasks_done=progress.tasks_done,
        evidence=progress.evidence,
        result=progress.result,
        error=progress.error,
        checking_s=progress.checking_s,
        combining_s=progress.combining_s,
        purged=progress.purged,
        failed_calls=progress.failed_calls,
    )


# ---- tasks -----------------------------------------------------------------------------------------------------------


def task_body(sealer: RowSealer, task: TaskRow) -> bytes:
    """The part of a task that changes only when its job is purged."""
    return sealer.seal("task.body", task.id, encode(_TaskBody(task.number, task.spec)))


def task_progress(sealer: RowSealer, task: TaskRow) -> bytes:
    """The part of a task that every step changes; when its lease ends is no part of it."""
    progress = _TaskProgress(
        task.state,
        task.attempts,
        task.failures,
        task.losses,
        task.failed_on,
        task.worker,
        task.token,
        task.outputs,
        task.evidence,
        task.rival,
        task.votes,
    )
    return sealer.seal("task.progress", task.id, encode(progress))


def open_task(sealer: RowSealer, id: str, job: str, body_text: bytes, progress_text: bytes) -> TaskRow:
    """Put a task together again."""
    body = decode(_task_body, sealer.open("task.body", id, body_text), "task")
    progress = decode(_task_progress, sealer.open("task.progress", id, progress_text), "task")
    return TaskRow(
        id=id,
        job=job,
        number=body.number,
        spec=body.spec,
        state=progress.state,
        attempts=progress.attempts,
        failures=progress.failures,
        losses=progress.losses,
        failed_on=progress.failed_on,
        worker=progress.worker,
        token=progress.token,
        outputs=progress.outputs,
        evidence=progress.evidence,
        rival=progress.rival,
        votes=progress.votes,
    )
