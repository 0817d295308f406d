"""A simulated worker: the real session core in an agent's shell that speaks over simulated pipes.

A `Worker` is a machine with its keys and its disk; an `Agent` is one process on it. The shell does what
`moregpu.worker.agent` does around the same core: dials, shakes hands, reads, writes what is due, keeps results until
their last word. Computing is real (the real workload on the real CPU engine) and takes simulated time.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from moregpu.blobs.format import seal
from moregpu.errors import HandshakeFailed, InviteRefused, MoreGPUError, NotFound, OutOfSpace, Unavailable, Unreachable
from moregpu.jobs import Blob, Tensor
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.messages import (
    MAX_INLINE_BYTES,
    Acknowledged,
    Assignment,
    LeaseRef,
    Limits,
    Result,
    ResultEntry,
    TaskError,
)
from moregpu.wire.retry import delays
from moregpu.wire.session import Channel
from moregpu.wire.statement import Described, Ran, content_digest, described, statement_of
from moregpu.worker.decisions import Action, Admitted, Close, Obey, Refusal, Run, Settled, Stop
from moregpu.worker.leases import Key, is_tiny, key_of
from moregpu.worker.session import RESEND_S, Identity, WorkerSession
from moregpu.workloads.arrays import as_array, as_bytes
from moregpu.workloads.function.spec import ARGUMENTS
from tests.simulation.behaviour import Behaviour, honest_outputs
from tests.simulation.calls import calls_in
from tests.simulation.channel import PlainChannel
from tests.simulation.loop import Entropy, Process
from tests.simulation.network import Connection
from tests.simulation.script import Machine

if TYPE_CHECKING:
    from tests.simulation.history import History

OPEN_S = 10.0
SETTLE_S = 0.1
RIGHT_TRIES = 3


class Worker:
    """A machine: what outlives its agent's process."""

    def __init__(
        self, history: History, machine: Machine, behaviour: Behaviour, keys: WorkerKeys, *, is_twin: bool = False
    ) -> None:
        self.history = history
        self.machine = machine
        self.behaviour = behaviour
        self.keys = keys
        self.is_twin = is_twin
        self.invite: tuple[str, bytes] | None = None
        self.ci_pub = b""
        self.results: dict[Key, ResultEntry] = {}
        """Results on disk."""
        self.receipts: dict[tuple[str, int], tuple[str, int, bytes]] = {}
        """(task, attempt) → receipt, of what the coordinator said it accepted."""
        self.cut_until = 0.0
        self.paused_until = 0.0
        self.trouble_until = 0.0
        self.refused = ""
        """Why the coordinator ended it for good."""
        self.gone = False
        self.lives = 0
        self.agent: Agent | None = None

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def id(self) -> str:
        return self.keys.worker_id

    @property
    def able(self) -> bool:
        """Whether it may and can come back."""
        return not (self.refused or self.gone or self.id in self.history.watch.revoked)

    def start(self) -> None:
        """Start the agent, unless it runs or was ended for good."""
        if self.refused or self.gone or (self.agent is not None and self.agent.process.alive):
            return
        self.lives += 1
        self.agent = Agent(self)
        self.agent.process.run(self.agent.begin)

    def crash(self) -> None:
        """`kill -9` of the agent; its supervisor starts another."""
        agent = self.agent
        if agent is None or not agent.process.alive:
            return
        self.history.trace(f"{self.name} dies")
        self.history.loop.kill(agent.process)
        if agent.connection is not None:
            agent.connection.sever()
        self.history.loop.call_later(
            agent.random.choice((0.05, 1.0, 8.0)), self.start, context=self.history.nobody()
        )  # fmt: skip

    def power_off(self) -> None:
        """The machine is gone for good, without a word: its connection is silent, and nobody closes it."""
        self.gone = True
        if self.agent is not None and self.agent.process.alive:
            self.history.trace(f"{self.name} is off")
            self.history.loop.kill(self.agent.process)
            if self.agent.connection is not None:
                self.agent.connection.stall(float("inf"))

    def cut(self, until: float, way: str) -> None:
        """The network between this machine and the coordinator is gone, in one direction or both."""
        if way == "both":
            self.cut_until = max(self.cut_until, until)
        if self.agent is not None and self.agent.connection is not None:
            self.agent.connection.stall(until, up=way != "down", down=way != "up")


