"""What a worker makes of its coordinator's messages, across all its connections. No I/O.

It holds the leases, and each result until the coordinator's last word on it; a connection only carries them. Messages
and clock values go in, decisions (`Action`) come out; `outgoing` gives what is to be sent, batched at the moment of
writing. The agent carries the decisions out; the simulation drives exactly this object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from moregpu.errors import HandshakeFailed, from_code
from moregpu.jobs import Tensor
from moregpu.wire.identity import WorkerKeys, check_welcome
from moregpu.wire.messages import (
    Acknowledged,
    Assign,
    Assignment,
    Bye,
    Cancel,
    Device,
    FromCoordinator,
    FromWorker,
    Heartbeat,
    Hello,
    LeaseRef,
    Limits,
    Output,
    Policy,
    Progress,
    Pulse,
    Refused,
    Reject,
    Result,
    ResultEntry,
    Started,
    Taken,
    TaskError,
    Verdict,
    Welcome,
)
from moregpu.wire.session import pack_result
from moregpu.wire.statement import batch_message, digest
from moregpu.worker.decisions import Action, Admitted, Close, Obey, Refusal, Run, Settled, Stop
from moregpu.worker.leases import Held, Kept, Key, is_tiny, key_of

QUIET_S = 0.1
"""A tiny task that ends sooner is announced by its result alone: `Taken` and `Started` would cost more than it does."""

PROGRESS_S = 1.0
PRINTED_LINES = 7
"""Lines of a function's output in one message: the longest ones fit a record."""

HELLO_S = 10.0
"""No Welcome within this: the connection is dead."""

RESEND_S = 30.0
"""A result without a last word is sent again, since its first sending may have met a full disk."""

CALM = (0.75, 1.0)
"""Share of the silence that it may keep while idle, at random: a fleet that came at once does not beat at once."""

TOGETHER_S = 1.0
LEAST_TOGETHER_S = 5.0
"""Idle workers beat at multiples of `TOGETHER_S` on the coordinator's clock, where the next beat is not sooner."""

SESSION_S = 86_400.0
MAX_REFS = 512
"""Leases that one message lists; a worker holds 64 and some kept results."""

