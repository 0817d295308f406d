"""A job as a client of MoreGPU 1.x sees it, with its output as base64 made while it is sent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping
from math import prod
from typing import Literal

import msgspec

from moregpu.coordinator.api.ask import Answer, Stream
from moregpu.coordinator.api.compat.shown import lines_of
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.protocol import OpenTensor
from moregpu.coordinator.store.protocol import JobRow, TaskRow
from moregpu.coordinator.views import is_checked
from moregpu.jobs import JobState, TaskState
from moregpu.workloads import KernelSpec

WINDOW_BYTES = 3 << 18
"""Read and encoded at once: a multiple of three, so that pieces of base64 join."""

_CLOSED = b'"\n}'

Status = Literal["queued", "running", "done", "failed"]
_STATUS: dict[JobState, Status] = {
    JobState.QUEUED: "queued",
    JobState.RUNNING: "running",
    JobState.DONE: "done",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "failed",
}


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One task."""

    worker: str
    backend: str
    work: int
    ms: float


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job. Times are milliseconds. What is known when it is done is not there before, nor of one that failed."""

    id: str
    status: Status
    kernel: str
    size: int
    sealed: Literal[True] | None = None
    submitted_at: int
    data_mode: bool | None = None
    verified: bool | None = None
    gflops: float | None = None
    ms: float | None = None
    shards: list[Shard] | None = None
    signed: bool | None = None
    out_len: int | None = None
    has_output: bool | None = None
    error: str | None = None
    poll: str | None = None
    note: str | None = None


async def record_of(services: Services, job: JobRow, backends: Mapping[str, str], *, listed: bool = False) -> Record:
    """The record of a job; `listed`: says whether there is an output."""
    done = job.state is JobState.DONE
    tasks = await services.desk.store.tasks(job.id) if done else []
    output = output_of(services, job)
    seconds = max(job.ended_at - job.created_at, 1e-6) if done and job.ended_at is not None else None
    operation = operation_of(job)
    return Record(
        id=job.id,
        status=_STATUS[job.state],
        kernel=operation,
        size=_size(job),
        sealed=True,
        submitted_at=round(job.created_at * 1000),
        data_mode=not isinstance(job.spec, KernelSpec) or job.spec.size is None,
        verified=is_checked(job, tasks) if done else None,
        gflops=job.plan.cost.flops / seconds / 1e9 if operation == "matmul" and seconds else None,
        ms=seconds * 1000 if seconds else None,
        shards=[_shard(task, backends) for task in tasks if task.state is TaskState.DONE] if done else None,
        signed=done or None,  # nothing is accepted without a verified signature
        out_len=None if output is None else prod(output.shape),
        has_output=(output is not None) if listed else None,
        error=_error(job),
    )


def operation_of(job: JobRow) -> str:
    """What 1.x calls the kernel; 1.x knows no other kind of job, and is shown its name."""
    return job.spec.operation if isinstance(job.spec, KernelSpec) else job.kind


def output_of(services: Services, job: JobRow) -> OpenTensor | None:
    """A kernel's one output, where it is kept."""
    if job.state is not JobState.DONE or job.purged or job.result is None or not isinstance(job.spec, KernelSpec):
        return None
    return next((services.desk.open_tensor(tensor) for tensor in job.result.outputs.values()), None)


def whole_record(services: Services, record: Record, output: OpenTensor | None) -> Answer | Stream:
    """The record with its output; a large one never stands in memory whole."""
    head = lines_of(record)
    if output is None:
        return Answer(body=head)
    opened = head.removesuffix(b"\n}") + b',\n  "output": "'
    length = len(opened) + 4 * -(-output.size_bytes // 3) + len(_CLOSED)
    return Stream(parts=_encoded(services, opened, output), length=length, media_type="application/json")


async def _encoded(services: Services, opened: bytes, output: OpenTensor) -> AsyncGenerator[bytes]:
    yield opened
    for start in range(0, output.size_bytes, WINDOW_BYTES):
        stop = min(start + WINDOW_BYTES, output.size_bytes)
        if stop - start <= 64 * 1024:
            yield b64encode(output.read(start, stop))
        else:
            yield await services.offload(lambda start=start, stop=stop: b64encode(output.read(start, stop)))
    yield _CLOSED


def _size(job: JobRow) -> int:
    """The size that was asked for; of one's own arrays the rows of a product, else the elements."""
    if not isinstance(job.spec, KernelSpec):
        return job.plan.grains
    if job.spec.size is not None:
        return job.spec.size
    planned = next(iter(job.plan.outputs.values()))
    return planned.shape[0] if job.spec.operation == "matmul" else prod(planned.shape)


def _shard(task: TaskRow, backends: Mapping[str, str]) -> Shard:
    accepted = next((attempt for attempt in reversed(task.attempts) if attempt.seconds is not None), None)
    worker = accepted.worker if accepted is not None else task.worker or ""
    return Shard(
        worker=worker,
        backend=backends.get(worker, "cpu"),
        work=sum(prod(planned.shape) for planned in task.spec.outputs.values()),
        ms=round(1000.0 * (accepted.seconds or 0.0), 3) if accepted is not None else 0.0,
    )


def _error(job: JobRow) -> str | None:
    if job.state is JobState.CANCELLED:
        return "cancelled"
    if job.state is not JobState.FAILED:
        return None
    return (job.error.detail or job.error.title) if job.error is not None else "failed"