class Agent:
    """One agent process."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.history = worker.history
        self.loop = worker.history.loop
        self.process = Process(worker.name)
        self.process.when_killed = worker.crash
        seed = f"{self.history.script.seed} {worker.name} {worker.lives}"
        self.random = random.Random(seed)
        self.entropy = Entropy(random.Random(f"{seed} entropy"))
        self.ahead_s = self.random.uniform(0.0, 1e5)
        self.connection: Connection | None = None
        self.session = WorkerSession(
            worker.keys,
            Identity(
                pool=self.history.pool_keys.pool_id,
                ci_pub=worker.ci_pub,
                name=worker.name,
                boot=self.entropy(16),
                devices=(worker.behaviour.device,),
                kinds=worker.behaviour.kinds,
            ),
            Limits(ceiling=1.0),
            random.Random(f"{seed} jitter"),
        )
        self.session.invite = worker.invite
        self.session.restore(worker.results.values(), self.now())
        self.bearer = ""
        self.channel: Any = None
        self.joined = False
        self.woken = False
        self.ended = False
        self.timer: asyncio.TimerHandle | None = None
        self.opening: asyncio.TimerHandle | None = None
        self.settling: asyncio.TimerHandle | None = None
        self.queue: deque[Assignment] = deque()
        self.unwanted: set[Key] = set()
        self.more = asyncio.Event()
        self.going = asyncio.Event()
        self.admin_paused = False

    def now(self) -> float:
        """This machine's monotonic clock."""
        return self.loop.now + self.ahead_s

    def begin(self) -> None:
        """Start up."""
        self.decide()
        self.loop.create_task(self.device())
        self.dial()

    # -- the link

    def dial(self) -> None:
        worker = self.worker
        if self.ended:
            return
        if worker.cut_until > self.loop.now:
            self.loop.call_later(OPEN_S, self.lost, None)
            return
        connection = self.history.coordinator.accept(self.random, worker.machine.delay_s)
        if connection is None:
            self.loop.call_later(0.01, self.lost, None)
            return
        self.connection, self.joined = connection, False
        context = self.process.context
        connection.down.arrive = lambda data: self.loop.call_soon(self.arrived, connection, data, context=context)
        connection.down.ended = lambda: self.loop.call_soon(self.lost, connection, context=context)
        keys, pool = worker.keys, self.history.pool_keys
        if self.history.script.noise:
            self.channel = Channel.initiator(keys.ws, pool.cs_pub, pool.pool_id, entropy=self.entropy)
        else:
            self.channel = PlainChannel(keys.ws_pub, self.entropy, initiator=True)
        try:
            connection.up.send(self.channel.start())
        except ConnectionResetError:
            self.lost(connection)
            return
        self.opening = self.loop.call_later(OPEN_S, self.lost, connection)

    def arrived(self, connection: Connection, data: bytes) -> None:
        if connection is not self.connection:
            return
        self.history.note(self.worker.name, data)
        try:
            messages = self.channel.receive(data)
        except HandshakeFailed:
            self.lost(connection)
            return
        if not self.joined:
            self.joined = True
            if self.opening is not None:
                self.opening.cancel()
            self.session.opened(self.channel.h, b"", self.now())
        for message in messages:
            if isinstance(message, Acknowledged):
                self.heard(message)
            self.perform(self.session.receive(message, self.now()))
        self.wake()

    def heard(self, message: Acknowledged) -> None:
        """Verdicts are promises."""
        for verdict in message.entries:
            self.history.watch.acknowledged(verdict.task, verdict.verdict, verdict.ledger)
            if verdict.verdict == "accepted" and verdict.ledger is not None:
                self.worker.receipts[verdict.task, verdict.attempt] = verdict.ledger

    def wake(self) -> None:
        """Something is to be sent, perhaps."""
        if not self.woken:
            self.woken = True
            self.loop.call_soon(self.write)

    def write(self) -> None:
        self.woken = False
        connection = self.connection
        if connection is None or not self.joined:
            return
        now = self.now()
        self.perform(self.session.tick(now))
        if self.connection is not connection:
            return
        try:
            for message in self.session.outgoing(now):
                said = self.worker.behaviour.says(self, message)
                self.channel.send(said, bulk=isinstance(said, Result))
            while (record := self.channel.next_record()) is not None:
                connection.up.send(record)
        except ConnectionResetError:
            self.lost(connection)
            return
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_later(self.session.due(now) - now, self.wake)

    def lost(self, connection: Connection | None, retry_s: float | None = None) -> None:
        """The connection is gone, or was never made; dial again after a while."""
        if connection is not self.connection or self.ended:
            return
        if connection is not None:
            connection.close()
        self.connection, self.joined = None, False
        for timer in (self.timer, self.opening):
            if timer is not None:
                timer.cancel()
        self.bearer = ""
        self.session.closed()
        self.loop.call_later(self.session.retry_s() if retry_s is None else retry_s, self.dial)

    def perform(self, actions: Iterable[Action]) -> None:
        worker = self.worker
        for action in actions:
            match action:
                case Run(assignment=assignment):
                    self.history.watch.assigned(worker.id, assignment)
                    worker.behaviour.assigned(self, assignment)
                    self.queue.append(assignment)
                    self.more.set()
                case Stop(ref=ref):
                    self.unwanted.add(key_of(ref))
                case Settled(ref=ref):
                    worker.results.pop(key_of(ref), None)
                case Admitted(welcome=welcome):
                    worker.ci_pub, worker.invite, self.bearer = welcome.ci_pub, None, welcome.blob_token
                case Obey(limits=limits):
                    self.admin_paused = limits.paused
                    self.decide()
                case Close():
                    self.lost(self.connection)
                case Refusal(error=error, again=again):
                    if again:
                        self.lost(self.connection, self.session.refused_retry_s())
                    else:
                        self.end(error)

    def end(self, error: MoreGPUError) -> None:
        """Refused for good: the agent ends, and so does its machine's part in this history."""
        self.history.trace(f"{self.worker.name} is refused: {error.code}")
        if isinstance(error, InviteRefused):
            self.worker.invite = None
        connection, self.connection, self.ended = self.connection, None, True
        if connection is not None:
            connection.close()
        self.worker.refused = error.code
        self.loop.kill(self.process)

    # -- the throttle

    def decide(self) -> None:
        """What the owner and the admin allow now."""
        paused = self.worker.paused_until > self.loop.now or self.admin_paused
        duty = 0.0 if paused else 1.0
        self.perform(self.session.set_duty({"cpu": duty}, "the owner's" if paused else "", self.now()))
        if paused:
            self.going.clear()
            if not self.session.member:
                self.perform(self.session.tick(self.now()))
            self.loop.call_later(1.0, self.decide)
        else:
            self.going.set()
        self.wake()

    # -- work

    async def device(self) -> None:
        """The compute child: one task at a time."""
        while True:
            while not self.queue:
                self.more.clear()
                await self.more.wait()
            assignment = self.queue.popleft()
            ref = LeaseRef(task=assignment.task, attempt=assignment.attempt, token=assignment.token)
            try:
                if key_of(ref) not in self.unwanted:
                    await self.one(assignment, ref)
            except MoreGPUError as error:
                self.failed(ref, TaskError(code=error.code, message=error.detail, fault="worker"))
            self.unwanted.discard(key_of(ref))

    async def one(self, assignment: Assignment, ref: LeaseRef) -> None:
        behaviour = self.worker.behaviour
        tiny = is_tiny(assignment)
        await self.going.wait()
        refusal = behaviour.fails(self, assignment)
        if refusal is not None:
            await asyncio.sleep(0.001)
            self.failed(ref, refusal)
            return
        inputs: dict[str, bytes] = {}
        for name, tensor in assignment.inputs.items():
            inputs[name] = await self.fetched(tensor, ref)
        if key_of(ref) in self.unwanted:
            return
        self.session.begun(ref, self.now())
        if assignment.kind == "function":
            self.history.watch.runs.began(self.worker.name, calls_in(assignment, inputs[ARGUMENTS]))
        if not tiny:
            self.wake()
        seconds = behaviour.seconds(self, assignment)
        await asyncio.sleep(seconds)
        await self.going.wait()
        if key_of(ref) in self.unwanted:
            return
        if self.worker.trouble_until > self.loop.now:
            self.failed(ref, TaskError(code="engine-error", message="the device is in trouble"))
            return
        arrays = {name: as_array(inputs[name], t.dtype, t.part_shape) for name, t in assignment.inputs.items()}
        honest = honest_outputs(assignment, arrays)
        outputs = behaviour.outputs(self, assignment, honest)
        self.history.watch.computed(assignment, honest, outputs)
        tensors: dict[str, Tensor] = {}
        contents: dict[str, Described] = {}
        for name, array in outputs.items():
            plain = bytes(as_bytes(array))
            tensors[name] = tensor = await self.given(assignment, name, plain, tiny, ref)
            contents[name] = described(
                tensor, content_digest(assignment.digest_key, tensor.dtype, tensor.shape, plain)
            )  # fmt: skip
        if key_of(ref) in self.unwanted:
            return
        statement = statement_of(
            assignment,
            pool=self.history.pool_keys.pool_id,
            worker=self.worker.id,
            inputs={
                name: described(t, content_digest(assignment.digest_key, t.dtype, t.part_shape, inputs[name]))
                for name, t in assignment.inputs.items()
            },
            outputs=contents,
            ran=Ran(device="cpu", driver="1", duty=1.0, seconds=behaviour.claimed_s(seconds)),
        )
        self.kept(self.session.finished(ref, statement, tensors, self.now()))

    async def fetched(self, tensor: Tensor, ref: LeaseRef) -> bytes:
        if not isinstance(tensor.data, Blob):
            return tensor.data
        return await self.trying(
            lambda bearer: self.history.coordinator.call(
                self.random, lambda desk: self.history.coordinator.download_as_worker(bearer, tensor)
            ),
            ref,
        )

    async def given(self, assignment: Assignment, name: str, plain: bytes, tiny: bool, ref: LeaseRef) -> Tensor:
        planned = assignment.outputs[name]
        shape = planned.shape if planned.most_bytes is None else (len(plain),)
        tensor = Tensor(dtype=planned.dtype, shape=shape, data=plain)
        if tiny and len(plain) <= MAX_INLINE_BYTES:
            return tensor
        blob, sealed = seal(memoryview(plain), entropy=self.entropy)
        self.session.computed(ref)
        await self.trying(
            lambda bearer: self.history.coordinator.call(
                self.random, lambda desk: self.history.coordinator.upload_as_worker(bearer, sealed)
            ),
            ref,
        )
        return replace(tensor, data=blob)

    async def trying(self, transfer: Any, ref: LeaseRef) -> Any:
        """As `Transfers._trying`: again and again while the trouble is one that passes."""
        refusals = 0
        for delay_s in delays(0.1, 5.0, self.random.uniform):
            while not self.bearer:
                await asyncio.sleep(0.2)
                if key_of(ref) in self.unwanted:
                    raise Unreachable("nobody wants it any more")
            bearer = self.bearer
            try:
                return await transfer(bearer)
            except (Unreachable, Unavailable, OutOfSpace):
                pass
            except MoreGPUError as error:
                if not isinstance(error, NotFound) and error.status not in (401, 403):
                    raise
                refusals += bearer == self.bearer
                if refusals >= RIGHT_TRIES:
                    raise
            if key_of(ref) in self.unwanted:
                raise Unreachable("nobody wants it any more")
            await asyncio.sleep(delay_s)
        raise AssertionError("delays never end")

    def failed(self, ref: LeaseRef, error: TaskError) -> None:
        self.kept(self.session.failed(ref, error, self.now()))

    def kept(self, entry: ResultEntry | None) -> None:
        """As the agent: what a blob hangs on goes to disk at once, the rest when it is not settled soon."""
        if entry is None:
            return
        if any(isinstance(tensor.data, Blob) for tensor in entry.outputs.values()):
            self.worker.results[entry.task, entry.attempt, entry.token] = entry
        elif self.settling is None:
            self.settling = self.loop.call_later(SETTLE_S, self.keep_old)
        self.wake()

    def keep_old(self) -> None:
        self.settling = None
        for key, kept in self.session.kept.items():
            self.worker.results.setdefault(key, kept.entry)

    def resend(self) -> None:
        """Send every kept result once more, as if its time had come."""
        for kept in self.session.kept.values():
            if kept.sent_at is not None:
                kept.sent_at -= RESEND_S
        self.wake()
