"""Carries out what workers' sessions decide, lets workers in, and keeps the timers.

Everything that waits for the store or for a check runs as a chore beside the connection, so that no message of a worker
ever waits for a disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable

from moregpu.blobs.format import sealed_size
from moregpu.coordinator import decisions as core
from moregpu.coordinator.chores import Chores
from moregpu.coordinator.connection import Connection
from moregpu.coordinator.enrol import Admitted, Doorman
from moregpu.coordinator.events import Feed
from moregpu.coordinator.fleet import Fleet, Member, policy_of, sees_our_leaf
from moregpu.coordinator.limits import MAX_LINKS_UNCONFIRMED, DeskConfig
from moregpu.coordinator.presence import Presence
from moregpu.coordinator.printed import JobLines
from moregpu.coordinator.protocol import BlobRight, Clock, WorkerSocket
from moregpu.coordinator.proving import Proving
from moregpu.coordinator.results import Results
from moregpu.coordinator.scheduler import slots_for
from moregpu.coordinator.session import Phase, WorkerSession
from moregpu.coordinator.store.protocol import Lease, Store
from moregpu.coordinator.transitions import Standing, standing
from moregpu.coordinator.trials import trials_due
from moregpu.errors import HandshakeFailed, InviteRefused, MoreGPUError, TooManyRequests, Unavailable
from moregpu.jobs import Blob
from moregpu.wire.api import Event
from moregpu.wire.identity import PoolKeys
from moregpu.wire.messages import Cancel, FromCoordinator, FromWorker, Hello, LeaseRef, Pulse, Welcome
from moregpu.wire.session import Channel

log = logging.getLogger(__name__)

FLEET_THAT_SLOWS = 1500
"""So many workers make a newcomer's heartbeat take twice as long: ten thousand that idle would be most of the load."""

UPLOADS_OF_AN_OUTPUT = 4
"""A worker may leave so many times what its leases are to produce: an upload whose answer was lost is sealed anew. (It
could fill the disk with blobs that no result names, each as large as one output may be.)"""

MOST_SLOWED = 5.0 / 3.0
"""At most this: 25 s instead of 15, so that two still fit into a lease, and one may be lost."""


