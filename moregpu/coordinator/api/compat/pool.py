"""The pool as one virtual GPU, its workers and its log, as MoreGPU 1.x shows them."""

from __future__ import annotations

from typing import Any

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.compat.body import ControlBody, number, read_body, said
from moregpu.coordinator.api.compat.spec import KERNELS
from moregpu.coordinator.api.fleetnow import backend_of, duty_of, fleet_now
from moregpu.coordinator.api.services import Services
from moregpu.errors import InvalidRequest, NotFound
from moregpu.wire.api import Event, WorkerChange, WorkerView

MAX_MATMUL = 16_384
MAX_ELEMENTS = 10**9
MAX_INPUT_ELEMENTS = 48 << 20
LOG_LINES = 200
_LOOK_BACK = 1_000

ENDPOINTS = {
    "GET /health": "liveness (public)",
    "GET /whoami": "your address (public)",
    "GET /cert.pem": "the coordinator's certificate (public)",
    "GET /help": "this (public)",
    "GET /device": "the pool as one device",
    "GET /gpu": "the pool's load and totals",
    "GET /workers": "connected workers",
    "POST /workers/ID/control": "pause, resume, remove; ceil, schedule, nick (admin)",
    "POST /submit": "run a kernel: {kernel, size} or {kernel, a, b, M, N, K, scalar}; ?async=1 does not wait",
    "GET /jobs": "the newest 50 jobs",
    "GET /jobs/ID": "one job, with its output",
    "GET /logs": "the last 200 lines",
    "POST /weights": "keep a weight: {id, data, rows, cols, dtype}",
    "GET /weights": "weights that are kept",
    "GET /metrics": "Prometheus metrics",
    "GET /v1/openapi.json": "the native API, which does more (public)",
}


async def whoami(ask: Ask) -> Answer:
    """The address that the caller comes from."""
    client = ask.scope.get("client")
    return ask.answer({"ip": str(client[0]) if client else ""})


async def certificate(ask: Ask) -> Answer:
    """The certificate, for `SSL_CERT_FILE`; compare its SHA-256 with what the coordinator printed."""
    services = ask.services
    pin = services.certificate_sha256.hex().encode()
    return Answer(
        body=services.certificate_pem,
        media_type="application/x-pem-file",
        headers=((b"x-moregpu-cert-sha256", pin),),
    )


async def help(ask: Ask) -> Answer:
    """What there is to call."""
    return ask.answer(
        {
            "kernels": list(KERNELS),
            "endpoints": ENDPOINTS,
            "workerSchedule": "always, or hours of the worker's own clock: 22:00-07:00",
            "auth": "Authorization: Bearer <token>, or x-admin-token: <token>",
        }
    )


async def device(ask: Ask) -> Answer:
    """The pool as one device."""
    services = ask.services
    now, measures = await fleet_now(services), services.measures
    return ask.answer(
        {
            "name": f"{services.settings.name} (MoreGPU)",
            "kind": "virtual-gpu",
            "backends": sorted({backend_of(worker) for worker in now.workers}),
            "vendors": sorted({device.name for worker in now.workers for device in worker.devices}),
            "slots": len(now.workers),
            "gpuSlots": now.gpu_slots,
            "cpuSlots": now.cpu_slots,
            "busy": now.busy,
            "kernels": list(KERNELS),
            "limits": {
                "maxMatmulDim": MAX_MATMUL,
                "maxElements": MAX_ELEMENTS,
                "maxInputElements": MAX_INPUT_ELEMENTS,
            },
            "queue": {"depth": now.queue_depth, "running": now.running},
            "throughput": {
                "totalOps": int(measures.operations.value()),
                "totalUnits": int(measures.units.value()),
                "totalShards": int(measures.tasks_done.value()),
                "tokensServed": 0,
                "trend": measures.trend(),
            },
            "seal": "AES-256-GCM",
            "capabilities": {
                "dataMode": True,
                "verifiedResults": True,
                "signedResults": True,
                "adaptiveThrottle": True,
                "asyncSubmit": True,
                "sealedWire": True,
                "tokenIsolated": True,
            },
        }
    )


async def gpu(ask: Ask) -> Answer:
    """The pool's load and totals."""
    services = ask.services
    now, measures = await fleet_now(services), services.measures
    return ask.answer(
        {
            "device": f"{services.settings.name} (MoreGPU)",
            "slots": len(now.workers),
            "gpuSlots": now.gpu_slots,
            "cpuSlots": now.cpu_slots,
            "busy": now.busy,
            "avgUserUtil": now.user_load,
            "avgPoolDuty": now.duty,
            "queueDepth": now.queue_depth,
            "totalUnits": int(measures.units.value()),
            "totalShards": int(measures.tasks_done.value()),
            "totalOps": int(measures.operations.value()),
            "totalTokens": 0,
            "poolTrend": measures.trend(),
            "perKernel": {kernel: int(measures.per_kernel.value(kernel)) for kernel in KERNELS},
            "sealed": True,
        }
    )


