"""The connected workers at one moment, in the words of MoreGPU 1.x: for `/metrics`, `/gpu`, `/device`, `/workers`."""

from __future__ import annotations

import msgspec

from moregpu.coordinator.api.services import Services
from moregpu.wire.api import WorkerView
from moregpu.wire.schedule import OUTSIDE


class FleetNow(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and averages over the connected workers."""

    workers: list[WorkerView]
    gpu_slots: int
    cpu_slots: int
    busy: int
    queue_depth: int
    running: int
    user_load: float
    duty: float


async def fleet_now(services: Services) -> FleetNow:
    """As it is now; counts of jobs may be a second old."""
    workers = [view for view in await services.desk.workers() if view.connected_at is not None]
    load = await services.load.now()
    gpus = sum(backend_of(worker) == "gpu" for worker in workers)
    return FleetNow(
        workers=workers,
        gpu_slots=gpus,
        cpu_slots=len(workers) - gpus,
        busy=sum(worker.leases > 0 for worker in workers),
        queue_depth=load.jobs_queued,
        running=load.jobs_running,
        user_load=_mean([worker.user_load for worker in workers]),
        duty=_mean([duty_of(worker) for worker in workers]),
    )


def backend_of(worker: WorkerView) -> str:
    """Whether one of its devices is a GPU: "gpu" or "cpu"."""
    return "gpu" if any(device.kind == "gpu" for device in worker.devices) else "cpu"


def duty_of(worker: WorkerView) -> float:
    """What its busiest device gives."""
    return max(worker.duty.values(), default=0.0)


def is_outside_schedule(worker: WorkerView) -> bool:
    """Whether it rests by its schedule, as it says itself."""
    return OUTSIDE in worker.reason


def is_paused(worker: WorkerView) -> bool:
    """Whether it is kept from work until somebody, or the hour, changes that: what 1.x calls paused."""
    kept = worker.state in ("paused", "quarantined", "pending")
    return kept or worker.limits.paused or is_outside_schedule(worker)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
