"""The pool as one virtual GPU, its workers and its log, as MoreGPU 1.x shows them."""

from __future__ import annotations

from typing import Any

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.coordinator.api.compat.body import ControlBody, number, read_body, said
from moregpu.coordinator.api.compat.shown import figure, shown
from moregpu.coordinator.api.compat.spec import MAX_ELEMENTS, MAX_MATMUL
from moregpu.coordinator.api.fleetnow import backend_of, duty_of, fleet_now, is_outside_schedule, is_paused
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.store.protocol import Store
from moregpu.coordinator.views import TO_BE_RESUMED
from moregpu.errors import InvalidRequest, NotFound
from moregpu.wire.api import Event, WorkerChange, WorkerView
from moregpu.workloads.kernel.spec import KERNELS

MAX_INPUT_ELEMENTS = 48 << 20
LOG_LINES = 200
_LOOK_BACK = 1_000
_SMALLEST_CEILING = 0.05

ENDPOINTS = (
    "/health", "/whoami", "/cert.pem", "/help", "/device", "/gpu", "/workers", "POST /workers/:id/control",
    "POST /submit (?async=1)", "/jobs", "/jobs/:id", "/logs", "/weights", "POST /weights", "/net", "/metrics",
    "/v1/openapi.json",
)  # fmt: skip

FRONT = """This is a MoreGPU coordinator.

To look at the pool and steer it: the console, `moregpu-tui`, or `moregpu-tui --web` in a browser of your own machine.
To script it: /v1/openapi.json describes the API, /help the calls of MoreGPU 1.x.
To lend a machine: `moregpu join` with an invite that its admin gives you.
"""


async def front(ask: Ask) -> Answer:
    """Say what is here: 1.x had its dashboard there, and things that watch over servers ask for it."""
    return Answer(body=FRONT.encode(), media_type="text/plain; charset=utf-8")


async def whoami(ask: Ask) -> Answer:
    """The address that the caller comes from."""
    client = ask.scope.get("client")
    return shown({"ip": str(client[0]) if client else ""})


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
    return shown(
        {
            "kernels": list(KERNELS),
            "endpoints": list(ENDPOINTS),
            "workerSchedule": "always, or hours of the worker's own clock: 22:00-07:00, mon-fri 19:00-07:00",
            "auth": "Authorization: Bearer <token>, or x-admin-token: <token>",
        }
    )


async def device(ask: Ask) -> Answer:
    """The pool as one device."""
    services = ask.services
    now, measures = await fleet_now(services), services.measures
    return shown(
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
    return shown(
        {
            "device": f"{services.settings.name} (MoreGPU)",
            "slots": len(now.workers),
            "gpuSlots": now.gpu_slots,
            "cpuSlots": now.cpu_slots,
            "busy": now.busy,
            "avgUserUtil": figure(now.user_load, 3),
            "avgPoolDuty": figure(now.duty, 3),
            "queueDepth": now.queue_depth,
            "totalUnits": int(measures.units.value()),
            "totalShards": int(measures.tasks_done.value()),
            "totalOps": int(measures.operations.value()),
            "totalTokens": 0,
            "poolTrend": measures.trend(),
            "perKernel": {kernel: int(measures.per_kernel.value(kernel)) for kernel in KERNELS},
            "sealed": "AES-256-GCM",
        }
    )


async def workers(ask: Ask) -> Answer:
    """Connected workers."""
    now = await fleet_now(ask.services)
    wall = ask.services.clock.wall()
    return shown([_worker(ask.services, worker, wall) for worker in now.workers])


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
    ceiling = max(_SMALLEST_CEILING, min(1.0, number(body.ceil, "ceil", worker.limits.ceiling)))
    if body.action == "remove":
        await desk.revoke_worker(ask.who, worker.id)
        return shown(_controlled(worker) | {"paused": True, "removed": worker.id, "banned": True})
    nick = (body.nick or "").strip()[:100]
    change = WorkerChange(
        action=body.action,  # pyright: ignore[reportArgumentType] — remove is done
        name=nick or None,
        ceiling=None if body.ceil is None else ceiling,
        schedule=None if body.schedule is None else _schedule(body.schedule),
    )
    return shown(_controlled(await desk.change_worker(ask.who, worker.id, change)))


async def logs(ask: Ask) -> Answer:
    """The last 200 lines of what happened, newest first; a submitter's own jobs, and the fleet."""
    events = await _latest(ask.services.desk.store)
    seen = [event for event in events if await ask.services.desk.events.may_see(ask.who, event)]
    return shown([_log_line(event) for event in seen[: -LOG_LINES - 1 : -1]])


async def _latest(store: Store) -> list[Event]:
    """The latest events, as far back as they are kept: of a quiet pool that is less far than we look."""
    high = store.last_seq()
    low = max(0, high - _LOOK_BACK)
    if await store.events_since(low, 1) is None:
        while low < high:
            middle = (low + high) // 2
            if await store.events_since(middle, 1) is None:
                low = middle + 1
            else:
                high = middle
    return await store.events_since(low, _LOOK_BACK) or []


def _worker(services: Services, worker: WorkerView, wall: float) -> dict[str, Any]:
    measures = services.measures
    tasks = measures.worker_tasks.value(worker.id)
    units = measures.worker_units.value(worker.id)
    total = measures.units.value()
    paused = is_paused(worker)
    shown: dict[str, Any] = {
        "id": worker.id,
        "nick": worker.name,
        "backend": backend_of(worker),
        "label": ", ".join(device.name for device in worker.devices) or backend_of(worker),
        "os": worker.system,
        "userUtil": figure(worker.user_load, 3),
        "poolDuty": figure(duty_of(worker), 3),
        "ceil": figure(worker.limits.ceiling, 3),
        "busy": worker.leases > 0,
        "paused": paused,
        "pausedReason": _why(worker) if paused else None,
        "schedule": worker.limits.schedule,
        "serving": False,  # it holds no model
        "shards": int(tasks),
        "ops": int(measures.worker_operations.value(worker.id)),
        "units": int(units),
        "tokens": 0,
        "share": figure(units / total if total else 0.0, 3),
        "errors": int(measures.worker_errors.value(worker.id)),
        "avgMs": figure(1000.0 * measures.worker_seconds.value(worker.id) / tasks if tasks else 0.0, 1),
        "uptimeS": max(0, round(wall - (worker.connected_at or wall))),
        "trend": measures.trend(worker.id),
    }
    return shown


def _why(worker: WorkerView) -> str:
    """Why it takes no work, by one of the words of 1.x where one fits."""
    if worker.state == "quarantined" or TO_BE_RESUMED in worker.reason:
        return "errors"
    if worker.limits.paused:
        return "admin"
    return "schedule" if is_outside_schedule(worker) else worker.reason or worker.state


def _schedule(text: str) -> str:
    """Workers give way to their users whatever the schedule, which is what `idle-only` asked for."""
    plain = text.strip().lower()
    return "always" if plain in ("", "idle-only") else plain


def _controlled(worker: WorkerView) -> dict[str, Any]:
    return {
        "ok": True,
        "id": worker.id,
        "paused": is_paused(worker),
        "ceil": figure(worker.limits.ceiling, 3),
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
