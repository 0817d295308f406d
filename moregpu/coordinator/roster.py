"""What an admin does to workers: look, pause, approve, limit, revoke."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moregpu.coordinator.enrol import REVOKED_HINT
from moregpu.coordinator.fleet import Fleet, policy_of
from moregpu.coordinator.hub import Hub
from moregpu.coordinator.presence import Presence
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.store.protocol import Store, WorkerRow
from moregpu.coordinator.trust import pardoned
from moregpu.coordinator.views import Views
from moregpu.errors import Conflict, Forbidden, NotFound
from moregpu.ids import beginning_of, normalise
from moregpu.wire.api import WorkerChange, WorkerView
from moregpu.wire.messages import Limits, Reject
from moregpu.wire.schedule import parse_schedule


class Roster:
    """Workers by name, and changes to them."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        views: Views,
        presence: Presence,
        hub: Hub,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._views = views
        self._presence = presence
        self._hub = hub
        self._wake = wake

    async def all(self) -> list[WorkerView]:
        """All workers, in the order of their enrolment."""
        return [self._views.worker(row) for row in await self._store.workers()]

    async def find(self, id_or_prefix: str) -> WorkerView:
        """One, by id, unique prefix or unique name. Raises `NotFound`, `Conflict`."""
        return self._views.worker(await self._row(id_or_prefix))

    async def change(self, who: Principal, id_or_prefix: str, change: WorkerChange) -> WorkerView:
        """Apply what the change names, durably, and tell the worker. A schedule that no worker reads is refused."""
        _admin_only(who)
        if change.schedule is not None:
            parse_schedule(change.schedule)
        row = await self._row(id_or_prefix)
        if row.revoked:
            raise Conflict(
                f"{row.name} was revoked", "on its machine: moregpu leave, then moregpu join with a new invite"
            )
        saved = await self._store.save_worker(changed(row, change), _event_of(change))
        if change.action in ("resume", "approve"):
            self._fleet.conduct.clear(row.id)
        member = self._fleet.get(row.id)
        if member is not None:
            member.row = saved
            member.session.quarantined = saved.trust.quarantined
            for action in member.session.policy(policy_of(saved), paused=saved.paused, draining=saved.draining):
                self._hub.carry_out_for(member, action)
            self._fleet.changed(fit=True)
            self._hub.prove_if_due(member)
        self._wake()
        return self._views.worker(saved)

    async def revoke(self, who: Principal, id_or_prefix: str) -> None:
        """From here on nothing of it is accepted; what it was doing is done by others."""
        _admin_only(who)
        row = await self._row(id_or_prefix)
        await self._store.save_worker(msgspec.structs.replace(row, revoked=True), "worker.revoked")
        member = self._fleet.get(row.id)
        if member is not None:
            member.session.approved = False
            member.send(Reject(code="revoked", detail="this worker was revoked", hint=REVOKED_HINT))
            member.end(1008, "revoked")
        await self._presence.forget(row.id)

    async def _row(self, id_or_prefix: str) -> WorkerRow:
        row = await self._store.worker(id_or_prefix)
        if row is not None:
            return row
        wanted = normalise(id_or_prefix)
        beginning = beginning_of(wanted, "w-")
        rows = await self._store.workers()
        found = [each for each in rows if each.name == id_or_prefix] or [
            each for each in rows if beginning and each.id.startswith(beginning)
        ]
        if not found:
            raise NotFound(f"there is no worker {id_or_prefix!r}", "`moregpu workers` lists them")
        if len(found) > 1:
            some = ", ".join(each.id for each in found[:3])
            raise Conflict(f"{id_or_prefix!r} names {len(found)} workers: {some}", "type more of the id")
        return found[0]


def changed(row: WorkerRow, change: WorkerChange) -> WorkerRow:
    """The row after a change; what the change does not name stays."""
    match change.action:
        case "pause":
            row = msgspec.structs.replace(row, paused=True, paused_for="")
        case "resume":
            row = msgspec.structs.replace(row, paused=False, paused_for="", draining=False, trust=pardoned(row.trust))
        case "drain":
            row = msgspec.structs.replace(row, draining=True)
        case "approve":
            row = msgspec.structs.replace(row, approved=True, trust=pardoned(row.trust))
        case None:
            pass
    limits = Limits(
        ceiling=row.limits.ceiling if change.ceiling is None else change.ceiling,
        schedule=row.limits.schedule if change.schedule is None else change.schedule,
        paused=row.paused,
    )
    return msgspec.structs.replace(
        row,
        limits=limits,
        name=row.name if change.name is None else change.name,
        groups=row.groups if change.groups is None else tuple(change.groups),
    )


def _event_of(change: WorkerChange) -> str:
    named = {"pause": "worker.paused", "resume": "worker.resumed", "drain": "worker.draining"}
    return named.get(change.action or "", "worker.approved" if change.action == "approve" else "worker.changed")


def _admin_only(who: Principal) -> None:
    if who.role != "admin":
        raise Forbidden("only an admin changes workers")
