"""The door that Prometheus scrapes: what is counted, and what is so at the moment of asking."""

from __future__ import annotations

from collections.abc import Iterable

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.fleetnow import FleetNow, backend_of, duty_of, fleet_now
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.metrics import CONTENT_TYPE, Labels, family


async def metrics(ask: Ask) -> Answer:
    """Prometheus' text format. Names of MoreGPU 1.x stay; `docs/operations.md` lists all."""
    services = ask.services
    now = await fleet_now(services)
    lines = [*_gauges(services, now), *services.measures.families(), *_per_worker(services, now)]
    return Answer(body=("\n".join(lines) + "\n").encode(), media_type=CONTENT_TYPE)


def _gauges(services: Services, now: FleetNow) -> Iterable[str]:
    measures = services.measures
    for name, help, value in (
        ("moregpu_fleet", "Connected workers", len(now.workers)),
        ("moregpu_gpu_slots", "Connected workers with a GPU", now.gpu_slots),
        ("moregpu_cpu_slots", "Connected workers without a GPU", now.cpu_slots),
        ("moregpu_busy", "Workers that compute for the pool now", now.busy),
        ("moregpu_queue_depth", "Jobs of which nothing runs yet", now.queue_depth),
        ("moregpu_jobs_running", "Jobs that run", now.running),
        ("moregpu_avg_user_util", "Load by the machines' own users, 0 to 1, mean over workers", now.user_load),
        ("moregpu_avg_pool_duty", "Share of time that devices give the pool, 0 to 1, mean over workers", now.duty),
        ("moregpu_blob_bytes", "Bytes of sealed blobs on the coordinator's disk", services.blobs.used_bytes()),
        ("moregpu_blob_free_bytes", "Bytes free on that disk", services.blobs.free_bytes()),
        ("moregpu_start_time_seconds", "When the coordinator started, UTC epoch", services.pool.started_at),
    ):
        yield from family(name, help, "gauge", [({}, float(value))])
    for name, help, value in (
        ("moregpu_total_shards", "Tasks whose result was accepted", measures.tasks_done.value()),
        ("moregpu_tokens_served", "Tokens of language models; none in this version", 0.0),
        ("moregpu_worker_moved_bytes_total", "Sealed bytes to and from workers", float(services.traffic.total_bytes())),
    ):
        yield from family(name, help, "counter", [({}, value)])
    version = {"version": services.pool.version}
    yield from family("moregpu_build_info", "Version of the coordinator", "gauge", [(version, 1.0)])


def _per_worker(services: Services, now: FleetNow) -> Iterable[str]:
    measures = services.measures
    total = measures.units.value() or 1.0
    labels: list[tuple[str, Labels]] = [
        (worker.id, {"worker": worker.id, "backend": backend_of(worker)}) for worker in now.workers
    ]

    def counted(name: str, help: str, of: object) -> Iterable[str]:
        counter = getattr(measures, str(of))
        return family(name, help, "counter", [(each, counter.value(id)) for id, each in labels])

    yield from counted("moregpu_worker_units", "Elements of output computed, by worker", "worker_units")
    yield from counted("moregpu_worker_ops", "Arithmetic operations computed, by worker", "worker_operations")
    yield from counted("moregpu_worker_shards", "Tasks accepted, by worker", "worker_tasks")
    yield from counted("moregpu_worker_errors", "Attempts that failed or were wrong, by worker", "worker_errors")
    yield from counted("moregpu_worker_busy_seconds_total", "Time in tasks, by worker", "worker_seconds")
    tokens = [(each, 0.0) for _, each in labels]
    yield from family("moregpu_worker_tokens", "Tokens of language models, by worker", "counter", tokens)
    shares = [(each, measures.worker_units.value(id) / total) for id, each in labels]
    yield from family("moregpu_worker_share", "Share of all units computed, 0 to 1", "gauge", shares)
    loads = [(each, worker.user_load) for (_, each), worker in zip(labels, now.workers, strict=True)]
    yield from family("moregpu_worker_user_util", "Load by the machine's own user, 0 to 1", "gauge", loads)
    duties = [(each, duty_of(worker)) for (_, each), worker in zip(labels, now.workers, strict=True)]
    yield from family("moregpu_worker_pool_duty", "Share of time given to the pool, 0 to 1", "gauge", duties)
    trips = [
        (each, worker.round_trip_s)
        for (_, each), worker in zip(labels, now.workers, strict=True)
        if worker.round_trip_s is not None
    ]
    yield from family("moregpu_worker_round_trip_seconds", "Round trip of a heartbeat", "gauge", trips)
    names = [({**each, "name": worker.name}, 1.0) for (_, each), worker in zip(labels, now.workers, strict=True)]
    yield from family("moregpu_worker_info", "Names of the workers, to join with", "gauge", names)
