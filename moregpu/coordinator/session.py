"""What the coordinator makes of one worker's messages. No I/O: messages and clock values in, decisions out.

A session is born with a connection and dies with it. It knows what its worker holds, how much more it may hold, and
what to do about each message; the hub carries the decisions out. Leases move to the next session of the same process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from moregpu.coordinator.decisions import (
    Action,
    Admit,
    End,
    HandBack,
    Held,
    Judge,
    Key,
    Leave,
    Refill,
    Renew,
    Returned,
    Send,
    Take,
    Tell,
    Trial,
    key_of,
)
from moregpu.coordinator.fitting import lanes
from moregpu.coordinator.limits import MAX_JUDGING, DeskConfig
from moregpu.coordinator.store.protocol import Lease
from moregpu.wire.messages import (
    Bye,
    FromWorker,
    Heartbeat,
    Hello,
    LeaseRef,
    Output,
    Policy,
    Progress,
    Refused,
    Reject,
    Result,
    Started,
    Taken,
    Welcome,
)

OUTSTANDING_S = 0.05
"""Work that lies ready on a worker, beside two round trips: enough that it never waits, little enough to move."""

OVERDUE_S = 10.0
"""A task is taken back when this, and twice its time limit, have passed."""

MOST_RESTED_S = 900.0
"""So long a task may lie on a machine whose owner needs it before that counts as the task's own time."""

REST_S = 1.0
"""No new leases for so long after a worker handed some back."""

ANSWER_S = 3.0
"""A worker that held nothing, and was silent for longer than a heartbeat, says within this that its lease has arrived.
It may be gone without a word; the lease goes to another then, and it gets none before it is heard of again."""


# ---- state -----------------------------------------------------------------------------------------------------------


class Phase(StrEnum):
    """How far a connection has come."""

    STRANGER = "stranger"  # nothing proven: nothing happens
    ADMITTING = "admitting"  # its Hello is being verified
    MEMBER = "member"
    ENDED = "ended"


