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
from typing import TYPE_CHECKING

from moregpu.blobs.cache import SealedCache
from moregpu.errors import KeyringLocked, MoreGPUError, NotConfigured
from moregpu.jobs import Blob
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.messages import Assignment, LeaseRef, Limits, ResultEntry, Welcome
from moregpu.wire.schedule import parse_schedule
from moregpu.worker.adapters import find_devices
from moregpu.worker.compute import Compute
from moregpu.worker.config import WorkerConfig
from moregpu.worker.connections import Connections, Dropped, Refused
from moregpu.worker.decisions import Action, Admitted, Close, Obey, Refusal, Run, Settled, Stop
from moregpu.worker.devices import lent_cores, machine_name, system_text, version
from moregpu.worker.duties import Duties, Sense
from moregpu.worker.functions.offer import FunctionOffer, offer_functions
from moregpu.worker.home import WorkerHome
from moregpu.worker.probes.senses import Senses
from moregpu.worker.results import SETTLE_S, KeptResults
from moregpu.worker.session import Identity, WorkerSession
from moregpu.worker.status import State, Status
from moregpu.worker.throttle.devices import Kind
from moregpu.worker.transfers import Transfers
from moregpu.worker.work import RESIDENT_SHARE, Work

if TYPE_CHECKING:
    from moregpu.worker.functions.room import FunctionRoom

_log = logging.getLogger(__name__)

KEYRING_S = 10.0
"""Between two tries to open a keyring that is locked."""


