"""One history: a pool from one seed, everything that happens to it, and whether it kept its promises."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import random
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from moregpu.coordinator import proving, scheduler
from moregpu.coordinator.store.protocol import InviteRow
from moregpu.errors import MoreGPUError, Unreachable
from moregpu.ids import named
from moregpu.wire.api import WorkerChange
from moregpu.wire.identity import PoolKeys, WorkerKeys
from moregpu.wire.invite import secret_hash
from moregpu.workloads import protocol as workload_protocol
from moregpu.workloads.function import cut as function_cut
from moregpu.workloads.function import plan as function_plan
from moregpu.workloads.kernel import plan as kernel_plan
from tests.simulation.behaviour import BYTES, FLOPS, KINDS
from tests.simulation.coordinator import ADMIN, Coordinator
from tests.simulation.dear import PLACES, Signer, forget
from tests.simulation.faults import strike
from tests.simulation.invariants import Watch
from tests.simulation.loop import BIRTH, Entropy, SimulatedLoop, Stuck
from tests.simulation.rest import at_rest, unfinished
from tests.simulation.script import HONEST, HORIZON_S, Machine, Script
from tests.simulation.submitter import Submitter
from tests.simulation.worker import Worker

LOOK_S = 0.5
PATIENCE_S = 900.0
"""After the faults stopped, everything that was accepted must have ended within this."""

MAX_HANDLED = 400_000
"""More callbacks than this are a part that never rests."""

RESCUE = Machine(name="rescue", kind="honest", speed=3.0, delay_s=0.01, lab=True)
NEEDED = 2
"""Honest machines of different owners in every group at the end: some jobs want two owners to agree."""

UNRULY = ("engine trouble",)


@dataclass(frozen=True)
class Outcome:
    """What a history came to."""

    seed: int
    problems: tuple[str, ...]
    digest: str
    """Of everything that was sent, committed and done, with its times: two runs of one script have the same."""
    handled: int
    commits: int
    accepted: int
    lives: int
    ended_s: float
    trace: tuple[str, ...] = ()


class History:
    """A pool and all that happens to it."""

    coordinator_class = Coordinator

    def __init__(self, script: Script, *, verbose: bool = False) -> None:
        self.script = script
        self.loop = SimulatedLoop()
        self.watch = Watch(self)
        self.lossy_until: dict[str, float] = {}
        self._admins: set[asyncio.Task[None]] = set()
        self.workers: dict[str, Worker] = {}
        self.submitters: list[Submitter] = []
        self.healed = False
        self._hash = hashlib.blake2b(digest_size=16)
        self._verbose = verbose
        self._trace: list[str] = []
        self._nobody = contextvars.Context()
        self._entropy = Entropy(random.Random(f"{script.seed} world"))
        self.random = random.Random(f"{script.seed} admin")
        self.pool_keys = PoolKeys(
            X25519PrivateKey.from_private_bytes(self._entropy(32)), Signer(self._entropy(32))
        )  # fmt: skip
        self.coordinator = self.coordinator_class(self)

    @property
    def unruly(self) -> bool:
        """Whether some worker may fail tasks for a reason."""
        return any(machine.kind not in HONEST for machine in self.script.machines) or any(
            fault.what in UNRULY for fault in self.script.faults
        )

    @property
    def may_collude(self) -> bool:
        """Whether two owners may hand in the same lie: two who agree are believed where a job asked for no more."""
        return sum(KINDS[machine.kind].lies for machine in self.script.machines) > 1

    def nobody(self) -> contextvars.Context:
        """The context of what belongs to no process."""
        return self._nobody.copy()

    def trace(self, what: str) -> None:
        """Something happened."""
        self._hash.update(f"{self.loop.now:.9f} {what}\n".encode())
        if self._verbose:
            self._trace.append(f"{self.loop.now - BIRTH:9.4f} {what}")

    def note(self, who: str, data: bytes) -> None:
        """Bytes arrived."""
        self._hash.update(f"{self.loop.now:.9f} {who} ".encode())
        self._hash.update(data)
        if self._verbose:
            digest = hashlib.blake2b(data, digest_size=4).hexdigest()
            self._trace.append(f"{self.loop.now - BIRTH:9.4f} {who} gets {len(data)} bytes {digest}")

    # -- running

    def run(self) -> Outcome:
        """From birth to rest."""
        forget()
        kernel_plan.GRAINS_WANTED = self.script.grains
        asyncio.set_event_loop(self.loop)
        main = self.loop.create_task(self._main(), context=self.nobody())
        with _listening(self.watch):
            try:
                self.loop.run_until_complete(main)
            except Stuck as stuck:
                self.watch.broken(str(stuck))
            finally:
                asyncio.set_event_loop(None)
        for fault in self.loop.faults:
            self.watch.broken(fault)
        outcome = Outcome(
            seed=self.script.seed,
            problems=tuple(self.watch.problems),
            digest=self._hash.hexdigest(),
            handled=self.loop.handled,
            commits=self.watch.commits,
            accepted=self.watch.accepted_tasks,
            lives=self.coordinator.lives,
            ended_s=self.loop.now - BIRTH,
            trace=tuple(self._trace),
        )
        self.loop.abandon()
        return outcome

    async def _main(self) -> None:
        script = self.script
        self.coordinator.start()
        for machine in script.machines:
            await self._add(machine)
        for number, work in enumerate(script.works):
            submitter = Submitter(self, number, work)
            self.submitters.append(submitter)
        for submitter in self.submitters:
            submitter.start()
        for fault in script.faults:
            self.loop.call_at(BIRTH + fault.at, strike, self, fault)
        while self.loop.now < BIRTH + HORIZON_S + 5.0 and not (
            self.loop.now >= BIRTH + script.quiet_at and self._is_over()
        ):
            if not await self._look():
                return
        await self._heal()
        until = self.loop.now + PATIENCE_S
        while not self._is_over():
            if not await self._look():
                return
            if self.loop.now > until:
                self.watch.broken(f"{PATIENCE_S:.0f} s after the last fault: {'; '.join(unfinished(self))}")
                return
        if await self._look():
            await at_rest(self)

    async def _look(self) -> bool:
        """Let time pass; returns whether to go on."""
        await asyncio.sleep(LOOK_S)
        self.watch.look()
        if self.loop.handled > MAX_HANDLED:
            self.watch.broken(f"{self.loop.handled} callbacks: some part never rests")
        return not (self.watch.problems or self.loop.faults)

    def _is_over(self) -> bool:
        return not unfinished(self)

    # -- machines

    async def _add(self, machine: Machine) -> None:
        seed = f"{self.script.seed} {machine.name} keys"
        entropy = Entropy(random.Random(seed))
        keys = WorkerKeys(X25519PrivateKey.from_private_bytes(entropy(32)), Signer(entropy(32)))
        worker = Worker(self, machine, KINDS[machine.kind](), keys)
        secret = entropy(16)
        invite = InviteRow(
            id=named("i", entropy(16)),
            secret_hash=secret_hash(secret),
            owner=machine.name,
            groups=("lab",) if machine.lab else (),
            uses_left=1,
            expires_at=self.coordinator.clock.wall() + 1e6,
            created_at=self.coordinator.clock.wall(),
        )
        worker.invite = (invite.id, secret)
        self.workers[machine.name] = worker
        await self.admin(lambda desk: desk.store.add_invite(invite))
        self.loop.call_at(max(self.loop.now, BIRTH + machine.joins_at), worker.start)

    def clone(self, name: str) -> None:
        """Another machine with the same keys."""
        original = self.workers[name]
        twin = f"{name}'s twin"
        if twin not in self.workers:
            machine = replace(original.machine, name=twin)
            self.workers[twin] = Worker(self, machine, KINDS[machine.kind](), original.keys, is_twin=True)
            self.workers[twin].start()

    async def admin(self, work: Callable[[Any], Any]) -> None:
        """Something that an admin does, again and again until it is done."""
        while True:
            try:
                await self.coordinator.call(self.random, work)
            except (Unreachable, MoreGPUError) as error:
                if error.status in (404, 409):
                    return
                await asyncio.sleep(0.5)
            else:
                return

    def begin_admin(self, work: Callable[[Any], Any]) -> None:
        """The same beside all else."""
        task = self.loop.create_task(self.admin(work))
        self._admins.add(task)
        task.add_done_callback(self._admins.discard)

    # -- the end of all faults

    async def _heal(self) -> None:
        """Everything works again, and somebody honest is there."""
        self.healed = True
        self.trace("all faults end")
        self.lossy_until.clear()
        drive = self.coordinator.drive
        drive.full, drive.slow_until = False, 0.0
        self.coordinator.process.dies_at = None
        # A frozen coordinator or a full disk kept some waiting: what is done to a worker after this is its last word.
        await asyncio.gather(*self._admins)
        for worker in list(self.workers.values()):
            worker.cut_until = worker.paused_until = worker.trouble_until = 0.0
            agent = worker.agent
            if agent is not None:
                agent.process.dies_at = None
                if agent.connection is not None and not worker.gone:
                    agent.connection.up.stalled_until = agent.connection.down.stalled_until = 0.0
            worker.start()
            if worker.machine.kind in HONEST:
                await self.admin(
                    lambda desk, id=worker.id: desk.change_worker(ADMIN, id, WorkerChange(action="resume"))
                )
        twins = {worker.id for worker in self.workers.values() if worker.is_twin}
        able = sum(
            worker.able and worker.machine.lab and worker.machine.kind in HONEST and worker.id not in twins
            for worker in self.workers.values()
        )
        agree = any(work.check == "agree" for work in self.script.works)
        for number in range(able, NEEDED if agree else 1):
            await self._add(replace(RESCUE, name=f"rescue{number}"))


@contextmanager
def slow_world() -> Generator[None]:
    """Simulated machines are slower than real ones by one factor; so are the figures for those that nobody measured."""
    places: list[tuple[Any, str, Any]] = [
        *((module, "NOMINAL_FLOPS", FLOPS) for module in (workload_protocol, scheduler, kernel_plan)),
        *((module, "NOMINAL_BYTES", BYTES) for module in (workload_protocol, scheduler, kernel_plan)),
        (kernel_plan, "GRAINS_WANTED", kernel_plan.GRAINS_WANTED),
        *((module, "CALL_AMOUNT", function_plan.CALL_S * FLOPS) for module in (function_plan, function_cut)),
        (proving, "LADDER", (("matmul", (8, 16), ("matmul",)), ("vector_add", (64, 256), ("vector_add", "relu")))),
        *PLACES,
    ]
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(places, before, strict=True):
            setattr(module, name, value)


class _Ear(logging.Handler):
    """What the pool logs as an exception of its own is a finding; typed errors (a full disk) are not."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(logging.ERROR)
        self.watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, MoreGPUError):
            frames = traceback.extract_tb(error.__traceback__)[-6:]
            where = " ← ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
            self.watch.broken(f"{record.getMessage()}: {error!r} in {where}")


@contextmanager
def _listening(watch: Watch) -> Generator[None]:
    root = logging.getLogger("moregpu")
    level, propagate, ear = root.level, root.propagate, _Ear(watch)
    root.addHandler(ear)
    root.setLevel(logging.ERROR)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(ear)
        root.setLevel(level)
        root.propagate = propagate
