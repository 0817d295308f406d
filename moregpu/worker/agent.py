"""The worker's agent: keeps the session with the coordinator alive and carries out what it decides.

    agent = Agent(home, config, observe=show)
    await agent.run()          # until `stop()`, or a refusal that is final

`pause`, `resume`, `set_limits`, `stop` and `status` may be called from any thread: the tray's icon lives on another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from random import Random, SystemRandom

from moregpu.blobs.cache import SealedCache
from moregpu.errors import (
    HandshakeFailed,
    InviteRefused,
    KeyringLocked,
    MoreGPUError,
    NotConfigured,
    Unavailable,
    Unreachable,
    VersionMismatch,
)
from moregpu.jobs import Blob
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.messages import Limits, ResultEntry, Welcome
from moregpu.worker.compute import Compute
from moregpu.worker.config import WorkerConfig
from moregpu.worker.devices import cpu_device, lent_cores, machine_name, system_text, version
from moregpu.worker.home import WorkerHome
from moregpu.worker.limits import Decide, WorkerLimits
from moregpu.worker.link import Link
from moregpu.worker.load import LoadProbe
from moregpu.worker.results import SETTLE_S, KeptResults
from moregpu.worker.session import (
    Action,
    Admitted,
    Close,
    Identity,
    Obey,
    Refusal,
    Run,
    Settled,
    Stop,
    WorkerSession,
)
from moregpu.worker.status import State, Status
from moregpu.worker.throttle.duty import fixed_duty
from moregpu.worker.throttle.schedule import parse_schedule
from moregpu.worker.transfers import Transfers
from moregpu.worker.work import Work
from moregpu.workloads import KINDS

_log = logging.getLogger(__name__)

DECIDE_S = 0.5
"""Period of the look at clock, limits and load."""

LEAVE_S = 1.5
"""How long `stop` tries to say goodbye."""

KEYRING_S = 10.0
"""Between two tries to open a keyring that is locked."""

OTHER_VERSION_S = 30.0
"""Between two tries at a coordinator of another version: somebody has to update something."""


class _Dropped(Exception):
    """The connection is to be closed; another follows."""


class _Refused(Exception):
    """The coordinator refused the worker."""

    def __init__(self, error: MoreGPUError, again: bool):
        super().__init__(str(error))
        self.error = error
        self.again = again


class Agent:
    """One worker, from its start to `stop`."""

    def __init__(
        self,
        home: WorkerHome,
        config: WorkerConfig,
        observe: Callable[[Status], None] | None = None,
        *,
        decide: Decide = fixed_duty,
        random: Random | None = None,
    ):
        """`observe` is called, on the agent's thread, whenever the status changes. `decide` is the throttle.

        Raises `NotConfigured` when the folder belongs to no pool, `InvalidRequest` for a wrong schedule.
        """
        if home.enrolment is None:
            raise NotConfigured("this worker belongs to no pool", "give `moregpu join` an invite")
        parse_schedule(config.schedule)
        self._home = home
        self._config = config
        self._observe = observe
        self._random = random or SystemRandom()
        self._limits = WorkerLimits(Limits(ceiling=config.ceiling, schedule=config.schedule), self._decide_now, decide)
        self._approved = True
        self._state: State = "starting"
        self._trouble = ""
        self._retry_s: float | None = None
        self._address = ""
        self._shown = Status()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._leaving = False
        self._never_reached_until: float | None = None

    # -- from any thread

    def pause(self, for_s: float | None = None) -> None:
        """Compute nothing, at once; nothing is lost. `for_s`: resume by itself after so many seconds."""
        self._call(lambda: self._limits.pause(for_s))

    def resume(self) -> None:
        """Go on."""
        self._call(self._limits.resume)

    def set_limits(self, limits: Limits) -> None:
        """The owner's ceiling and schedule from now on. Raises `InvalidRequest` for a wrong schedule."""
        parse_schedule(limits.schedule)
        self._call(lambda: self._limits.set_owner(limits))

    def stop(self) -> None:
        """Hand back what is not done, say goodbye, and end `run`."""
        self._call(self._leave)

    def status(self) -> Status:
        """How it stands."""
        return self._shown

    def _call(self, work: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work)

    # -- life

    async def run(self) -> None:
        """Work until `stop`; a coordinator that is away never ends it.

        Raises what only people can mend: `InviteRefused`, another refusal of the coordinator's that is final (revoked),
        `StateRefused`; and before the first Welcome also `Unreachable`, `HandshakeFailed`, `VersionMismatch`.
        """
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._left = asyncio.Event()
        keys = await self._keys()
        if keys is None:
            return
        enrolment = self._home.enrolment
        if enrolment is None:
            raise NotConfigured("this worker belongs to no pool", "give `moregpu join` an invite")
        device = cpu_device(lent_cores(self._config.cores))
        self._session = WorkerSession(
            keys,
            Identity(
                pool=enrolment.pool_id,
                ci_pub=enrolment.ci_pub,
                name=self._config.name or machine_name(),
                boot=os.urandom(16),
                system=system_text(),
                version=version(),
                devices=(device,),
                kinds=tuple(KINDS),
            ),
            self._limits.owner,
            self._random,
        )
        if enrolment.invite_id:
            self._session.invite = (enrolment.invite_id, enrolment.invite_secret)
        self._results = KeptResults(self._home.folder / "results")
        self._session.restore(self._results.load(), self._now())
        self._transfers = Transfers(SealedCache(self._home.folder / "cache", self._config.cache_bytes))
        computes: dict[str, Compute] = {}
        self._work = Work(self._session, computes, self._transfers, self._wake.set, self._kept, self._now)
        self._compute = computes[device.id] = Compute(
            self._work,
            device=device.id,
            cores=device.cores,
            memory_bytes=device.memory_bytes,
            hang_s=self._config.hang_s,
            unload_s=self._config.unload_s,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._settling: asyncio.TimerHandle | None = None
        self._load = LoadProbe()
        self._decide_now()
        try:
            async with asyncio.TaskGroup() as group:
                deciding = group.create_task(self._keep_deciding())
                self._connecting = group.create_task(self._stay_connected())
                await asyncio.wait([self._connecting])
                deciding.cancel()
        except* MoreGPUError as errors:
            raise errors.exceptions[0] from None
        finally:
            for timer in (self._timer, self._settling):
                if timer is not None:
                    timer.cancel()
            self._limits.close()
            self._keep_old()
            await self._work.close()
            await self._compute.close()
            self._transfers.close()

    async def _keys(self) -> WorkerKeys | None:
        """The worker's keys; waits for a locked keyring. None: stopped meanwhile."""
        while not self._leaving:
            try:
                return await asyncio.to_thread(self._home.keys)
            except KeyringLocked as error:
                self._show("starting", error.detail)
                await self._pause_for(KEYRING_S)
        return None

    # -- the link

    async def _stay_connected(self) -> None:
        """Connect, and connect again, for ever."""
        enrolment = self._home.enrolment
        if enrolment is not None and not enrolment.welcomed:
            self._never_reached_until = self._now() + self._config.enrol_wait_s
        turn = 0
        while not self._leaving:
            self._show("connecting", self._trouble)
            address, cs_pub, is_next = self._way(turn)
            turn += 1
            wait_s: float | None = None
            try:
                await self._connection(address, cs_pub, is_next)
                turn, self._trouble = turn - 1, "the connection was closed"  # that address was right: again
            except _Dropped as dropped:
                turn, self._trouble = turn - 1, str(dropped)
            except _Refused as refused:
                if not refused.again:
                    self._refused_for_good(refused.error)
                self._trouble, wait_s = str(refused), self._session.refused_retry_s()
            except (HandshakeFailed, VersionMismatch) as error:
                self._give_up_before_enrolment(error, turn)
                self._trouble, wait_s = error.detail, OTHER_VERSION_S if isinstance(error, VersionMismatch) else None
            except (Unreachable, Unavailable) as error:
                self._give_up_before_enrolment(error, turn)
                self._trouble = error.detail
            finally:
                self._transfers.disconnected()
                self._session.closed()
            if not self._leaving:
                self._retry_s = self._session.retry_s() if wait_s is None else wait_s
                _log.info("connecting again in %.1f s: %s", self._retry_s, self._trouble)
                self._show("connecting", self._trouble)
                await self._pause_for(self._retry_s)
                self._retry_s = None

    def _way(self, turn: int) -> tuple[str, bytes, bool]:
        """Address and session key of an attempt: all addresses with the newer key first, then with the older."""
        enrolment = self._home.enrolment
        if enrolment is None:
            raise NotConfigured("this worker belongs to no pool", "give `moregpu join` an invite")
        ways = [(address, cs_pub, cs_pub == enrolment.next_cs)
                for cs_pub in (enrolment.next_cs, enrolment.cs_pub) if cs_pub
                for address in enrolment.addresses]  # fmt: skip
        return ways[turn % len(ways)]

    def _give_up_before_enrolment(self, error: MoreGPUError, turn: int) -> None:
        """A pool that was never reached is a mistake somebody can mend now; one that was, comes back."""
        enrolment = self._home.enrolment
        if self._never_reached_until is None or enrolment is None or turn < len(enrolment.addresses):
            return
        if not isinstance(error, Unreachable | Unavailable) or self._now() >= self._never_reached_until:
            raise error

    def _refused_for_good(self, error: MoreGPUError) -> None:
        if isinstance(error, InviteRefused):
            self._home.forget_invite()
        raise error

    async def _connection(self, address: str, cs_pub: bytes, is_next: bool) -> None:
        """One connection, from its handshake to its end."""
        session = self._session
        link = await Link.open(address, session.keys, cs_pub, session.identity.pool)
        self._address, self._link = address, link
        if is_next:
            self._home.promote()
        session.opened(link.h, link.leaf, self._now())
        self._wake.set()
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write(link))
                try:
                    await self._read(link)
                finally:
                    writing.cancel()
        except* (_Dropped, _Refused, HandshakeFailed, Unreachable) as errors:
            raise errors.exceptions[0] from None
        finally:
            await link.close()

    async def _read(self, link: Link) -> None:
        async for messages in link.messages():
            now = self._now()
            for message in messages:
                self._perform(self._session.receive(message, now))
            self._wake.set()

    async def _write(self, link: Link) -> None:
        """Send what is ready, whenever something is: what became ready meanwhile shares messages and a signature."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            now = self._now()
            self._perform(self._session.tick(now))
            await link.send(self._session.outgoing(now))
            if self._leaving:
                raise _Dropped("leaving")
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(self._session.due(self._now()), self._wake.set)

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Run(assignment=assignment):
                    self._work.run(assignment)
                case Stop(ref=ref):
                    self._work.stop(ref)
                case Settled(ref=ref):
                    self._results.drop(ref)
                case Admitted(welcome=welcome):
                    self._note(welcome)
                    self._transfers.connected(self._address, self._link.leaf, welcome.blob_token)
                    self._never_reached_until, self._trouble = None, ""
                    self._approved = not welcome.pending
                    self._compute.warm_up()
                    self._show(self._settled_state(), self._limits.decision.reason)
                case Obey(limits=limits, approved=approved):
                    self._approved = approved
                    self._limits.set_admin(limits)
                case Close(reason=reason):
                    raise _Dropped(reason)
                case Refusal(error=error, again=again):
                    raise _Refused(error, again)

    def _note(self, welcome: Welcome) -> None:
        """Keep what a Welcome said; a full disk only means that the next start asks again."""
        try:
            self._home.admitted(welcome)
        except OSError as error:
            _log.warning("the state folder cannot be written: %s", error.strerror)

    # -- results

    def _kept(self, entry: ResultEntry) -> None:
        """A result was made: one that a blob hangs on goes to disk at once, a small one if it is not settled soon."""
        if any(isinstance(tensor.data, Blob) for tensor in entry.outputs.values()):
            self._results.keep(entry)
        elif self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._keep_old)

    def _keep_old(self) -> None:
        self._settling = None
        for kept in self._session.kept.values():
            self._results.keep(kept.entry)

    # -- the throttle

    async def _keep_deciding(self) -> None:
        """Look at the clock and the load, all the time."""
        beats = 0
        while True:
            await asyncio.sleep(DECIDE_S)
            self._decide_now()
            if not self._session.member:  # else the writer does
                self._perform(self._session.tick(self._now()))
            beats += 1
            if beats % 10 == 0:
                own = [os.getpid(), *([self._compute.pid] if self._compute.pid else [])]
                self._session.user_load = self._load.user_load(own)
                self._session.hot = self._transfers.cache.hot()

    def _decide_now(self) -> None:
        limits, session = self._limits, self._session
        if limits.look() or not session.duty:
            duty, reason = limits.decision.value, limits.decision.reason
            self._compute.set_duty(duty)
            self._perform(session.set_duty({self._compute.device: duty}, reason, self._now()))
            self._wake.set()
        session.owner = limits.owner
        self._show(self._settled_state() if session.member else self._state, limits.decision.reason)

    def _leave(self) -> None:
        if self._leaving:
            return
        self._leaving = True
        self._show("leaving", "")
        self._left.set()
        if self._connecting is None:
            return  # not under way yet
        self._perform(self._session.leave("the worker stops"))
        self._wake.set()
        goodbye_s = LEAVE_S if self._session.member else 0.0
        asyncio.get_running_loop().call_later(goodbye_s, self._connecting.cancel)

    async def _pause_for(self, seconds: float) -> None:
        """Sleep, unless `stop` comes first."""
        try:
            async with asyncio.timeout(seconds):
                await self._left.wait()
        except TimeoutError:
            pass

    # -- showing

    def _settled_state(self) -> State:
        if self._leaving:
            return "leaving"
        if not self._approved:
            return "pending"
        return "online" if self._limits.decision.value > 0.0 else "paused"

    def _show(self, state: State, reason: str) -> None:
        """Make the status, and tell the observer when it differs."""
        self._state = state
        enrolment = self._home.enrolment
        session: WorkerSession | None = getattr(self, "_session", None)
        work: Work | None = getattr(self, "_work", None)
        status = Status(
            state=state,
            reason=self._trouble if state == "connecting" else reason,
            pool_name=enrolment.pool_name if enrolment else "",
            fingerprint=enrolment.fingerprint if enrolment else "",
            worker=session.keys.worker_id if session else "",
            name=session.identity.name if session else self._config.name,
            address=self._address,
            duty=self._limits.decision.value,
            ceiling=self._limits.ceiling,
            schedule=self._limits.owner.schedule,
            running=work.running if work else 0,
            kept=len(session.kept) if session else 0,
            done=work.tasks_done if work else 0,
            failed=work.tasks_failed if work else 0,
            busy_s=work.busy_s if work else 0.0,
            retry_s=self._retry_s,
        )
        if status != self._shown:
            self._shown = status
            if self._observe is not None:
                self._observe(status)

    @staticmethod
    def _now() -> float:
        return time.monotonic()
