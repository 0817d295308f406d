"""Doors to workers."""

from __future__ import annotations

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.ids import name_order
from moregpu.wire.api import WorkerChange


async def list_workers(ask: Ask) -> Answer:
    """All workers, by name."""
    views = await ask.services.desk.workers()
    return ask.answer(sorted(views, key=lambda view: (name_order(view.name), view.id)))


async def show(ask: Ask) -> Answer:
    """One worker, by id, unique prefix, or unique name."""
    return ask.answer(await ask.services.desk.find_worker(ask.params["id"]))


async def change(ask: Ask) -> Answer:
    """Pause, resume, drain, approve, rename, limit, group: only what is named changes."""
    wanted = await ask.decoded(WorkerChange)
    worker = await ask.services.desk.find_worker(ask.params["id"])
    return ask.answer(await ask.services.desk.change_worker(ask.who, worker.id, wanted))


async def revoke(ask: Ask) -> Answer:
    """Refuse a worker from now on; its tasks run again."""
    worker = await ask.services.desk.find_worker(ask.params["id"])
    await ask.services.desk.revoke_worker(ask.who, worker.id)
    return Answer(status=204)
