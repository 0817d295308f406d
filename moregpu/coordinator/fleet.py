"""Who is connected, what they may take, and how fast they are by our own measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from statistics import median
from typing import Protocol

import msgspec

from moregpu.coordinator.cases import Ruling
from moregpu.coordinator.conduct import Conduct
from moregpu.coordinator.fitting import lanes
from moregpu.coordinator.session import WorkerSession
from moregpu.coordinator.store.protocol import FleetWorker, WorkerRow
from moregpu.coordinator.trust import is_on_probation
from moregpu.wire.messages import FromCoordinator, Hello, Limits, Policy
from moregpu.workloads.function.plan import CALL_AMOUNT, SPEEDS
from moregpu.workloads.protocol import NOMINAL_BYTES, FleetSummary, WorkerProfile

TRUSTED_S = 0.05
"""A timing shorter than this is mostly overhead: it may raise a speed, never lower it."""

TRUSTED_WORK_S = 0.001
"""Neither may one of a task whose work takes less than this: it was long for another reason (a busy machine, a lost
packet), and nothing that is as small could ever raise the speed again."""

WEIGHT = 0.3
"""Of the newest timing in the moving average."""

GROWTH = 2.0
"""One timing makes nobody more than so many times faster: who answers at once, having computed before, or by luck, must
not take a whole job for that."""

MAX_SPEED = 1e16
"""Nothing computes or moves more a second."""

ASKED_OF_ONE = 16
"""Workers whose sums are made anew for each time that they are asked for."""

DEFAULT_MEMORY_BYTES = 1 << 30

MAX_PROGRAMS = 256
"""Programs whose calls' speed is kept, for each worker."""

LEAST_WORK_S = 1e-5
"""No task of calls takes less."""


class Send(Protocol):
    """Sends a message to a worker; one that may wait a moment goes with the next."""

    def __call__(self, message: FromCoordinator, /, *, may_wait: bool = False) -> None:
        """Queue it."""
        ...


