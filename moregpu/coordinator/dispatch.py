"""Work for whoever has room: leases are taken, and leave as `Assign` while their rows are being committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from moregpu.coordinator import scheduler
from moregpu.coordinator.assigning import assignment_of
from moregpu.coordinator.fleet import Fleet, Member
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.protocol import (
    ASSIGN_LEASE_S,
    Candidates,
    Choice,
    Choose,
    FleetWorker,
    Lease,
    Store,
)
from moregpu.wire.session import pack_assign

log = logging.getLogger(__name__)


class Dispatch:
    """One loop that owns leasing, so that no worker's slots are counted twice."""

    def __init__(self, store: Store, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There may be work, or room."""
        self._woken.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self.round()
            except Exception:
                # A fault in one plan must not stop everyone's work; the next wake tries again.
                log.exception("leasing failed")

    async def round(self) -> None:
        """Hand out what there is, in passes that double: few tasks spread over workers, many travel in batches."""
        share = 1
        hungry = self._hungry()
        while hungry and self._store.has_ready_work():
            served: list[Member] = []
            for member in hungry:
                if await self._serve(member, share):
                    served.append(member)
            hungry = served
            share = min(2 * share, 64)

    def _hungry(self) -> list[Member]:
        now = self._clock.monotonic()
        hungry = [member for member in self._fleet if member.session.slots(now) > 0]
        hungry.sort(key=lambda member: (len(member.session.held), -sum(member.speeds.values()) * member.duty))
        return hungry

    async def _serve(self, member: Member, share: int) -> bool:
        now = self._clock.monotonic()
        session = member.session
        slots = min(share, session.slots(now))
        if slots <= 0:
            return False
        room_s = session.outstanding_limit_s - session.outstanding_s
        leases = await self._store.lease(
            self._fleet.worker(member),
            slots,
            within(room_s, bool(session.held), self._fleet.workers()),
            now,
            self._clock.wall(),
        )
        if not leases:
            return False
        if self._fleet.get(member.row.id) is not member:
            # Its connection ended while the store was asked. The next session sweeps what it does not hold.
            await self._store.release(member.row.id, (), now, self._clock.wall())
            return False
        self.send(member, leases)
        return True

    def send(self, member: Member, leases: list[Lease]) -> None:
        """Tell a worker about its leases."""
        now = self._clock.monotonic()
        profile = member.profile
        for lease in leases:
            member.session.assigned(lease, profile.seconds(lease.task.spec.cost), now)
        for message in pack_assign(
            assignment_of(
                lease.job,
                lease.task,
                lease.attempt,
                lease.token,
                lease_s=ASSIGN_LEASE_S,
                device=lease.device,
            )
            for lease in leases
        ):
            member.send(message)


def within(room_s: float, busy: bool, fleet: Sequence[FleetWorker]) -> Choose:
    """The scheduler, stopped when the worker has enough in hand: a queue of tasks of a second helps nobody."""

    def choose(candidates: Candidates, worker: FleetWorker, slots: int, now: float) -> list[Choice]:
        kept: list[Choice] = []
        left = room_s
        for choice in scheduler.choose(candidates, worker, slots, now, fleet=fleet):
            if (kept or busy) and left <= 0.0:
                break
            kept.append(choice)
            left -= worker.profile.seconds(choice.cut.cost) if choice.cut is not None else room_s
        return kept

    return choose