FIRST_RETRY_S = 0.3
MAX_RETRY_S = 30.0
RETRY_GROWTH = 1.5
"""A restart takes a coordinator two seconds: doubling, some had failed four times by then, and came back 10 s later."""
REFUSED_RETRY_S = (5.0, 15.0)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about itself in its Hello."""

    pool: bytes
    ci_pub: bytes = b""  # pinned by an earlier Welcome
    name: str
    boot: bytes
    system: str = ""
    version: str = ""
    devices: tuple[Device, ...] = ()
    kinds: tuple[str, ...] = ()
    consent: dict[str, list[str]] = {}
    isolation: str = "none"


class WorkerSession:
    """The worker's end. One object for the life of the process; boot id and leases outlive connections."""

    def __init__(self, keys: WorkerKeys, identity: Identity, owner: Limits, random: Random):
        self.keys = keys
        self.identity = identity
        self.owner = owner
        self.welcome: Welcome | None = None
        self.invite: tuple[str, bytes] | None = None
        """(id, secret) while the worker is not enrolled; presented until a Welcome came."""
        self.member = False
        """Whether this connection's Hello was answered by a Welcome."""
        self.held: dict[Key, Held] = {}
        self.kept: dict[Key, Kept] = {}
        self.duty: dict[str, float] = {}
        self.user_load = 0.0
        self.reason = ""
        self.hot: list[str] = []
        self.round_trip_s = 0.0
        self.failures = 0
        """Connections in a row that came to nothing."""
        self._random = random
        self._connected = False
        self._opened_at = self._heard_at = 0.0
        self._beat_at = 0.0
        self._calm_until = 0.0
        """Until then silence is agreed on: the coordinator says nothing unasked."""
        self._paused_at: float | None = None
        self._out: list[FromWorker] = []

    # -- connections

    def opened(self, h: bytes, leaf: bytes, now: float) -> None:
        """The channel stands: `h` is its handshake hash, `leaf` the SHA-256 of the TLS leaf that was seen."""
        self._connected, self.member = True, False
        self._opened_at = self._heard_at = self._calm_until = now
        for kept in self.kept.values():
            kept.sent_at = None
        invite_id, secret = self.invite if self.invite is not None else (None, None)
        self._out = [
            Hello(
                wi_pub=self.keys.wi_pub,
                signature=self.keys.hello_signature(h),
                ws_number=self.keys.ws_number,
                ws_signature=self.keys.ws_signature(),
                boot=self.identity.boot,
                name=self.identity.name,
                system=self.identity.system,
                version=self.identity.version,
                devices=list(self.identity.devices),
                kinds=list(self.identity.kinds),
                isolation=self.identity.isolation,
                consent=self.identity.consent,
                leaf=leaf,
                limits=self.owner,
                invite_id=invite_id,
                invite_secret=secret,
            )
        ]

    def closed(self) -> None:
        """The connection is gone (or was never made)."""
        self.failures = 0 if self.member else self.failures + 1
        self._connected, self.member = False, False
        self._out.clear()

    def retry_s(self) -> float:
        """Seconds until the next attempt: at once with leases or results in hand, else spread; then with full jitter.

        Full jitter up to a growing bound: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
        """
        if self.failures == 0:
            spread = self.welcome.spread_s if self.welcome is not None else FIRST_RETRY_S
            return self._random.uniform(0.0, FIRST_RETRY_S if self.held or self.kept else spread)
        return self._random.uniform(0.05, min(MAX_RETRY_S, FIRST_RETRY_S * RETRY_GROWTH ** min(self.failures, 20)))

    def refused_retry_s(self) -> float:
        """Seconds to wait after a coordinator said: later."""
        return self._random.uniform(*REFUSED_RETRY_S)

    # -- in

    def receive(self, message: FromCoordinator, now: float) -> list[Action]:
        """Take one message."""
        self._heard_at = now
        match message:
            case Welcome():
                return self._welcomed(message, now)
            case Reject():
                return [Refusal(error=from_code(message.code, message.detail, message.hint), again=message.again)]
            case _ if not self.member:
                return [Close(reason="the coordinator spoke before its Welcome")]
            case Assign():
                return [action for entry in message.entries for action in self._assigned(entry, now)]
            case Pulse():
                self.round_trip_s = max(0.0, now - message.echo)
                dropped = self._drop(message.lost)
                self._be_calm(message.idle_s, message.now, now)
                return dropped
            case Acknowledged():
                return [action for verdict in message.entries for action in self._judged(verdict)]
            case Cancel():
                settled = [ref for ref in message.leases if self.kept.pop(key_of(ref), None) is not None]
                return [*(Settled(ref=ref, verdict="cancelled") for ref in settled), *self._drop(message.leases)]
            case Policy():
                return [Obey(limits=message.limits, approved=message.approved)]

    def tick(self, now: float) -> list[Action]:
        """Time passed."""
        actions: list[Action] = []
        if self._paused_at is not None:
            actions += self._hand_back(
                [held for held in self.held.values() if now >= self._paused_at + held.patience_s]
            )
        if self._connected:
            if not self.member and now - self._opened_at > HELLO_S:
                actions.append(Close(reason="no Welcome in time"))
            elif self.member and now > self._silent_at:
                actions.append(Close(reason="silence"))
            elif now - self._opened_at > SESSION_S:
                actions.append(Close(reason="a session lives a day"))
        return actions

    def due(self, now: float) -> float:
        """When `tick` and `outgoing` are to be called next, if nothing happens before."""
        if self._out:
            return now + 0.001
        first = now + HELLO_S
        if self.member:
            first = min(first, self._beat_at, self._silent_at)
            for held in self.held.values():
                if not held.announced:
                    first = min(first, held.announce_at)
                elif held.begun_at is not None and not held.begun_told:
                    first = now
            for kept in self.kept.values():
                first = min(first, now if kept.sent_at is None else kept.sent_at + RESEND_S)
        if self._paused_at is not None:
            first = min([first, *(self._paused_at + held.patience_s for held in self.held.values())])
        return max(now + 0.001, first)

    @property
    def silence_s(self) -> float:
        """The coordinator answers every heartbeat; three missing ones are a dead link."""
        return 3.0 * (self.welcome.heartbeat_s if self.welcome is not None else 15.0)

    @property
    def _silent_at(self) -> float:
        return max(self._heard_at, self._calm_until) + self.silence_s

    # -- what becomes of tasks

    def begun(self, ref: LeaseRef, now: float) -> bool:
        """The task runs now. Returns whether that is to be told at once."""
        held = self.held.get(key_of(ref))
        if held is None or held.begun_at is not None:
            return False
        held.begun_at = now
        if not held.is_tiny:
            held.announce_at = now
        return not held.is_tiny or held.announced

    def progressed(self, ref: LeaseRef, share: float, now: float) -> None:
        """Share of the task that is done."""
        held = self.held.get(key_of(ref))
        if held is not None and self.member and held.begun_told and now - held.progress_at >= PROGRESS_S:
            held.progress_at = now
            self._out.append(Progress(lease=held.ref, share=share))

    def printed(self, ref: LeaseRef, lines: list[str]) -> None:
        """What the task printed; said only while somebody is there to hear it."""
        held = self.held.get(key_of(ref))
        if held is not None and self.member:
            for start in range(0, len(lines), PRINTED_LINES):
                self._out.append(Output(lease=held.ref, lines=lines[start : start + PRINTED_LINES]))

    def computed(self, ref: LeaseRef) -> None:
        """The outputs are there, and on their way to the coordinator's blobs."""
        held = self.held.get(key_of(ref))
        if held is not None:
            held.computed = True

    def finished(self, ref: LeaseRef, statement: bytes, outputs: dict[str, Tensor], now: float) -> ResultEntry | None:
        """The task is done. Returns what is kept until the last word; None when nobody wants it any more."""
        entry = ResultEntry(
            task=ref.task, attempt=ref.attempt, token=ref.token, statement=statement, outputs=outputs
        )  # fmt: skip
        return self._keep(ref, entry, now)

    def failed(self, ref: LeaseRef, error: TaskError, now: float) -> ResultEntry | None:
        """The task failed; as `finished`."""
        entry = ResultEntry(task=ref.task, attempt=ref.attempt, token=ref.token, error=error)
        return self._keep(ref, entry, now)

    def restore(self, entries: Iterable[ResultEntry], now: float) -> None:
        """Take in results that an earlier process kept."""
        for entry in entries:
            ref = LeaseRef(task=entry.task, attempt=entry.attempt, token=entry.token)
            self.kept[key_of(ref)] = Kept(entry=entry, ref=ref, made_at=now)

    # -- the throttle

    def set_duty(self, duty: dict[str, float], reason: str, now: float) -> list[Action]:
        """What the devices may do from now on. At 0, tasks that have not begun go back to the pool."""
        if (duty, reason) == (self.duty, self.reason):
            return []
        self.duty, self.reason = dict(duty), reason
        self._beat_at = now
        if any(share > 0.0 for share in duty.values()):
            self._paused_at = None
            return []
        if self._paused_at is None:
            self._paused_at = now
        return self._hand_back(held for held in self.held.values() if held.begun_at is None)

    @property
    def paused(self) -> bool:
        """Whether no device may compute now."""
        return self._paused_at is not None

    def put_aside(self, device: str, waiting: Iterable[LeaseRef], reason: str) -> list[Action]:
        """A device takes no more tasks: those that `waiting` names go back, and the next Hello does not offer it."""
        left = tuple(each for each in self.identity.devices if each.id != device)
        self.identity = msgspec.structs.replace(self.identity, devices=left)
        self.duty = {each: share for each, share in self.duty.items() if each != device}
        keys = {key_of(ref) for ref in waiting}
        return self._hand_back([held for key, held in self.held.items() if key in keys], reason)

    def take_back(self, devices: tuple[Device, ...]) -> None:
        """A device takes tasks again: the next Hello offers these."""
        self.identity = msgspec.structs.replace(self.identity, devices=devices)

    def leave(self, reason: str) -> list[Action]:
        """Hand everything back that has no result, and say goodbye: by that what may not run again is lost."""
        actions = self._hand_back(list(self.held.values()), reason)
        if self.member:
            self._out.append(Bye(reason=reason))
        return actions

    # -- out

    def outgoing(self, now: float) -> list[FromWorker]:
        """What is to be sent now, in order. Whatever became ready since the last call shares messages."""
        if not self._connected:
            return []
        out, self._out = self._out, []
        if not self.member:
            return out
        if now >= self._beat_at:
            out.append(self._heartbeat(now))
        out += self._announcements(now)
        goodbye = [message for message in out if isinstance(message, Bye)]
        return [*(message for message in out if not isinstance(message, Bye)), *self._results(now), *goodbye]

    def _heartbeat(self, now: float) -> Heartbeat:
        assert self.welcome is not None  # noqa: S101 — a member was welcomed
        self._beat_at = now + self.welcome.heartbeat_s
        refs = [*(held.ref for held in self.held.values()), *(kept.ref for kept in self.kept.values())]
        return Heartbeat(
            sent=now,
            duty=self.duty,
            user_load=self.user_load,
            reason=self.reason,
            held=refs[:MAX_REFS],
            hot=self.hot[:256],
            round_trip_s=self.round_trip_s,
        )

    def _be_calm(self, idle_s: float, there: float, now: float) -> None:
        """With nothing in hand the next heartbeat may take longer; not all fleet's at one moment.

        But on a whole second of the coordinator's clock (`there`), with whoever else is due in that second: each alone
        it would find the processor's caches cold, and cost the coordinator more.
        """
        assert self.welcome is not None  # noqa: S101 — a member was welcomed
        if self.held or self.kept:
            return
        calm = idle_s > self.welcome.heartbeat_s
        wait_s = idle_s * self._random.uniform(*CALM) if calm else self._beat_at - now
        if wait_s > LEAST_TOGETHER_S:
            early_s = (there + wait_s) % TOGETHER_S
            wait_s -= early_s if 0.0 <= early_s <= TOGETHER_S else 0.0
        self._beat_at = now + wait_s
        if calm:
            self._calm_until = self._beat_at

    def _announcements(self, now: float) -> list[FromWorker]:
        taken: list[LeaseRef] = []
        started: list[LeaseRef] = []
        for held in self.held.values():
            if not held.announced and now >= held.announce_at:
                held.announced = True
                taken.append(held.ref)
            if held.announced and held.begun_at is not None and not held.begun_told:
                held.begun_told = True
                started.append(held.ref)
        messages: list[FromWorker] = []
        fresh = [ref for ref in taken if ref not in started]  # Started says it too
        if fresh:
            messages.append(Taken(leases=fresh))
        if started:
            messages.append(Started(leases=started))
        return messages

    def _results(self, now: float) -> list[Result]:
        ready = [
            kept for kept in self.kept.values() if kept.sent_at is None or now - kept.sent_at >= RESEND_S
        ]  # fmt: skip
        for kept in ready:
            kept.sent_at = now
        return pack_result((kept.entry for kept in ready), self._sign)

    def _sign(self, entries: Sequence[ResultEntry]) -> bytes:
        digests = [digest(entry.statement) for entry in entries]
        return self.keys.sign(batch_message(self.identity.pool, self.keys.worker_id, digests))

    # -- messages

    def _welcomed(self, welcome: Welcome, now: float) -> list[Action]:
        try:
            check_welcome(welcome, self.identity.pool, self.identity.ci_pub or None)
        except HandshakeFailed as error:
            return [Refusal(error=HandshakeFailed(error.detail, _TALK_HINT), again=False)]
        if welcome.worker != self.keys.worker_id:
            return [Refusal(error=HandshakeFailed("The coordinator took this worker for another"), again=False)]
        self.welcome, self.member, self.invite = welcome, True, None
        self._beat_at = now
        return [Admitted(welcome=welcome)]

    def _assigned(self, assignment: Assignment, now: float) -> list[Action]:
        ref = LeaseRef(task=assignment.task, attempt=assignment.attempt, token=assignment.token)
        key = key_of(ref)
        if key in self.held:
            return []
        if key in self.kept:
            self.kept[key].sent_at = None
            return []
        if self.paused:
            self._out.append(Refused(leases=[ref], reason=self.reason))
            return []
        if not self.held and self.welcome is not None:  # leases live by heartbeats
            self._beat_at = min(self._beat_at, now + self.welcome.heartbeat_s)
            self._calm_until = min(self._calm_until, now)
        tiny = is_tiny(assignment)
        announce_at = now + QUIET_S if tiny else now
        self.held[key] = Held(assignment=assignment, ref=ref, is_tiny=tiny, announce_at=announce_at)
        return [Run(assignment=assignment)]

    def _judged(self, verdict: Verdict) -> list[Action]:
        ref = LeaseRef(task=verdict.task, attempt=verdict.attempt, token=verdict.token)
        if self.kept.pop(key_of(ref), None) is not None:
            return [Settled(ref=ref, verdict=verdict.verdict)]
        return self._drop([ref])

    def _drop(self, refs: Iterable[LeaseRef]) -> list[Action]:
        """Leases that are no longer ours. A result that is kept stays: it gets its own last word."""
        return [Stop(ref=ref) for ref in refs if self.held.pop(key_of(ref), None) is not None]

    def _hand_back(self, leases: Iterable[Held], reason: str = "") -> list[Action]:
        gone = list(leases)
        refs = [held.ref for held in gone if not held.must_stay]
        if refs and self.member:
            self._out.append(Refused(leases=refs, reason=reason or self.reason))
        return self._drop([held.ref for held in gone])

    def _keep(self, ref: LeaseRef, entry: ResultEntry, now: float) -> ResultEntry | None:
        if self.held.pop(key_of(ref), None) is None:
            return None
        self.kept[key_of(ref)] = Kept(entry=entry, ref=ref, made_at=now)
        return entry


_TALK_HINT = "Ask the pool's admin for a new invite, and compare the fingerprint"