async def workers(ask: Ask) -> Answer:
    """Connected workers."""
    now = await fleet_now(ask.services)
    wall = ask.services.clock.wall()
    return ask.answer([_worker(ask.services, worker, wall) for worker in now.workers])


async def control(ask: Ask) -> Answer:
    """Pause, resume, remove (which revokes); limit, schedule, rename: what is named changes."""
    body = await read_body(ask, ControlBody)
    desk = ask.services.desk
    try:
        worker = await desk.find_worker(ask.params["id"])
    except NotFound as error:
        raise NotFound("worker not found") from error
    if body.action not in (None, "pause", "resume", "remove"):
        raise InvalidRequest(f"unknown action {said(body.action)}", "pause, resume or remove")
    ceiling = number(body.ceil, "ceil", worker.limits.ceiling)
    if body.ceil is not None and not 0.05 <= ceiling <= 1.0:
        raise InvalidRequest(f"ceil={body.ceil} is not within 0.05 and 1")
    if body.action == "remove":
        await desk.revoke_worker(ask.who, worker.id)
        return ask.answer(_controlled(worker, removed=True))
    nick = (body.nick or "").strip()[:100]
    change = WorkerChange(
        action=body.action,  # pyright: ignore[reportArgumentType] — remove is done
        name=nick or None,
        ceiling=None if body.ceil is None else ceiling,
        schedule=None if body.schedule is None else (body.schedule.strip() or "always"),
    )
    return ask.answer(_controlled(await desk.change_worker(ask.who, worker.id, change)))


async def logs(ask: Ask) -> Answer:
    """The last 200 lines of what happened, oldest first; a submitter's own jobs, and the fleet."""
    store = ask.services.desk.store
    events = await store.events_since(max(0, store.last_seq() - _LOOK_BACK), _LOOK_BACK)
    seen = [event for event in events or [] if await ask.services.desk.events.may_see(ask.who, event)]
    return ask.answer([_log_line(event) for event in seen[-LOG_LINES:]])


def _worker(services: Services, worker: WorkerView, wall: float) -> dict[str, Any]:
    measures = services.measures
    tasks = measures.worker_tasks.value(worker.id)
    units = measures.worker_units.value(worker.id)
    total = measures.units.value()
    paused = worker.state in ("paused", "quarantined", "pending") or worker.limits.paused
    shown: dict[str, Any] = {
        "id": worker.id,
        "nick": worker.name,
        "backend": backend_of(worker),
        "label": ", ".join(device.name for device in worker.devices) or backend_of(worker),
        "os": worker.system,
        "userUtil": worker.user_load,
        "poolDuty": duty_of(worker),
        "ceil": worker.limits.ceiling,
        "busy": worker.leases > 0,
        "paused": paused,
        "pausedReason": worker.reason or (worker.state if paused else ""),
        "schedule": worker.limits.schedule,
        "serving": worker.state == "online",
        "shards": int(tasks),
        "ops": int(measures.worker_operations.value(worker.id)),
        "units": int(units),
        "tokens": 0,
        "share": units / total if total else 0.0,
        "errors": int(measures.worker_errors.value(worker.id)),
        "avgMs": 1000.0 * measures.worker_seconds.value(worker.id) / tasks if tasks else 0.0,
        "uptimeS": max(0.0, wall - (worker.connected_at or wall)),
        "trend": measures.trend(worker.id),
    }
    return shown


def _controlled(worker: WorkerView, *, removed: bool = False) -> dict[str, Any]:
    return {
        "ok": True,
        "id": worker.id,
        "paused": removed or worker.state == "paused" or worker.limits.paused,
        "ceil": worker.limits.ceiling,
        "schedule": worker.limits.schedule,
        "nick": worker.name,
    }


def _log_line(event: Event) -> dict[str, Any]:
    bad = event.type.endswith((".failed", ".revoked", ".suspect", ".quarantined"))
    odd = event.type.endswith((".lost", ".cancelled", ".offline", ".flapping")) or "paused" in event.type
    line: dict[str, Any] = {
        "ts": round(event.at * 1000),
        "level": "error" if bad else "warn" if odd else "info",
        "msg": f"{event.type.replace('.', ' ')}: {event.id}",
    }
    said_more = event.data.get("detail") or event.data.get("name")
    if said_more:
        line["ctx"] = str(said_more)
    return line