class Agent:
    """One worker, from its start to `stop`."""

    def __init__(
        self,
        home: WorkerHome,
        config: WorkerConfig,
        observe: Callable[[Status], None] | None = None,
        *,
        random: Random | None = None,
        sense: Sense = Senses,
        ran: Callable[[Assignment, float], None] = lambda _assignment, _seconds: None,
    ):
        """Prepare it; `run` starts it.

        Args:
            home: the worker's open state folder.
            config: how it is set up.
            observe: called, on the agent's thread, whenever the status changes.
            random: for jitter.
            sense: starts the probes.
            ran: called, on the agent's thread, with each task that was computed here and its seconds.

        Raises:
            NotConfigured: the folder belongs to no pool.
            InvalidRequest: a wrong schedule.
        """
        if home.enrolment is None:
            raise NotConfigured("this worker belongs to no pool", "give `moregpu join` an invite")
        parse_schedule(config.schedule)
        self._home = home
        self._config = config
        self._observe = observe
        self._random = random or SystemRandom()
        owner = Limits(ceiling=config.ceiling, schedule=config.schedule, paused=config.paused)
        self._duties = Duties(owner, self._decide_now, yields=config.yields, sense=sense)
        self._limits = self._duties.limits
        self._ran = ran
        self._computes: dict[str, Compute] = {}
        self._computes_on = ""
        self._functions_off = ""
        self._aside: dict[str, str] = {}  # device → why it is put aside
        self._kinds: dict[str, Kind] = {}
        self._approved = True
        self._state: State = "starting"
        self._shown = Status()
        self._room: FunctionRoom | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: Connections | None = None
        self._leaving = False

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
        self._left = asyncio.Event()
        keys = await self._keys()
        if keys is None:
            return
        enrolment = self._home.enrolment
        if enrolment is None:
            raise NotConfigured("this worker belongs to no pool", "give `moregpu join` an invite")
        cores = lent_cores(self._config.cores)
        found = await asyncio.to_thread(find_devices, cores, self._config.engine, self._config.device)
        self._found = found
        offer = await offer_functions(self._config, self._home.folder)
        self._functions_off = offer.trouble
        self._computes_on = found.told
        self._session = WorkerSession(
            keys,
            Identity(
                pool=enrolment.pool_id,
                ci_pub=enrolment.ci_pub,
                name=self._config.name or machine_name(),
                boot=os.urandom(16),
                system=system_text(),
                version=version(),
                devices=found.devices,
                kinds=offer.kinds,
                consent=offer.consent,
                isolation=offer.level.isolation,
            ),
            self._limits.owner,
            self._random,
        )
        if enrolment.invite_id:
            self._session.invite = (enrolment.invite_id, enrolment.invite_secret)
        self._connections = connections = Connections(
            self._home, self._session, self._perform, self._connection_changed, self._config.enrol_wait_s
        )
        self._results = KeptResults(self._home.folder / "results")
        self._session.restore(self._results.load(), self._now())
        self._transfers = Transfers(SealedCache(self._home.folder / "cache", self._config.cache_bytes))
        self._work = Work(
            self._session,
            self._computes,
            self._transfers,
            connections.wake,
            self._kept,
            self._now,
            self._ran,
            self._put_aside,
            self._taken_back,
            resident_bytes=found.devices[0].memory_bytes // RESIDENT_SHARE,
            unload_s=self._config.unload_s,
        )
        for device in found.devices:
            self._kinds[device.id] = device.kind
            self._computes[device.id] = Compute(
                self._work,
                device=device.id,
                cores=cores,
                memory_bytes=device.memory_bytes,
                adapter=found.adapters.get(device.id, ""),
                hang_s=self._config.hang_s,
                unload_s=self._config.unload_s,
                again_s=self._config.again_s,
            )
        self._open_room(offer, cores)
        self._settling: asyncio.TimerHandle | None = None
        gpus = [device.name for device in found.devices if device.kind == "gpu"]
        self._duties.watch(
            self._kinds, self._aside, self._own_processes, lambda: self._call(self._decide_now), gpus
        )  # fmt: skip
        self._decide_now()
        self._show("connecting", "")
        try:
            async with asyncio.TaskGroup() as group:
                deciding = group.create_task(self._keep_deciding())
                try:
                    await connections.stay()
                finally:
                    deciding.cancel()
        except ExceptionGroup as errors:  # what `except*` raises is wrapped again by Python 3.11.2, as Debian 12 has it
            typed, others = errors.split(MoreGPUError)
            if typed is None or others is not None:
                raise
            raise typed.exceptions[0] from None
        finally:
            if self._settling is not None:
                self._settling.cancel()
            self._duties.close()
            for kept in self._session.kept.values():
                self._results.keep(kept.entry)
            await self._work.close()
            for compute in self._computes.values():
                await compute.close()
            if self._room is not None:
                await self._room.close()
            self._transfers.close()

    async def _keys(self) -> WorkerKeys | None:
        """The worker's keys; waits for a locked keyring. None: stopped meanwhile."""
        while not self._leaving:
            try:
                return await asyncio.to_thread(self._home.keys)
            except KeyringLocked as error:
                self._show("starting", error.detail)
                try:
                    async with asyncio.timeout(KEYRING_S):
                        await self._left.wait()
                except TimeoutError:
                    pass
        return None

    # -- what the session decides

    def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Run(assignment=assignment):
                    self._duties.set_busy(True)
                    self._work.run(assignment)
                case Stop(ref=ref):
                    self._work.stop(ref)
                case Settled(ref=ref):
                    self._results.drop(ref)
                case Admitted(welcome=welcome):
                    self._admitted(welcome)
                    self._approved = not welcome.pending
                    self._try_out()
                    self._show(self._settled_state(), self._limits.decision.reason)
                case Obey(limits=limits, approved=approved):
                    self._approved = approved
                    self._limits.set_admin(limits)
                case Close(reason=reason):
                    raise Dropped(reason)
                case Refusal(error=error, again=again):
                    raise Refused(error, again)

    def _try_out(self) -> None:
        """See that the best device opens; each device's process starts with its first task, and not before."""
        working = (compute for compute in self._computes.values() if not compute.aside)
        best = next(working, None)
        if best is not None:
            best.try_out()

    def _put_aside(self, device: str, reason: str, waiting: list[LeaseRef]) -> None:
        """A device is gone: what waits for it goes back, and the pool learns by a new Hello what is left.

        Nothing more is said on this connection, so that the failure of its task is heard only when nobody would give
        it to the same device again.
        """
        self._aside[device] = reason
        self._perform(self._session.put_aside(device, waiting, f"{device} is put aside"))
        if self._connections is not None:
            self._connections.renew(f"{device} is put aside")
        self._decide_now()
        self._try_out()

    def _taken_back(self, device: str) -> None:
        """A device works again: the pool learns by a new Hello that it is there."""
        del self._aside[device]
        self._session.take_back(tuple(each for each in self._found.devices if each.id not in self._aside))
        if self._connections is not None:
            self._connections.renew(f"{device} works again")
        self._decide_now()

    def _admitted(self, welcome: Welcome) -> None:
        """Keep what a Welcome said."""
        if self._connections is not None:
            self._connections.admitted()
            self._transfers.connected(self._connections.address, self._connections.leaf, welcome.blob_token)
        self._home.admitted(welcome)

    # -- results

    def _kept(self, entry: ResultEntry) -> None:
        """A result was made: one that a blob hangs on goes to disk at once, a small one if it is not settled soon."""
        if any(isinstance(tensor.data, Blob) for tensor in entry.outputs.values()):
            self._results.keep(entry)
        elif self._settling is None:
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._keep_old)

    def _keep_old(self) -> None:
        self._settling = None
        made = ((kept.made_at, kept.entry) for kept in self._session.kept.values())
        if self._results.keep_old(made, self._now()):
            self._settling = asyncio.get_running_loop().call_later(SETTLE_S, self._keep_old)

    # -- the throttle

    async def _keep_deciding(self) -> None:
        """Look at the clock, the owner and the load, all the time."""
        beats = 0
        while True:
            await asyncio.sleep(self._duties.period_s(busy=self._work.running > 0))
            self._duties.set_busy(self._work.running > 0)
            self._session.user_load = self._duties.others
            self._decide_now()
            if self._connections is not None and not self._connections.is_open:  # else the writer does
                self._perform(self._session.tick(self._now()))
            beats += 1
            if beats % 10 == 0:
                self._session.hot = self._transfers.cache.hot()

    def _decide_now(self) -> None:
        """Decide anew, and tell engines, the pool and people what is another now."""
        session, now = self._session, self._now()
        self._duties.look([*self._computes.items(), *([("functions", self._room)] if self._room is not None else [])])
        shares, reason = self._duties.told(now)
        if (reason, shares) != (session.reason, session.duty):
            self._perform(session.set_duty(shares, reason, now))
            if self._connections is not None:
                self._connections.wake()
        session.owner = self._limits.owner
        self._show(self._settled_state() if session.member else self._state, self._limits.decision.reason)

    def _open_room(self, offer: FunctionOffer, cores: int) -> None:
        """Let functions in, where they are offered."""
        self._room = offer.room(self._work, cores)
        if self._room is not None:
            self._work.rooms["function"] = self._room

    def _own_processes(self) -> list[int]:
        """Whose load is not the owner's."""
        functions = self._room.pids if self._room is not None else []
        return [
            os.getpid(),
            *functions,
            *(compute.pid for compute in self._computes.values() if compute.pid is not None),
        ]

    def _leave(self) -> None:
        if self._leaving:
            return
        self._leaving = True
        self._show("leaving", "")
        self._left.set()
        if self._connections is not None:
            self._perform(self._session.leave("the worker stops"))
            self._connections.leave()

    def _connection_changed(self) -> None:
        self._transfers.disconnected()
        if not self._leaving:
            self._show("connecting", "")

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
        link = self._connections
        status = Status(
            state=state,
            reason=link.trouble if link is not None and state == "connecting" else reason,
            pool_name=enrolment.pool_name if enrolment else "",
            fingerprint=enrolment.fingerprint if enrolment else "",
            worker=session.keys.worker_id if session else "",
            name=session.identity.name if session else self._config.name,
            address=link.address if link is not None else "",
            duty=self._limits.decision.value,
            ceiling=self._limits.ceiling,
            schedule=self._limits.owner.schedule,
            running=work.running if work else 0,
            kept=len(session.kept) if session else 0,
            done=work.tasks_done if work else 0,
            failed=work.tasks_failed if work else 0,
            busy_s=work.busy_s if work else 0.0,
            retry_s=link.retry_s if link is not None else None,
            asked=self._limits.admin.ceiling,
            others=round(20 * self._duties.others) / 20,
            computes_on=self._computes_on,
            aside="; ".join(f"{device} is put aside: {why}" for device, why in self._aside.items()),
            functions_off=self._functions_off,
            owner_paused=self._limits.owner.paused,
        )
        if status != self._shown:
            self._shown = status
            if self._observe is not None:
                self._observe(status)

    @staticmethod
    def _now() -> float:
        return time.monotonic()