class Hub:
    """All connections of workers."""

    def __init__(
        self,
        store: Store,
        keys: PoolKeys,
        fleet: Fleet,
        doorman: Doorman,
        presence: Presence,
        results: Results,
        proving: Proving,
        feed: Feed,
        chores: Chores,
        clock: Clock,
        entropy: Callable[[int], bytes],
        config: DeskConfig,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._keys = keys
        self._fleet = fleet
        self._doorman = doorman
        self._presence = presence
        self._results = results
        self._proving = proving
        self._feed = feed
        self.printed = JobLines()
        """What functions printed."""
        self._chores = chores
        self._clock = clock
        self._entropy = entropy
        self._config = config
        self._wake = wake
        self._links: dict[Link, None] = {}  # in the order of their arrival: the simulation repeats it
        self._stirred: dict[Link, None] = {}
        """Where something was said since it was quiet, or nobody is let in yet."""
        self._asleep: dict[int, dict[Link, None]] = {}
        """The others, by the second of the clock at which each is looked at: it should have said something by then."""
        self._unconfirmed = 0
        self._bearers: dict[bytes, Member] = {}
        self.pool_name = config.pool_name

    async def serve(self, socket: WorkerSocket) -> None:
        """Run one connection to its end."""
        if self._unconfirmed >= MAX_LINKS_UNCONFIRMED:
            await socket.close(1013, "too many connections have yet to prove who they are; try again")
            return
        link = Link(self, socket)
        self._links[link] = self._stirred[link] = None
        self._unconfirmed += 1
        try:
            await link.connection.run()
        finally:
            del self._links[link]
            self._stirred.pop(link, None)
            self._sleep(link, 0)
            if link.member is None:
                self._unconfirmed -= 1
            else:
                self._bearers.pop(link.bearer, None)
                self._presence.depart(link.member, silence=link.silence, bye=link.bye)
                self._proving.left(link.member)

    def blob_right(self, bearer: str, digest: str) -> tuple[str, BlobRight] | None:
        """What a worker's blob token may do with a digest; None when it is no live session's token."""
        member = self._bearers.get(_hash(bearer))
        if member is None:
            return None
        read, write_bytes, allowed = False, 0, 0
        session = member.session
        for held in [*session.held.values(), *(held for held in session.judging.values() if held is not None)]:
            spec = held.lease.task.spec
            read = read or any(
                isinstance(tensor.data, Blob) and tensor.data.digest == digest for tensor in spec.inputs.values()
            )
            for planned in spec.outputs.values():
                write_bytes = max(write_bytes, sealed_size(planned.size_bytes))
                allowed += UPLOADS_OF_AN_OUTPUT * sealed_size(planned.size_bytes)
        left_bytes = allowed - sum(row.sealed_bytes for row in self._store.loose_blobs(member.row.id))
        return member.row.id, BlobRight(read=read, write_bytes=write_bytes, left_bytes=left_bytes)

    async def close(self) -> None:
        """End all connections; workers come back when there is a coordinator again."""
        for link in list(self._links):
            link.connection.end(1012, "the coordinator stops")

    # -- timers

    async def watch(self) -> None:
        """Reap leases, notice lag, tick sessions, publish what is live. Runs until cancelled."""
        beat = 0
        before = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._config.tick_s)
            now = self._clock.monotonic()
            lag, before = now - before - self._config.tick_s, now
            try:
                await self._tick(now, lag)
                beat += 1
                if beat * self._config.tick_s >= self._config.stats_s:
                    beat = 0
                    self._tick_links(now)
                    await self._publish()
            except MoreGPUError as error:
                log.warning("a timer could not do its work", extra={"reason": error.detail})

    async def _tick(self, now: float, lag: float) -> None:
        if lag > self._config.lag_s:
            log.warning("the event loop lagged; leases are extended", extra={"lag_s": round(lag, 3)})
            await self._store.extend_all(now)
            for member in self._fleet:
                member.session.lagged(now)
        lost = await self._store.reap(now, self._clock.wall())
        if lost:
            for member in self._fleet:
                member.session.lapsed(lost, now)
            self._wake()

    def stir(self, link: Link) -> None:
        """Something is said to a worker: time may bring something there, unless it is gone."""
        if link in self._links:
            self._stirred[link] = None

    def _tick_links(self, now: float) -> None:
        """Time passes for whoever is not quiet; to look at all of ten thousand each time took 4 % of a core."""
        for second in sorted(second for second in self._asleep if second <= now):
            for link in self._asleep.pop(second):
                link.wakes = 0
                self._stirred[link] = None
        for link in list(self._stirred):
            if link.session.is_quiet(now):
                link.connection.channel.rest()
                del self._stirred[link]
                self._sleep(link, math.ceil(link.session.quiet_until))
                continue
            for action in link.session.tick(now):
                self.carry_out(link, action)
            if link.member is None:
                continue
            late = link.session.overdue(now)
            if late:
                self._chores.spawn(self._take_back(link.member, late))
            if link.session.unanswered(now):
                self._chores.spawn(self._give_up(link.member))

    def _sleep(self, link: Link, wakes: int) -> None:
        """Look at it again in the second `wakes`, or not at all (0)."""
        if wakes == link.wakes:
            return
        if link.wakes:
            del self._asleep[link.wakes][link]
        if wakes:
            self._asleep.setdefault(wakes, {})[link] = None
        link.wakes = wakes

    async def _publish(self) -> None:
        if not self._feed.watched:
            return
        at = self._clock.wall()
        for member in self._fleet:
            session = member.session
            data = {
                "duty": session.duty,
                "user_load": session.user_load,
                "reason": session.reason,
                "round_trip_s": session.round_trip_s,
                "leases": len(session.held),
            }
            self._feed.publish(Event(type="worker.live", id=member.row.id, at=at, data=data))
        stats = {
            "workers": len(self._fleet),
            "leases": sum(len(member.session.held) for member in self._fleet),
            "judging": sum(len(member.session.judging) for member in self._fleet),
        }
        self._feed.publish(Event(type="pool.stats", at=at, data=stats))

    async def _take_back(self, member: Member, late: list[LeaseRef]) -> None:
        """Somebody else is asked instead; the worker rests, and must earn its place anew."""
        log.warning("a worker did not end a task within its time limit", extra={"worker": member.row.id})
        member.session.lapsed(late, self._clock.monotonic())
        member.send(Cancel(leases=late, reason="its time limit is over"))
        await self._store.hand_back(
            member.row.id, late, self._clock.wall(), "not ended within its time limit", untouched=False
        )
        self._wake()

    async def _give_up(self, member: Member) -> None:
        """It was given work, and does not answer: somebody else is asked. What it says later may still count."""
        session, now = member.session, self._clock.monotonic()
        given = session.unanswered(now)
        keep = [ref for ref in session.held_refs() if ref not in given]
        log.info("a worker that was idle does not answer", extra={"worker": member.row.id})
        session.lapsed(given, now)
        await self._store.release(member.row.id, keep, now, self._clock.wall(), "its worker did not answer")
        self._wake()

    # -- decisions

    def session(self) -> WorkerSession:
        """A session for a new connection."""
        return WorkerSession(self._config, self._clock.monotonic(), slots_for)

    def channel(self) -> Channel[FromWorker]:
        """A sealed channel for a new connection."""
        return Channel.responder(self._keys.statics, self._keys.pool_id, entropy=self._entropy)

    async def receive(self, link: Link, message: FromWorker) -> None:
        """A message of a worker: decide, then carry out."""
        self._stirred[link] = None
        for action in link.session.receive(message, self._clock.monotonic()):
            if isinstance(action, core.Admit):
                await self._admit(link, action.hello)
            else:
                self.carry_out(link, action)

    def carry_out(self, link: Link, action: core.Action) -> None:
        """Do what a session decided. Never waits."""
        member = link.member
        match action:
            case core.Send():
                link.connection.send(action.message)
            case core.End():
                link.silence = action.silence
                link.connection.end(action.code, action.reason)
            case core.Refill():
                if self._store.has_ready_work() or self._store.tails():  # what comes later wakes by itself
                    self._wake()
            case core.Leave():
                link.bye = True
            case core.Admit():
                raise AssertionError("a Hello is answered before the next message is read")
            case _ if member is None:
                raise AssertionError(f"{type(action).__name__} before the worker was let in")
            case core.Take():
                self._chores.spawn(self._take(member, action))
            case core.Renew():
                self._fleet.changed()
                if action.refs or action.sweep:
                    self._chores.spawn(self._renew(member, action))
                else:  # it holds nothing: of most heartbeats of a large fleet nothing follows
                    member.send(self._pulse(member, action.echo, []))
            case core.HandBack():
                self._proving.refused([ref.task for ref in action.trials])
                self._chores.spawn(self._hand_back(member, action))
            case core.Judge():
                self._chores.spawn(self._results.arrived(member, action))
            case core.Tell():
                self._tell(member, action)

    def carry_out_for(self, member: Member, action: core.Action) -> None:
        """Do what a session decided because of something that came from elsewhere than its connection."""
        for link in self._links:
            if link.member is member:
                self.carry_out(link, action)
                return

    async def _take(self, member: Member, action: core.Take) -> None:
        lost = await self._store.taken(member.row.id, action.refs, self._clock.monotonic())
        member.session.drop(lost)

    async def _renew(self, member: Member, action: core.Renew) -> None:
        session, now = member.session, self._clock.monotonic()
        lost = await self._store.renew(member.row.id, action.refs, now)
        session.drop(lost)
        for ref in action.refs:
            if ref not in lost and core.key_of(ref) not in session.held and core.key_of(ref) not in session.judging:
                await self._adopt(member, ref)
        if action.sweep:
            session.never_came(action.refs)
            keep = [*action.refs, *session.held_refs()]
            if await self._store.release(member.row.id, keep, now, self._clock.wall()):
                self._wake()
        member.send(self._pulse(member, action.echo, list(lost)))

    def _pulse(self, member: Member, echo: float, lost: list[LeaseRef]) -> Pulse:
        """The answer to a heartbeat. Where many are idle, each may be silent for the longer.

        Not who comes through a tunnel: those end connections that say nothing for a minute or two.
        """
        idle_s = 0.0
        if sees_our_leaf(member.hello, self._config.leaves):
            most_s = min(self._config.idle_most_s, len(self._fleet) / self._config.idle_beats)
            idle_s = member.session.calm(most_s, self._clock.monotonic())
        return Pulse(echo=echo, now=self._clock.wall(), lost=lost, idle_s=idle_s)

    async def _adopt(self, member: Member, ref: LeaseRef) -> None:
        task = await self._store.task(ref.task)
        job = await self._store.job(task.job) if task is not None else None
        if task is None or job is None or standing(task, ref, member.row.id) is not Standing.HELD:
            return  # its result was judged while the store was asked
        lease = Lease(job=job, task=task, attempt=ref.attempt, token=ref.token)
        member.session.adopt(lease, member.profile.seconds(task.spec.cost), self._clock.monotonic())

    async def _hand_back(self, member: Member, action: core.HandBack) -> None:
        for refs, untouched in ((action.refs, True), (action.begun, False)):
            if refs:
                await self._store.hand_back(member.row.id, refs, self._clock.wall(), untouched=untouched)
        self._wake()

    def _tell(self, member: Member, action: core.Tell) -> None:
        held = next((held for key, held in member.session.held.items() if key[0] == action.task), None)
        if held is None or held.trial is not None:
            return
        if action.type == "log":
            job, number, at = held.lease.job.id, held.lease.task.number, self._clock.wall()
            self.printed.add(job, number, member.row.name, action.lines, at)
        if not self._feed.watched:
            return
        data = {"submitter": held.lease.job.submitter, "worker": member.row.id, "task": held.lease.task.number}
        data |= {"share": action.share} if action.type == "task.progress" else {"lines": list(action.lines)}
        self._feed.publish(Event(type=action.type, id=held.lease.job.id, at=self._clock.wall(), data=data))

    # -- letting in

    async def _admit(self, link: Link, hello: Hello) -> None:
        session, channel = link.session, link.connection.channel
        try:
            admitted = await self._doorman.admit(hello, channel.remote_static, channel.h, link.connection.peer)
        except (InviteRefused, TooManyRequests, Unavailable) as error:
            self._reject(link, error)
            return
        except HandshakeFailed as error:
            log.warning("a worker could not prove who it is", extra={"peer": link.connection.peer})
            link.connection.end(1008, error.code)
            session.phase = Phase.ENDED
            return
        except MoreGPUError as error:
            self._reject(link, error)
            return
        if session.phase is not Phase.ADMITTING:
            return  # its time ran out in the meantime
        await self._welcome(link, hello, admitted)

    def _reject(self, link: Link, error: MoreGPUError) -> None:
        again = isinstance(error, TooManyRequests) or error.status >= 500
        for action in link.session.reject(error.code, error.detail, error.hint, again=again):
            self.carry_out(link, action)

    async def _welcome(self, link: Link, hello: Hello, admitted: Admitted) -> None:
        session, config, row = link.session, self._config, admitted.row
        token = "mgw_" + urlsafe_b64encode(self._entropy(32)).rstrip(b"=").decode()
        member = Member(row, hello, session, link.say, link.connection.end, self._clock.wall())
        link.bearer = _hash(token)
        welcome = Welcome(
            worker=row.id,
            pool=self._keys.pool_id,
            pool_name=self.pool_name,
            ci_pub=self._keys.ci_pub,
            blob_token=token,
            heartbeat_s=config.heartbeat_s * min(MOST_SLOWED, 1.0 + len(self._fleet) / FLEET_THAT_SLOWS),
            spread_s=max(2.0, len(self._fleet) / 300),
            pending=not row.approved,
            leaves=list(config.leaves),
            next_cs=self._keys.next_cs_pub,
            next_cs_signature=self._keys.next_cs_signature(),
            now=self._clock.wall(),
        )
        actions = session.welcome(welcome, policy_of(row), paused=row.paused, draining=row.draining)
        session.quarantined = row.trust.quarantined
        member.must_prove = trials_due(config, row, admitted.before)
        link.member = member
        self._unconfirmed -= 1
        self._bearers[link.bearer] = member
        for action in actions:
            self.carry_out(link, action)
        self.prove_if_due(member)
        await self._presence.arrive(member)

    def prove_if_due(self, member: Member) -> None:
        """Begin the trials of a worker that needs them and may work."""
        if member.must_prove and member.session.approved and not member.session.paused:
            member.must_prove = False
            member.session.on_trial = True
            self._chores.spawn(self._prove(member))

    async def _prove(self, member: Member) -> None:
        await self._proving.prove(member)
        self._wake()


class Link:
    """One connection with the session that decides for it."""

    def __init__(self, hub: Hub, socket: WorkerSocket) -> None:
        self.session = hub.session()
        channel = hub.channel()
        self.connection = Connection(socket, channel, lambda message: hub.receive(self, message))
        self.member: Member | None = None
        self.bearer = b""
        self.silence = False
        self.bye = False
        self.wakes = 0
        """The second in which it is looked at; 0: always."""
        self._hub = hub

    def say(self, message: FromCoordinator, *, may_wait: bool = False) -> None:
        """Send it."""
        self._hub.stir(self)
        self.connection.send(message, may_wait=may_wait)


def _hash(bearer: str) -> bytes:
    """Tokens are looked up by hash, so that no comparison tells how much of one was right."""
    return hashlib.blake2b(bearer.encode(), digest_size=32).digest()
