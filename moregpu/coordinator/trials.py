"""What a new worker must show before work: a canary that is exact bit for bit, then how fast it is by our own clock.

Trials are ordinary assignments that live in the hub alone: they are leased by nobody's job and kept nowhere, signed and
judged like any other. A worker cannot tell them from work.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from moregpu.coordinator.decisions import Trial
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.store.protocol import AttemptRow, JobRow, Lease, TaskRow, WorkerRow
from moregpu.ids import job_id, task_id
from moregpu.jobs import AttemptState, JobState, TaskState, Tensor
from moregpu.workloads import JobSpec, KernelSpec, kind_of, workload
from moregpu.workloads.protocol import FleetSummary, WorkerProfile

CANARY_SIDE = 16
CANARY_LARGEST = 8
"""Integers up to this: sums of so many products of them are exact in float32 in any order.

A small canary, since the two messages that carry one are the largest that most sessions ever see, and a TLS connection
keeps buffers of that size for good."""

LADDER: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...] = (
    ("matmul", (256, 512, 1024), ("matmul",)),
    ("vector_add", (1 << 18, 1 << 20), ("vector_add", "vector_mul", "saxpy", "scale", "relu")),
    ("gelu", (1 << 18, 1 << 20), ("gelu",)),
    ("softmax", (1 << 11, 1 << 13), ("softmax", "layernorm")),
)
"""Operation, benchmark sizes from small to large, and the operations whose first estimate this is."""

ENOUGH = 0.1
"""A rung that took this share of `measure_s` is the last one: the next would take several times as long."""

LEAST_S = 2e-4
"""No measurement is believed to be shorter: what is left after the round trip may be noise."""

TRIAL_S = 30.0
"""A trial that is not back by then is given up; the worker goes on with nominal speeds."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A trial ready to be sent: rows that look like a leased task's, and what to expect."""

    lease: Lease
    trial: Trial


def canary(worker: str, entropy: Callable[[int], bytes], wall: float) -> Given:
    """A product of small integers."""
    shape = (CANARY_SIDE, CANARY_SIDE)
    count = CANARY_SIDE * CANARY_SIDE
    a, b = (
        (np.frombuffer(entropy(count), np.uint8).reshape(shape) % (2 * CANARY_LARGEST + 1)).astype(np.int64)
        - CANARY_LARGEST
        for _ in range(2)
    )
    spec = KernelSpec(
        operation="matmul",
        inputs={
            name: Tensor(dtype="float32", shape=shape, data=values.astype("<f4").tobytes())
            for name, values in (("a", a), ("b", b))
        },
    )
    lease = _lease(worker, spec, entropy, wall)
    exact = {name: (a @ b).astype("<f4").tobytes() for name in lease.task.spec.outputs}
    return Given(lease=lease, trial=Trial(exact=exact))


def measurement(worker: str, operation: str, size: int, entropy: Callable[[int], bytes], wall: float) -> Given:
    """A benchmark task: its data is made where it runs."""
    seed = int.from_bytes(entropy(7), "big")
    spec = msgspec.convert(
        {"kind": "kernel", "operation": operation, "size": size, "seed": seed, "check": "full"}, KernelSpec
    )
    lease = _lease(worker, spec, entropy, wall)
    return Given(lease=lease, trial=Trial(speed_key=lease.task.spec.cost.speed_key))


def speed_keys(measured: str, others: tuple[str, ...]) -> list[str]:
    """The keys that a measurement under `measured` (`matmul.float32`) gives a first estimate for."""
    _, _, dtype = measured.partition(".")
    return [measured, *(f"{operation}.{dtype}" for operation in others)]


def trials_due(config: DeskConfig, row: WorkerRow, before: WorkerRow | None) -> bool:
    """Whether a worker needs its trials: never tried, or another driver than before.

    A machine too small for any measurement was tried all the same: thousands that return at once must not queue up for
    trials that tell nothing new.
    """
    if not config.measure:
        return False
    return before is None or not (row.tried or row.speeds) or _drivers(before) != _drivers(row)


def _drivers(row: WorkerRow) -> set[tuple[str, str, str]]:
    return {(device.id, device.name, device.driver) for device in row.devices}


def _lease(worker: str, spec: JobSpec, entropy: Callable[[int], bytes], wall: float) -> Lease:
    kind = workload(kind_of(spec))
    plan = kind.plan(spec, FleetSummary())
    # One grain, however large: the budget has no end.
    task_spec = kind.cut(spec, plan, 0, WorkerProfile(memory_budget_bytes=1 << 40), float("inf"))
    token = entropy(16)
    job = JobRow(
        id=job_id(wall, entropy(10)),
        submitter="",
        kind=kind_of(spec),
        spec=spec,
        plan=plan,
        digest_key=entropy(32),
        state=JobState.RUNNING,
        created_at=wall,
        cursor=task_spec.grains[1],
    )
    attempt = AttemptRow(number=1, worker=worker, token=token, state=AttemptState.ASSIGNED, leased_at=wall)
    task = TaskRow(
        id=task_id(wall, entropy(10)),
        job=job.id,
        number=0,
        state=TaskState.LEASED,
        spec=task_spec,
        attempts=(attempt,),
        worker=worker,
        token=token,
    )
    return Lease(job=job, task=task, attempt=1, token=token)
