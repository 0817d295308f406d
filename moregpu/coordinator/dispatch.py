"""Work for whoever has room: leases are taken, and leave as `Assign` while their rows are being committed.

Who found nothing is not asked again before something became ready or the fleet changed: ten thousand idle workers cost
nothing while ten thousand jobs wait for one that is not here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from moregpu.coordinator import scheduler, speculation
from moregpu.coordinator.assigning import assignment_of
from moregpu.coordinator.decisions import key_of
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
from moregpu.jobs import TaskState
from moregpu.wire.session import pack_assign

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""While jobs are in their tail, late tasks are looked for this often."""

ASK_AGAIN_S = 15.0
"""Who found nothing is asked again after this long whatever happened: speeds and limits change quietly."""

REST_S = 1.0
"""After a commit that failed nothing is leased for this long: on a full disk the next lease would be undone as well,
and a worker kept busy with work that cannot count."""


class Dispatch:
    """One loop that owns leasing, so that no worker's slots are counted twice."""

    def __init__(self, store: Store, fleet: Fleet, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._woken = asyncio.Event()
        self._fed_up: dict[str, tuple[int, int, float]] = {}
        """Worker → as of which work and fleet nothing was there for it, and since when."""
        self._rests_until = 0.0

    def rest(self) -> None:
        """A commit failed: lease nothing for a moment, then try again."""
        self._rests_until = self._clock.monotonic() + REST_S
        self.wake()

    def wake(self) -> None:
        """There may be work, or room."""
        self._woken.set()

    def look(self) -> None:
        """Something ended or came back: wake where there is anything to give; what comes later wakes by itself."""
        if self._store.has_ready_work() or self._store.tails():
            self.wake()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._wait()
            while (rest_s := self._rests_until - self._clock.monotonic()) > 0.0:  # noqa: ASYNC110 - may be put off
                await asyncio.sleep(rest_s)
            self._woken.clear()
            try:
                await self.round()
                await self.rescue()
            except Exception:
                # A fault in one plan must not stop everyone's work; the next wake tries again.
                log.exception("leasing failed")

    async def _wait(self) -> None:
        """Wait to be woken; while jobs are in their tail, not for long."""
        if not self._store.tails():
            await self._woken.wait()
            return
        try:
            async with asyncio.timeout(LOOK_S):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def round(self) -> None:
        """Hand out what there is, in passes that double: few tasks spread over workers, many travel in batches.

        Where there is plenty, the first pass is large already: half of each worker's part of the ready jobs. Every pass
        is a look at the queue; each worker is told of all of its leases together.
        """
        if not self._store.has_ready_work():
            return
        self._forget_gone()
        hungry = [member for member in self._hungry() if not self._found_nothing(member)]
        share = max(1, min(64, self._store.ready_count() // max(1, 2 * len(hungry))))
        out: dict[Member, list[Lease]] = {}
        while hungry and self._store.has_ready_work():
            served: list[Member] = []
            for member in hungry:
                leases = await self._serve(member, share)
                if leases:
                    served.append(member)
                    out.setdefault(member, []).extend(leases)
            hungry = served
            share = min(2 * share, 64)
        if any(lease.task.spec.once for leases in out.values() for lease in leases):
            await self._store.settle()  # what may run only once is known to be out before it is
        for member, leases in out.items():
            await self._tell_what_stands(member, leases)

    async def _tell_what_stands(self, member: Member, leases: list[Lease]) -> None:
        """While others were served, or the disk was waited for, a job may have been cancelled, or a connection lost.

        A worker that were told of a lease after its Cancel would run it all the same; and what its old connection was
        given, its new one would hold for ever without having heard of it.
        """
        held = member.session.held
        if self._fleet.get(member.row.id) is member:
            _tell(member, [lease for lease in leases if key_of(lease.ref) in held])
            return
        refs = [lease.ref for lease in leases]
        member.session.drop(refs)
        if (current := self._fleet.get(member.row.id)) is not None:
            current.session.drop(refs)
        await self._store.hand_back(member.row.id, refs, self._clock.wall(), "it was not told", untouched=True)
        self.wake()

    async def rescue(self) -> None:
        """Give late tasks of jobs that are nearly done to workers that have nothing to do."""
        tails = set(self._store.tails())
        idle = [member for member in self._hungry() if not member.session.held] if tails else []
        if not idle:
            return
        out = await self._out(tails)
        usual_s = {each.job.id: speculation.median_s(await self._store.tasks(each.job.id)) for each in out}
        for member in idle:
            worker = self._fleet.worker(member)
            found = speculation.rescue(out, usual_s, worker)
            if found is None:
                continue
            late, device = found
            now = self._clock.monotonic()
            lease = await self._store.lease_again(worker, late.task.id, device.id, now, self._clock.wall())
            out = [each for each in out if each is not late]
            if lease is None:
                continue
            if self._fleet.get(member.row.id) is not member:
                await self._store.release(member.row.id, (), now, self._clock.wall())
                continue
            log.info("a late task is tried a second time", extra={"task": late.task.id, "worker": member.row.id})
            self.send(member, [lease])

    async def _out(self, jobs: set[str]) -> list[speculation.Out]:
        """What is out of some jobs, as their rows stand now."""
        now = self._clock.monotonic()
        out: list[speculation.Out] = []
        for member in self._fleet:
            for held in list(member.session.held.values()):
                if held.trial is not None or held.lease.job.id not in jobs:
                    continue
                task = await self._store.task(held.lease.task.id)
                if task is not None and task.state is TaskState.LEASED:
                    elapsed_s = now - held.assigned_at
                    out.append(
                        speculation.Out(job=held.lease.job, task=task, worker=member.row.id, elapsed_s=elapsed_s)
                    )
        return out

    def _forget_gone(self) -> None:
        if len(self._fed_up) > 2 * len(self._fleet) + 64:
            self._fed_up = {id: asked for id, asked in self._fed_up.items() if self._fleet.get(id) is not None}

    def _found_nothing(self, member: Member) -> bool:
        """Whether nothing was there for an idle worker when it asked last, and nothing has changed since."""
        asked = self._fed_up.get(member.row.id)
        if asked is None:
            return False
        work, fleet, at = asked
        same = (work, fleet) == (self._store.work_version(), self._fleet.version)
        if same and not member.session.held and self._clock.monotonic() - at < ASK_AGAIN_S:
            return True
        del self._fed_up[member.row.id]
        return False

    def _hungry(self) -> list[Member]:
        now = self._clock.monotonic()
        hungry = [member for member in self._fleet if member.session.slots(now) > 0]
        hungry.sort(key=lambda member: (len(member.session.held), -sum(member.speeds.values()) * member.duty))
        return hungry

    async def _serve(self, member: Member, share: int) -> list[Lease]:
        """Lease to a worker; what it is to be told of."""
        now = self._clock.monotonic()
        session = member.session
        slots = min(share, session.slots(now))
        if slots <= 0:
            return []
        room_s = session.outstanding_limit_s - session.outstanding_s
        leases = await self._store.lease(
            self._fleet.worker(member),
            slots,
            within(room_s, bool(session.held), self._fleet.workers()),
            now,
            self._clock.wall(),
        )
        if not leases:
            if not session.held and self._fleet.get(member.row.id) is member:
                self._fed_up[member.row.id] = (self._store.work_version(), self._fleet.version, now)
            return []
        if self._fleet.get(member.row.id) is not member:
            # Its connection ended while the store was asked. The next session sweeps what it does not hold.
            await self._store.release(member.row.id, (), now, self._clock.wall())
            return []
        self._assign(member, leases)
        return leases

    def send(self, member: Member, leases: list[Lease]) -> None:
        """Tell a worker about its leases."""
        self._assign(member, leases)
        _tell(member, leases)

    def _assign(self, member: Member, leases: list[Lease]) -> None:
        """Count leases as the worker's: it is told of them without a wait in between."""
        now = self._clock.monotonic()
        profile = member.profile
        for lease in leases:
            member.session.assigned(lease, profile.seconds(lease.task.spec.cost), now)


def _tell(member: Member, leases: list[Lease]) -> None:
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
