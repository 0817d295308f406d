"""Doors to the pool as a whole: description, liveness, audit of the ledger."""

from __future__ import annotations

import asyncio

from blake3 import blake3

from moregpu.coordinator.api.ask import Answer, Ask, decoded_as
from moregpu.coordinator.api.compat.shown import shown
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.ledger import Audit
from moregpu.wire.api import AuditView, PoolChange, PoolView, RotateRequest

AUDIT_FRESH_S = 5.0
_PAGE = 500


async def health(ask: Ask) -> Answer:
    """Public: the coordinator lives. Workers connected, jobs queued."""
    load = await ask.services.load.now()
    return shown({"ok": True, "fleet": load.workers_online, "queue": load.jobs_queued})


async def show(ask: Ask) -> Answer:
    """Description, limits and present load of the pool."""
    return ask.answer(await _view(ask.services))


async def change(ask: Ask) -> Answer:
    """Rename, describe, limit: only what is named changes. Workers hear a new name when they next connect."""
    wanted = await ask.decoded(PoolChange)
    services = ask.services
    await services.settings.change(wanted)
    services.desk.rename(services.settings.name)
    services.desk.quotas = services.settings.limits.quotas
    return ask.answer(await _view(services))


async def rotate(ask: Ask) -> Answer:
    """Take a step of rotating the session key: `begin`, `finish`, `cancel`; an empty body begins."""
    body = await ask.body()
    wanted = decoded_as(body, RotateRequest, packed=ask.packed) if body else RotateRequest()
    services = ask.services
    return ask.answer(await services.offload(lambda: services.rotation.step(wanted)))


async def _view(services: Services) -> PoolView:
    pool, settings, load = services.pool, services.settings, await services.load.now()
    return PoolView(
        id=pool.id.hex(),
        name=settings.name,
        fingerprint=pool.fingerprint,
        version=pool.version,
        addresses=list(pool.reach.addresses),
        workers_online=load.workers_online,
        workers_total=load.workers_total,
        jobs_queued=load.jobs_queued,
        jobs_running=load.jobs_running,
        started_at=pool.started_at,
        storage_bytes=services.blobs.used_bytes(),
        storage_free_bytes=services.blobs.free_bytes(),
        description=settings.limits.description,
        keep_bytes=settings.limits.keep_bytes,
        max_blob_bytes=settings.limits.max_blob_bytes,
        submitter_jobs=settings.limits.quotas.jobs,
        submitter_bytes=settings.limits.quotas.stored_bytes,
        rotating=services.rotation.rotating,
    )


async def description(ask: Ask) -> Answer:
    """The API as OpenAPI 3.1, made from the doors and the Structs that stand behind them."""
    from moregpu.coordinator.api.description import openapi  # the table of doors names this very function

    return Answer(body=openapi(ask.services.pool.version))


async def audit(ask: Ask) -> Answer:
    """Walk the whole ledger: chains, signatures, checkpoints."""
    return ask.answer(await ask.services.auditor.view(ask.services))


class Auditor:
    """One walk at a time; whoever asks meanwhile, or a few seconds later, gets its answer."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._found: AuditView | None = None
        self._at = float("-inf")

    async def view(self, services: Services) -> AuditView:
        """What a walk found."""
        async with self._lock:
            if self._found is None or not services.clock.monotonic() - self._at < AUDIT_FRESH_S:
                self._found = await _walk(services)
                self._at = services.clock.monotonic()
            return self._found


async def _walk(services: Services) -> AuditView:
    """Pages of rows from the store; hashing and signatures on a thread."""
    store = services.desk.store
    keys = {worker.id: worker.wi_pub for worker in await store.workers()}
    writers = await store.ledger_writers()
    rows = checkpoints = 0
    problems: list[str] = []
    heads: list[bytes] = []
    for writer in writers:
        chain = Audit(services.pool.id, services.keys.ci_pub, keys)
        chain.expect(await store.checkpoints(writer))
        while page := await store.ledger(writer, after=chain.rows, limit=_PAGE):
            before = chain.rows
            batches = await store.batches(writer, sorted({row.batch for row in page}))
            await services.offload(lambda chain=chain, page=page, batches=batches: chain.walk(page, batches))
            if chain.rows <= before:
                break
        problems += [f"{writer}: {found}" for found in chain.finish()]
        rows += chain.rows
        checkpoints += chain.checkpoints
        heads.append(chain.head)
    return AuditView(
        rows=rows,
        checkpoints=checkpoints,
        writers=len(writers),
        ok=not problems,
        problems=problems[:100],
        head=(heads[0] if len(heads) == 1 else blake3(b"".join(heads)).digest()).hex() if heads else "",
    )
