"""Workers come, go, come back, and come twice: who holds which leases then."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from moregpu.coordinator.chores import Chores
from moregpu.coordinator.fleet import Fleet, Member
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.session import Phase, WorkerSession
from moregpu.coordinator.store.protocol import LEASE_S, Store
from moregpu.errors import MoreGPUError
from moregpu.wire.api import Event
from moregpu.wire.messages import Reject

log = logging.getLogger(__name__)

FLIPS = 3
FLIPS_WITHIN_S = 600.0
"""A key that is used by two processes at once is warned about when it changed hands this often in ten minutes."""


class Presence:
    """Arrivals and departures. The newest of two live connections of one worker wins."""

    def __init__(
        self, store: Store, fleet: Fleet, clock: Clock, config: DeskConfig, chores: Chores, wake: Callable[[], None]
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._config = config
        self._chores = chores
        self._wake = wake
        self._parted: dict[str, WorkerSession] = {}
        self._flips: dict[str, deque[float]] = {}

    async def arrive(self, member: Member) -> None:
        """A worker has proven who it is. Its leases move here when it is the same process, else they go back."""
        worker = member.row.id
        live = self._fleet.get(worker)
        earlier = live.session if live is not None else self._parted.pop(worker, None)
        self._fleet.put(member)
        if earlier is not None:
            await self._take_over(member, earlier, live)
        await self._set_aside_if_hopeless(member)

    async def _take_over(self, member: Member, earlier: WorkerSession, live: Member | None) -> None:
        same = earlier.boot == member.session.boot
        member.session.inherit(earlier, leases=same)
        earlier.phase = Phase.ENDED
        if live is not None:
            if same:
                live.end(4001, "replaced")
            else:
                self._displace(live)
                await self._count_flip(member)
        if not same:
            await self._count_loss(member.row.id, member.session)

    async def _set_aside_if_hopeless(self, member: Member) -> None:
        if self._fleet.conduct.hopeless(member.row.id):
            await set_aside(self._store, self._fleet, member)

    def depart(self, member: Member, *, silence: bool, bye: bool) -> None:
        """A connection ended. Nothing happens when another one has taken its place."""
        if not self._fleet.remove(member):
            return
        self._chores.spawn(self._save(member))
        if bye:
            self._chores.spawn(self._give_back(member))
        else:
            self._parted[member.row.id] = member.session
            self._chores.spawn(self._grace(member, silence), forever=True)

    async def forget(self, worker: str) -> None:
        """It was revoked: nothing of it is waited for."""
        self._parted.pop(worker, None)
        self._fleet.conduct.clear(worker)
        await self._store.release(worker, (), self._clock.monotonic(), self._clock.wall())
        self._wake()

    async def _grace(self, member: Member, silence: bool) -> None:
        """Wait for the same process to come back. Closed sockets are short; after silence leases keep their time."""
        worker, session = member.row.id, member.session
        await asyncio.sleep(LEASE_S if silence else self._config.grace_s)
        if self._parted.get(worker) is not session:
            return  # it came back, or was revoked
        del self._parted[worker]
        if silence:
            return
        await self._count_loss(worker, session)
        back = self._fleet.get(worker)  # it may have come while its leases went
        if back is not None:
            await self._set_aside_if_hopeless(back)

    async def _count_loss(self, worker: str, session: WorkerSession) -> None:
        """A process went away for good: its leases go back, and if it had any, that counts as a failure."""
        if await self._release(worker, session):
            self._fleet.conduct.failed(worker, "it went away with its tasks and did not come back with them")

    async def _give_back(self, member: Member) -> None:
        await self._release(member.row.id, member.session)

    async def _release(self, worker: str, session: WorkerSession) -> bool:
        """Give back what the worker does not hold any more; whether there was any."""
        keep = session.held_refs() if self._fleet.get(worker) is not None else session.judging_refs()
        gone = await self._store.release(worker, keep, self._clock.monotonic(), self._clock.wall())
        session.drop(gone)
        if gone:
            self._wake()
        return bool(gone)

    async def _save(self, member: Member) -> None:
        row = await self._store.worker(member.row.id)
        if row is None:
            return
        speeds = dict(member.speeds) if member.learnt else row.speeds
        try:
            await self._store.save_worker(
                msgspec.structs.replace(row, seen_at=self._clock.wall(), speeds=speeds), "worker.offline"
            )
        except MoreGPUError:
            log.warning("a worker's last sight was not kept", extra={"worker": row.id})

    def _displace(self, live: Member) -> None:
        """Another process with this key: the older one is told not to come back, or they would take turns for ever."""
        live.send(
            Reject(
                code="replaced",
                detail="another process with this worker's key has connected",
                hint="a key belongs to one machine: stop the other worker, or join again here with a new invite",
            )
        )
        live.end(4002, "replaced by another process")

    async def _count_flip(self, member: Member) -> None:
        now = self._clock.monotonic()
        flips = self._flips.setdefault(member.row.id, deque(maxlen=FLIPS))
        flips.append(now)
        if len(flips) == FLIPS and now - flips[0] <= FLIPS_WITHIN_S:
            log.warning("one worker key is used by two processes", extra={"worker": member.row.id})
            flips.clear()
            await self._store.note(
                Event(
                    type="worker.flapping",
                    id=member.row.id,
                    at=self._clock.wall(),
                    data={"name": member.row.name, "detail": "one key is used by two processes"},
                )
            )


async def set_aside(store: Store, fleet: Fleet, member: Member) -> None:
    """Pause a worker that fails or dies at every task, or it would empty every queue."""
    if member.row.paused:
        return
    member.session.paused = True
    fleet.changed(fit=True)
    log.warning("worker paused: it fails or dies at every task", extra={"worker": member.row.id})
    row = await store.worker(member.row.id)
    if row is None:
        return
    member.row = row
    if not row.paused:
        row = msgspec.structs.replace(row, paused=True, paused_for=fleet.conduct.why(row.id))
        member.row = await store.save_worker(row, "worker.paused_for_failures")
