"""Rows and a scheduler for the store's tests, as small as they can be and of the real types."""

from __future__ import annotations

import itertools
from typing import Any

from msgspec.structs import replace

from moregpu.coordinator.store.protocol import (
    Accepted,
    BlobRow,
    Candidates,
    Choice,
    Failed,
    FleetWorker,
    InviteRow,
    JobRow,
    Lease,
    SignedBatch,
    TaskRow,
    Voted,
    WorkerRow,
)
from moregpu.ids import job_id, named
from moregpu.jobs import Blob, Evidence, JobState, Planned, Tensor
from moregpu.wire.api import ResultManifest
from moregpu.wire.messages import Device, LeaseRef, TaskError
from moregpu.wire.statement import digest
from moregpu.workloads import JobSpec
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu.workloads.protocol import Cost, Needs, Plan, TaskSpec, WorkerProfile

CPU = Device(id="cpu", kind="cpu", name="Test CPU", memory_bytes=1 << 33, cores=2)


class TestClock:
    """Moves when it is told to."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1000.0
        self.epoch = 1_800_000_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.epoch

    def forward(self, seconds: float) -> None:
        self.now += seconds
        self.epoch += seconds


class CountingEntropy:
    """Random bytes of a test: different each time, the same each run."""

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, size: int) -> bytes:
        self.drawn += 1
        return digest(self.drawn.to_bytes(8, "big"))[:size].ljust(size, b"\1")


def counting_entropy() -> CountingEntropy:
    return CountingEntropy()


_births = itertools.count(1)


def blob(number: int, size_bytes: int = 1000) -> Blob:
    return Blob(digest=f"{number:064x}", key=bytes([number % 256]) * 32, size_bytes=size_bytes)


def blob_row(of: Blob, principal: str = "alice") -> BlobRow:
    return BlobRow(digest=of.digest, sealed_bytes=of.size_bytes + 80, principal=principal, created_at=1_800_000_000.0)


def job(
    *,
    submitter: str = "alice",
    grains: int = 4,
    at: float = 1_800_000_000.0,
    id: str = "",
    key: str = "",
    spec: JobSpec | None = None,
    inputs: tuple[Blob, ...] = (),
    after: tuple[str, ...] = (),
    priority: int = 0,
    retries: int = 4,
    grain_flops: float = 1e9,
) -> JobRow:
    tensors = {f"a{n}": Tensor(dtype="float32", shape=(250,), data=each) for n, each in enumerate(inputs)}
    birth = next(_births)
    spec = spec or KernelSpec(
        operation="relu", inputs=tensors, after=after, priority=priority, retries=retries, name=f"job {birth}"
    )
    plan = Plan(
        kind="kernel",
        grains=grains,
        cost=Cost(flops=grain_flops * grains, speed_key="relu.float32"),
        needs=Needs(kind="kernel"),
        layout={"rows": grains},
        summary="test",
        task_memory_bytes=1 << 20,
    )
    return JobRow(
        id=id or job_id(at + birth / 1000, birth.to_bytes(10, "big")),
        submitter=submitter,
        kind="kernel",
        spec=spec,
        plan=plan,
        digest_key=bytes(range(32)),
        state=JobState.QUEUED,
        created_at=at,
        idempotency_key=key,
    )


def worker(id: str = "w-1", speed: float = 20e9, **fields: Any) -> FleetWorker:
    row = FleetWorker(
        id=id,
        owner="owner",
        groups=(),
        kinds=("kernel",),
        devices=(CPU,),
        profile=WorkerProfile(speeds={"relu.float32": speed}),
    )
    return replace(row, **fields)


def task_spec(row: JobRow, start: int, stop: int) -> TaskSpec:
    return TaskSpec(
        kind="kernel",
        program=b"relu",
        parameters=b"\x80",
        precision="float32",
        grains=(start, stop),
        inputs=dict(row.spec.inputs),
        outputs={"c": Planned(dtype="float32", shape=(stop - start,))},
        cost=Cost(flops=row.plan.grain_amount * (stop - start), speed_key="relu.float32"),
    )


def one_by_one(candidates: Candidates, worker: FleetWorker, slots: int, now: float) -> list[Choice]:
    """A scheduler that takes what came back, then single grains, submitter by submitter."""
    picks: list[Choice] = []
    for submitter in candidates.submitters():
        for candidate in candidates.of(submitter):
            for task in candidate.waiting:
                picks.append(Choice(job=candidate.job.id, task=task.id, device="cpu"))
            for grain in range(candidate.job.cursor, candidate.job.plan.grains):
                picks.append(Choice(job=candidate.job.id, cut=task_spec(candidate.job, grain, grain + 1), device="cpu"))
            if len(picks) >= slots:
                return picks[:slots]
    return picks[:slots]


def statement_of(lease: Lease) -> bytes:
    return f"{lease.task.id}/{lease.attempt}".encode() + lease.token


def accepted(lease: Lease, index: int = 0, **fields: Any) -> Accepted:
    row = Accepted(
        ref=lease.ref,
        outputs={"c": Tensor(dtype="float32", shape=(1,), data=bytes(4))},
        evidence=Evidence(kind="recomputed", worst_ratio=0.5),
        statement=statement_of(lease),
        index=index,
        seconds=0.25,
        checking_s=0.01,
    )
    return replace(row, **fields)


def voted(lease: Lease, index: int = 0, *, last: bool = False) -> Voted:
    outputs = {"c": Tensor(dtype="float32", shape=(1,), data=bytes(4))}
    return Voted(ref=lease.ref, outputs=outputs, statement=statement_of(lease), index=index, seconds=0.25, last=last)


def batch(worker: str, *leases: Lease) -> SignedBatch:
    return SignedBatch(
        worker=worker, digests=tuple(digest(statement_of(lease)) for lease in leases), signature=bytes(64)
    )


def failed(ref: LeaseRef, **fields: Any) -> Failed:
    return replace(Failed(ref=ref, error=TaskError(code="engine-error", message="boom"), seconds=0.1), **fields)


def worker_row(id: str = "w-1", **fields: Any) -> WorkerRow:
    row = WorkerRow(id=id, wi_pub=digest(id.encode()), ws_pub=bytes(32), ws_number=0, name=id, owner="owner")
    return replace(row, **fields)


def invite(id: str = "", **fields: Any) -> InviteRow:
    row = InviteRow(
        id=id or named("i", bytes(16)),
        secret_hash=b"s" * 32,
        owner="ann",
        expires_at=1_800_003_600.0,
        created_at=1_800_000_000.0,
    )
    return replace(row, **fields)


def manifest(*blobs: Blob) -> ResultManifest:
    tensors = {f"c{n}": Tensor(dtype="float32", shape=(250,), data=each) for n, each in enumerate(blobs)}
    return ResultManifest(outputs=tensors or {"c": Tensor(dtype="float32", shape=(1,), data=bytes(4))}, digest="00")


def lease_of(job: JobRow, task: TaskRow) -> Lease:
    """The lease that is out on a task."""
    return Lease(job=job, task=task, attempt=len(task.attempts), token=task.token)
