"""Doors to groups: named sets of workers."""

from __future__ import annotations

from moregpu.coordinator.api.ask import Answer, Ask
from moregpu.errors import NotFound
from moregpu.ids import name_order
from moregpu.wire.api import GroupRequest, GroupView, WorkerChange, WorkerView


async def list_groups(ask: Ask) -> Answer:
    """Every group that was made, or that a worker or its invite names; by name."""
    return ask.answer(await _views(ask))


async def create(ask: Ask) -> Answer:
    """Make a group, or describe one; the workers that are named join it."""
    wanted = await ask.decoded(GroupRequest)
    desk = ask.services.desk
    joining = [await desk.find_worker(worker) for worker in wanted.workers]
    await ask.services.settings.describe_group(wanted.name, wanted.description)
    for worker in joining:
        if wanted.name not in worker.groups:
            await desk.change_worker(ask.who, worker.id, WorkerChange(groups=[*worker.groups, wanted.name]))
    return ask.answer(next(view for view in await _views(ask) if view.name == wanted.name), 201)


async def drop(ask: Ask) -> Answer:
    """Let a group go: no worker is in it any more. Jobs that ask for it wait, and say so."""
    name = ask.params["id"]
    view = next((view for view in await _views(ask) if view.name == name), None)
    if view is None:
        raise NotFound(f"there is no group {name[:64]!r}", "`moregpu group list` shows them")
    desk = ask.services.desk
    for id in view.workers:
        worker = await desk.find_worker(id)
        left = [group for group in worker.groups if group != name]
        await desk.change_worker(ask.who, id, WorkerChange(groups=left))
    await ask.services.settings.describe_group(name, None)
    return Answer(status=204)


async def _views(ask: Ask) -> list[GroupView]:
    members: dict[str, list[WorkerView]] = {name: [] for name in ask.services.settings.groups}
    for worker in await ask.services.desk.workers():
        if worker.state != "revoked":
            for group in worker.groups:
                members.setdefault(group, []).append(worker)
    return [
        GroupView(
            name=name,
            description=ask.services.settings.groups.get(name, ""),
            workers=[worker.id for worker in workers],
            online=sum(worker.connected_at is not None for worker in workers),
        )
        for name, workers in sorted(members.items(), key=lambda member: name_order(member[0]))
    ]