class Member:
    """A worker that is connected: its row, its session, and the way to send to it."""

    def __init__(
        self,
        row: WorkerRow,
        hello: Hello,
        session: WorkerSession,
        send: Send,
        end: Callable[[int, str], None],
        connected_at: float,
    ) -> None:
        self.row = row
        self.hello = hello
        self.session = session
        self.send = send
        self.end = end
        self.connected_at = connected_at
        self.speeds: dict[str, float] = dict(row.speeds)
        self.call_speeds: dict[str, float] = {}
        """Of single programs of submitters: kept while the worker is connected, the ones used last."""
        self.call_bytes: dict[str, float] = {}
        """What one call of them gave, the last time."""
        self.learnt = False
        """Speeds changed since they were last saved."""
        self.must_prove = False
        """Its trials are still to come."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """What it consents to, within what its invite allows."""
        allowed = self.row.kinds_allowed
        return tuple(kind for kind in self.hello.kinds if not allowed or kind in allowed)

    @property
    def limits(self) -> Limits:
        """In force: the lower of the owner's and the admin's."""
        return lower(self.hello.limits, self.row.limits)

    @property
    def duty(self) -> float:
        """Share of wall time that its best device now gives; its ceiling before it said (or while it rests)."""
        return max(self.session.duty.values(), default=0.0) or self.limits.ceiling

    @property
    def profile(self) -> WorkerProfile:
        """As cutting sees it."""
        memory = max((device.memory_bytes for device in self.row.devices), default=0)
        return WorkerProfile(
            speeds=self.speeds | self.call_speeds if self.call_speeds else self.speeds,
            result_bytes=self.call_bytes,
            duty=self.duty,
            memory_budget_bytes=memory // 2 or DEFAULT_MEMORY_BYTES,
        )

    @property
    def takes_work(self) -> bool:
        """Whether it is one of those that share a job."""
        session = self.session
        return session.approved and not session.paused and not session.draining and not self.row.trust.quarantined


class Fleet:
    """All connected workers, by id."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._total: dict[str, float] | None = None
        self._summary: FleetSummary | None = None
        self._stale = 0
        """Times that sums were asked for since they last were not quite true; −1: they are."""
        self._placed: list[FleetWorker] | None = None
        self._taking: int | None = None
        self.conduct = Conduct()
        self.version = 0
        """Counts changes of who is there and what they take."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def get(self, worker: str) -> Member | None:
        """A connected worker."""
        return self._members.get(worker)

    def put(self, member: Member) -> None:
        """It is connected now."""
        self._members[member.row.id] = member
        self.changed(fit=True)

    def remove(self, member: Member) -> bool:
        """It is gone; False when another connection of that worker has taken its place."""
        if self._members.get(member.row.id) is not member:
            return False
        del self._members[member.row.id]
        self.changed(fit=True)
        return True

    def changed(self, *, fit: bool = False) -> None:
        """Speeds or duty changed: sums are made anew when asked for. `fit`: also who is there and what they take."""
        self._stale = -1 if fit else max(0, self._stale)
        if fit:
            self._total = self._summary = None
            self._placed = self._taking = None
            self.version += 1

    def worker(self, member: Member) -> FleetWorker:
        """One worker, as placement sees it."""
        row = member.row
        return FleetWorker(
            id=row.id,
            owner=row.owner,
            groups=row.groups,
            kinds=member.kinds,
            devices=row.devices,
            profile=member.profile,
            hot=member.session.hot,
            total_speed=self.total_speed(),
            peers=self._takers(),
            held_s=member.session.outstanding_s / lanes(row.devices),
            held_on=member.session.held_on,
            proven=not is_on_probation(row.trust),
            consent=row.consent,
        )

    def _takers(self) -> int:
        """How many take work; whoever asks is one of them."""
        if self._taking is None:
            self._taking = sum(1 for member in self._members.values() if member.takes_work)
        return max(1, self._taking)

    def workers(self) -> list[FleetWorker]:
        """All that take work, as placement sees them; duty and speeds may be those of a while ago."""
        if self._placed is None:
            self._placed = [self.worker(member) for member in self if member.takes_work]
        return self._placed

    def total_speed(self) -> dict[str, float]:
        """Speed × duty of all that take work, by speed key; of a large fleet as it was a moment ago.

        Who was not timed yet counts as much as those who were do on average: else the first to be timed would be
        given whole jobs, and nobody else would ever be.
        """
        self._grow_stale()
        if self._total is None:
            total: dict[str, float] = {}
            timed: Counter[str] = Counter()
            takers = 0
            for member in self._members.values():
                if member.takes_work:
                    takers += 1
                    timed.update(member.speeds.keys())
                    for key, speed in member.speeds.items():
                        total[key] = total.get(key, 0.0) + speed * member.duty
            self._total = {key: speed * takers / timed[key] for key, speed in total.items()}
        return self._total

    def summary(self) -> FleetSummary:
        """As planning sees it; of a large fleet as it was a moment ago."""
        self._grow_stale()
        if self._summary is None:
            self._summary = self._summed_up()
        return self._summary

    def _grow_stale(self) -> None:
        """Let go of sums that are no longer true.

        Every heartbeat and every timing changes them a little, and to sum up takes as long as there are workers: so
        those of many are asked for several times before they are made anew, at the same cost for each asking.
        """
        if self._stale < 0:
            return
        self._stale += 1
        if self._stale * ASKED_OF_ONE >= len(self._members):
            self._total = self._summary = None
            self._stale = -1

    def _summed_up(self) -> FleetSummary:
        speeds: dict[str, list[float]] = {}
        workers = 0
        for member in self._members.values():
            if member.takes_work:
                workers += 1
                for key, speed in member.speeds.items():
                    speeds.setdefault(key, []).append(speed)
        return FleetSummary(
            workers=workers,
            median_speed={key: median(values) for key, values in speeds.items()},
            total_speed=self.total_speed(),
        )

    def learn(self, member: Member, ruling: Ruling) -> None:
        """Take an accepted task's timing, by our own clock, into the worker's speeds."""
        if ruling.amount <= 0.0 or not ruling.seconds > 0.0 or not ruling.speed_key:
            return
        if ruling.speed_key.startswith(SPEEDS):
            _learn_calls(member, ruling)
            return
        measured = ruling.amount / (ruling.seconds * max(0.05, min(1.0, ruling.duty)))
        known = member.speeds.get(ruling.speed_key)
        measured = min(measured, MAX_SPEED if known is None else GROWTH * known)
        if known is None:
            if ruling.seconds < TRUSTED_S or ruling.amount < TRUSTED_WORK_S * NOMINAL_BYTES:
                return
            speed = measured
        elif measured > known or (ruling.seconds >= TRUSTED_S and ruling.amount >= TRUSTED_WORK_S * known):
            speed = (1.0 - WEIGHT) * known + WEIGHT * measured
        else:
            return
        member.speeds[ruling.speed_key] = speed
        member.learnt = True
        self.changed()


def _learn_calls(member: Member, ruling: Ruling) -> None:
    """How fast a worker makes a program's calls, which decides how many make a task.

    Its own figure, where that is lower than ours: only it can tell the calls from the start of their sandbox. A lie
    makes its tasks too long, nothing else.
    """
    worked_s = min(ruling.seconds, max(ruling.worked_s, LEAST_WORK_S))
    measured = min(ruling.amount / (worked_s * max(0.05, min(1.0, ruling.duty))), MAX_SPEED)
    known = member.call_speeds.pop(ruling.speed_key, None)
    member.call_speeds[ruling.speed_key] = measured if known is None else (1.0 - WEIGHT) * known + WEIGHT * measured
    if ruling.made_bytes:
        member.call_bytes[ruling.speed_key] = ruling.made_bytes * CALL_AMOUNT / ruling.amount
    if len(member.call_speeds) > MAX_PROGRAMS:
        oldest = next(iter(member.call_speeds))
        del member.call_speeds[oldest]
        member.call_bytes.pop(oldest, None)


def lower(owner: Limits, admin: Limits) -> Limits:
    """What holds when owner and admin both have a say: the owner's schedule, unless only the admin set one."""
    return Limits(
        ceiling=min(owner.ceiling, admin.ceiling),
        schedule=owner.schedule if owner.schedule != "always" else admin.schedule,
        paused=owner.paused or admin.paused,
    )


def sees_our_leaf(hello: Hello, leaves: Collection[bytes]) -> bool:
    """Whether the certificate that the worker saw is ours; without one of either there is nothing to tell."""
    return not hello.leaf or not leaves or hello.leaf in leaves


def policy_of(row: WorkerRow) -> Policy:
    """What the admin asks, and nothing of what the owner said: the worker itself takes the lower of both."""
    limits = Limits(ceiling=row.limits.ceiling, schedule=row.limits.schedule, paused=row.paused)
    return Policy(limits=limits, name=row.name, approved=row.approved)


def with_speeds(row: WorkerRow, speeds: dict[str, float], *, tried: bool) -> WorkerRow:
    """The row with other speeds; `tried`: its worker answered every trial."""
    return msgspec.structs.replace(row, speeds=dict(speeds), tried=row.tried or tried)