class WorkerSession:
    """One connection's decisions."""

    # There are ten thousand of these; a dictionary of so many fields takes 1.4 kB more.
    __slots__ = ("_duty_at", "_free_at", "_inherited", "_slots_for", "_swept", "approved", "asked", "began", "boot",
                 "config", "draining", "due", "duty", "heard", "held", "hello", "hot", "judging",
                 "lanes", "on_trial", "paused", "phase", "quarantined", "reason", "rest_until",
                 "round_trip_s", "successes", "task_s", "user_load", "worked", "worker")  # fmt: skip

    def __init__(self, config: DeskConfig, now: float, slots_for: Callable[[float, float], int]) -> None:
        self.config = config
        self.phase = Phase.STRANGER
        self.worker = ""
        self.boot = b""
        self.hello: Hello | None = None
        self.lanes = 1
        """How many of its devices compute side by side."""
        self.began = now
        self.heard = now
        self.due = now
        """When it is to be heard of next, at the latest; silence counts from here."""
        self.asked: float | None = None
        """When it was given a lease after long silence, and has not answered since."""
        self.held: dict[Key, Held] = {}
        self.judging: dict[Key, Held | None] = {}
        self.approved = False
        self.paused = False
        self.draining = False
        self.quarantined = False
        """Proven wrong too often: no work until the admin looked at it."""
        self.on_trial = False
        """No work yet: its canary or speed measurement is still out."""
        self.duty: dict[str, float] = {}
        self.user_load = 0.0
        self.reason = ""
        self.hot: frozenset[str] = frozenset()
        self.round_trip_s = 0.0
        self.task_s = 0.0
        """Moving average of what one task takes here, by our own timing."""
        self.successes = 0
        """Accepted tasks in a row."""
        self.worked = False
        """A task of it was accepted since its last canary."""
        self.rest_until = 0.0
        self._slots_for = slots_for
        self._swept = False
        self._inherited: frozenset[Key] = frozenset()
        self._free_at: dict[str, float] = {}
        self._duty_at = now

    # -- in

    def receive(self, message: FromWorker, now: float) -> list[Action]:
        """Take one message."""
        self.heard = self.due = now
        missed, self.asked = self._is_missed(now), None
        actions = self._act(message, now)
        # It got nothing meanwhile, whatever was ready.
        return [*actions, Refill()] if missed and self.phase is Phase.MEMBER else actions

    def _act(self, message: FromWorker, now: float) -> list[Action]:
        if self.phase is Phase.ENDED:
            return []
        if isinstance(message, Hello):
            if self.phase is not Phase.STRANGER:
                return self._refuse("a second Hello in one session")
            self.phase, self.hello, self.boot = Phase.ADMITTING, message, message.boot
            self.lanes = lanes(message.devices)
            return [Admit(hello=message)]
        if self.phase is not Phase.MEMBER:
            return self._refuse("the first message must be a Hello, and is answered before the next")
        match message:
            case Heartbeat():
                return self._heartbeat(message, now)
            case Taken():
                return [Take(refs=tuple(ref for ref in message.leases if self._store_knows(ref)))]
            case Started():
                return self._started(message.leases, now)
            case Progress():
                return [Tell(type="task.progress", task=message.lease.task, share=message.share)]
            case Output():
                return [Tell(type="log", task=message.lease.task, lines=tuple(message.lines))]
            case Result():
                return self._result(message, now)
            case Refused():
                return self._handed_back(message, now)
            case Bye():
                self.phase = Phase.ENDED
                return [Leave(reason=message.reason), End(code=1000, reason="bye")]

    def is_quiet(self, now: float) -> bool:
        """Whether there is nothing that `tick` or `overdue` could say: so it is with most of a large fleet."""
        return self.phase is Phase.MEMBER and not self.held and self.rest_until == 0.0 and now <= self.quiet_until

    @property
    def quiet_until(self) -> float:
        """When `tick` has something to say to who is silent till then."""
        return min(self.due + self.config.silence_s, self.began + self.config.session_s)

    def tick(self, now: float) -> list[Action]:
        """Time passed."""
        if self.phase in (Phase.STRANGER, Phase.ADMITTING):
            if now - self.began > self.config.handshake_s:
                return self._end(1008, "no Hello in time")
            return []
        if self.phase is Phase.ENDED:
            return []
        if now - self.due > self.config.silence_s:
            return self._end(1001, "silence", silence=True)
        if now - self.began > self.config.session_s:
            return self._end(1001, "a session lives a day; connect again")
        return [Refill()] if 0.0 < self.rest_until <= now and self._rested() else []

    # -- what the hub decided

    def welcome(self, welcome: Welcome, policy: Policy, *, paused: bool, draining: bool) -> list[Action]:
        """The worker proved who it is, and is in. `policy` goes along always: it may have changed while it was away."""
        self.phase, self.worker = Phase.MEMBER, welcome.worker
        self.approved, self.paused, self.draining = policy.approved, paused, draining
        return [Send(message=welcome), Send(message=policy), Refill()]

    def inherit(self, earlier: WorkerSession, *, leases: bool) -> None:
        """Take over from the session that this worker had before: what was learnt, and what is being judged.

        `leases`: it is the same process, so it still has what it was given (but trials, which are given anew).
        """
        if leases:
            inherited = {key: held for key, held in earlier.held.items() if held.trial is None}
            self._inherited = frozenset(inherited)
            self.held = {**inherited, **self.held}
        earlier.held = {}
        # One dictionary for all of them: whoever ends a check that an earlier session began ends it in every session.
        earlier.judging.update(self.judging)
        self.judging = earlier.judging
        self.duty, self.hot, self.task_s = earlier.duty, earlier.hot, earlier.task_s
        self.round_trip_s, self.successes = earlier.round_trip_s, earlier.successes
        self.worked = earlier.worked
        self._free_at = earlier._free_at

    def policy(self, policy: Policy, *, paused: bool, draining: bool) -> list[Action]:
        """An admin changed something."""
        self.approved, self.paused, self.draining = policy.approved, paused, draining
        return [Send(message=policy), Refill()]

    def reject(self, code: str, detail: str, hint: str, *, again: bool = False) -> list[Action]:
        """Refuse the worker for good (or until later)."""
        self.phase = Phase.ENDED
        return [
            Send(message=Reject(code=code, detail=detail, hint=hint, again=again)),
            End(code=1008, reason=code),
        ]

    def calm(self, idle_s: float, now: float) -> float:
        """How long it may be silent from now on, if so much is allowed: what its Pulse says. 0: as its Welcome said.

        Only who holds nothing may, and who has told its round trip, which people look at.
        """
        if idle_s <= self.config.heartbeat_s or self.held or self.judging or self.round_trip_s == 0.0:
            return 0.0
        self.due = now + idle_s
        return idle_s

    # -- leases

    @property
    def resting(self) -> bool:
        """Whether its owner's limits leave it no time to compute on any device, by its last heartbeat."""
        return bool(self.duty) and not any(share > 0.0 for share in self.duty.values())

    def slots(self, now: float) -> int:
        """How many more leases the worker may have now."""
        if self.phase is not Phase.MEMBER or not self.approved or self.paused or self.draining or self.on_trial:
            return 0
        if self.resting:
            return 0  # its owner is using it; what it were given it would only hand back
        if self.quarantined or now < self.rest_until or len(self.judging) >= MAX_JUDGING:
            return 0
        if self._is_missed(now):
            return 0  # nobody knows whether it is there
        if self.held and self.outstanding_s >= self.outstanding_limit_s:
            return 0
        # Trust starts slowly and is lost at once: one task, then twice as many with each that was accepted.
        depth = min(self._slots_for(self.task_s, self.round_trip_s) * self.lanes, 1 << min(self.successes, 6))
        unsure = len(self.judging) if self.successes == 0 else 0
        return max(0, depth - len(self.held) - unsure)

    def _is_missed(self, now: float) -> bool:
        """Whether a lease was sent to it, and it did not say in time that it came."""
        return self.asked is not None and now - self.asked > ANSWER_S

    @property
    def outstanding_s(self) -> float:
        """Seconds of work that the worker has in hand, as expected when it was leased."""
        return sum(held.expected_s for held in self.held.values())

    @property
    def outstanding_limit_s(self) -> float:
        """How much it should have."""
        return self.lanes * (OUTSTANDING_S + 2.0 * self.round_trip_s)

    @property
    def held_on(self) -> dict[str, int]:
        """How many leases each device has; empty where there is but one to choose from."""
        return dict(Counter(held.lease.device for held in self.held.values())) if self.lanes > 1 else {}

    def assigned(self, lease: Lease, expected_s: float, now: float, trial: Trial | None = None) -> None:
        """A lease is about to be sent."""
        if not self.held and now - self.heard > self.config.heartbeat_s:
            self.due = self.asked = now
        self.held[key_of(lease.ref)] = Held(lease=lease, assigned_at=now, expected_s=expected_s, trial=trial)

    def adopt(self, lease: Lease, expected_s: float, now: float) -> None:
        """The worker holds a lease from before (a restart of ours); count it."""
        self.held.setdefault(
            key_of(lease.ref), Held(lease=lease, assigned_at=now, expected_s=expected_s, started_at=now)
        )

    def drop(self, refs: Iterable[LeaseRef]) -> list[LeaseRef]:
        """Leases that are no longer the worker's. Returns those that it had."""
        return [ref for ref in refs if self.held.pop(key_of(ref), None) is not None]

    def never_came(self, refs: Iterable[LeaseRef]) -> list[LeaseRef]:
        """Leases that were sent on an earlier connection and that the worker, by its first heartbeat, does not hold.

        They are dropped: nobody will answer for them, and they may have ended here meanwhile.
        """
        gone = (self._inherited & self.held.keys()) - {key_of(ref) for ref in refs}
        return self.drop([LeaseRef(task=task, attempt=attempt, token=token) for task, attempt, token in sorted(gone)])

    def lapsed(self, refs: Iterable[LeaseRef], now: float) -> None:
        """Leases ran out here: somebody else is asked first, and trust starts anew."""
        if self.drop(refs):
            self.rest_until, self.successes = now + REST_S, 0

    def unanswered(self, now: float) -> list[LeaseRef]:
        """Leases that somebody else is to have, since nothing was heard of their worker when they were sent."""
        if self.asked is None or now - self.asked <= ANSWER_S:
            return []
        return [held.lease.ref for held in self.held.values() if held.trial is None]

    def lagged(self, now: float) -> None:
        """The loop came late: what the worker answered may lie unread."""
        if self.asked is not None:
            self.asked = now

    def overdue(self, now: float) -> list[LeaseRef]:
        """Leases whose time limit is long over: their worker says that it holds them, and does not end them.

        An honest worker ends a task itself when its time is up; this is for one that hangs, or that only wants to have.
        Nor does its time run while its owner needs the machine, up to the longest that anybody keeps a task for that.
        """
        queue_s = 2.0 * self.outstanding_s
        late: list[LeaseRef] = []
        for held in self.held.values():
            limit = held.lease.job.spec.time_limit_s
            if limit is None or held.trial is not None:
                continue
            if held.lease.job.plan.needs.own_code:  # each of its grains has that long
                limit *= held.lease.task.spec.grains[1] - held.lease.task.spec.grains[0]
            began = held.assigned_at + queue_s if held.started_at is None else held.started_at
            if now - began - min(self._rested_s(held, now), MOST_RESTED_S) > 2.0 * limit + OVERDUE_S:
                late.append(held.lease.ref)
        return late

    def _rested_s(self, held: Held, now: float) -> float:
        """How long a task could not go on, since its machine's owner needed it."""
        return held.rested_s + (now - max(self._duty_at, held.assigned_at) if self.resting else 0.0)

    def held_refs(self) -> list[LeaseRef]:
        """Leases that are this worker's as far as we know: in hand, or being judged."""
        return [
            LeaseRef(task=task, attempt=attempt, token=token)
            for (task, attempt, token), held in self.held.items()
            if held.trial is None
        ] + self.judging_refs()

    def judging_refs(self) -> list[LeaseRef]:
        """Leases whose results are here and wait for a verdict."""
        return [
            LeaseRef(task=task, attempt=attempt, token=token)
            for (task, attempt, token), held in self.judging.items()
            if held is None or held.trial is None
        ]

    def judged(self, ref: LeaseRef) -> None:
        """A result's check has ended, however."""
        self.judging.pop(key_of(ref), None)

    def ruled(self, *, failed: bool, succeeded: bool) -> None:
        """What a result came to: trust in the next ones grows by it, or begins anew."""
        if succeeded:
            self.successes, self.worked = self.successes + 1, True
        elif failed:
            self.successes = 0

    # -- messages

    def _heartbeat(self, beat: Heartbeat, now: float) -> list[Action]:
        if self.resting:
            for held in self.held.values():
                held.rested_s = self._rested_s(held, now)
        self._duty_at = now
        self.duty, self.user_load, self.reason = dict(beat.duty), beat.user_load, beat.reason
        self.hot = frozenset(beat.hot)
        if 0.0 <= beat.round_trip_s <= 1.0:  # a claim; a liar only gets a longer queue, of at most 64
            self.round_trip_s = beat.round_trip_s
        refs = tuple(ref for ref in beat.held if self._store_knows(ref))
        sweep, self._swept = not self._swept, True
        return [Renew(refs=refs, echo=beat.sent, sweep=sweep), Refill()]

    def _started(self, refs: Sequence[LeaseRef], now: float) -> list[Action]:
        for ref in refs:
            held = self.held.get(key_of(ref))
            if held is not None:
                held.has_begun = True
                held.started_at = now if held.started_at is None else held.started_at
        taken = tuple(ref for ref in refs if self._store_knows(ref))
        return [Take(refs=taken)] if taken else []

    def _result(self, result: Result, now: float) -> list[Action]:
        returned: list[Returned] = []
        for index, entry in enumerate(result.entries):
            key = (entry.task, entry.attempt, entry.token)
            if key in self.judging:
                continue  # said twice: the first saying's verdict answers both
            held = self.held.pop(key, None)
            self.judging[key] = held
            returned.append(Returned(entry=entry, index=index, held=held, seconds=self._timed(held, now)))
        if not returned:
            return []
        return [Refill(), Judge(result=result, returned=tuple(returned))]

    def _timed(self, held: Held | None, now: float) -> float:
        """Seconds that the task took, by our clock: from its start, or from when the device became free."""
        if held is None:
            return 0.0
        device = held.lease.device
        began = held.started_at if held.started_at is not None else held.assigned_at
        seconds = max(0.0, now - max(began, self._free_at.get(device, 0.0)))
        self._free_at[device] = now
        if held.trial is None:
            self.task_s = seconds if self.task_s == 0.0 else 0.7 * self.task_s + 0.3 * seconds
        return seconds

    def _handed_back(self, refused: Refused, now: float) -> list[Action]:
        trials: list[LeaseRef] = []
        begun: list[LeaseRef] = []
        refs: list[LeaseRef] = []
        for ref in refused.leases:
            held = self.held.pop(key_of(ref), None)
            if held is not None and held.trial is not None:
                trials.append(ref)
            else:
                (begun if held is not None and held.has_begun else refs).append(ref)
        self.rest_until = now + REST_S
        return [HandBack(refs=tuple(refs), begun=tuple(begun), trials=tuple(trials), reason=refused.reason)]

    def _rested(self) -> bool:
        self.rest_until = 0.0
        return True

    def _store_knows(self, ref: LeaseRef) -> bool:
        """Whether a lease is one of the store's (trials live in the hub alone)."""
        held = self.held.get(key_of(ref))
        return held is None or held.trial is None

    def _refuse(self, what: str) -> list[Action]:
        return self.reject("unexpected-message", what, "update the worker")

    def _end(self, code: int, reason: str, *, silence: bool = False) -> list[Action]:
        self.phase = Phase.ENDED
        return [End(code=code, reason=reason, silence=silence)]
