"""A coordinator that does exactly what a test tells it, on a real socket with real TLS and a real Noise session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import uvloop
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from moregpu.coordinator.certificate import own_certificate, server_context
from moregpu.jobs import Planned, Tensor
from moregpu.wire.identity import PoolKeys, check_hello
from moregpu.wire.invite import Invite
from moregpu.wire.messages import (
    SUBPROTOCOL,
    Acknowledged,
    Assign,
    Assignment,
    FromCoordinator,
    FromWorker,
    Heartbeat,
    Hello,
    LeaseRef,
    Pulse,
    Reject,
    Result,
    ResultEntry,
    Verdict,
    Welcome,
)
from moregpu.wire.session import Channel
from moregpu.worker.agent import Agent
from moregpu.worker.config import WorkerConfig
from moregpu.worker.enrol import enrol
from moregpu.worker.home import WorkerHome
from moregpu.worker.status import Status

DEADLINE_S = 30.0
Message = TypeVar("Message", bound=FromWorker)


class Coordinator:
    """Listens; notes all that a worker says in `heard`; answers heartbeats, and nothing else by itself."""

    def __init__(self, folder: Path, keys: PoolKeys | None = None, heartbeat_s: float = 15.0):
        self.keys = keys or PoolKeys.generate()
        self.heartbeat_s = heartbeat_s
        self.heard: list[FromWorker] = []
        self.connections = 0
        self.live: ServerConnection | None = None
        self.refusal: Reject | None = None
        self.port = 0
        self.status = 0
        """An HTTP status to refuse connections with."""
        self._tls = server_context(own_certificate(folder, b"password", ["localhost"]))
        self._server: Server | None = None
        self._channel: Channel[FromWorker] | None = None
        self._changed = asyncio.Event()
        self._spoke = False  # since its Welcome

    async def start(self) -> None:
        self._server = await serve(
            self._serve, "127.0.0.1", self.port, ssl=self._tls, subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None, max_size=65_535, ping_interval=None, process_request=self._answer,
        )  # fmt: skip
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self.cut()
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        """Cut the connection, as a cable would."""
        if self.live is not None:
            self.live.transport.abort()
            self.live = None

    @property
    def invite(self) -> Invite:
        return Invite(
            addresses=(f"127.0.0.1:{self.port}",), pool_id=self.keys.pool_id, cs_pub=self.keys.cs_pub,
            invite_id="i-" + "0" * 26, secret=bytes(range(16)), pool_name="attic",
        )  # fmt: skip

    async def say(self, message: FromCoordinator) -> None:
        assert self._channel is not None
        assert self.live is not None
        self._channel.send(message)
        while (record := self._channel.next_record()) is not None:
            await self.live.send(record)

    async def assign(self, *entries: Assignment) -> None:
        await self.say(Assign(entries=list(entries)))

    async def assign_in_pieces(self, entry: Assignment, pieces: int) -> None:
        """One record, cut into several frames as a proxy may do it."""
        assert self._channel is not None
        assert self.live is not None
        self._channel.send(Assign(entries=[entry]))
        record = self._channel.next_record() or b""
        size = len(record) // pieces + 1
        await self.live.send([record[start : start + size] for start in range(0, len(record), size)])

    async def acknowledge(self, *entries: ResultEntry, verdict: Any = "accepted") -> None:
        verdicts = [
            Verdict(task=entry.task, attempt=entry.attempt, token=entry.token, verdict=verdict) for entry in entries
        ]
        await self.say(Acknowledged(entries=verdicts))

    def all(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]

    @property
    def duty(self) -> float | None:
        """What the last heartbeat said."""
        beats = self.all(Heartbeat)
        return beats[-1].duty["cpu"] if beats else None

    @property
    def results(self) -> list[ResultEntry]:
        return [entry for result in self.all(Result) for entry in result.entries]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self._changed.wait()

    async def result(self, count: int = 1) -> ResultEntry:
        await self.until(lambda: len(self.results) >= count)
        return self.results[count - 1]

    async def online(self, count: int = 1) -> None:
        """Wait until the worker was welcomed and spoke, for the `count`th time."""
        await self.until(lambda: self.connections >= count and self.live is not None and self._spoke)

    def _answer(self, connection: ServerConnection, _request: Request) -> Response | None:
        return connection.respond(self.status, "no") if self.status else None

    async def _serve(self, socket: ServerConnection) -> None:
        channel = Channel.responder(self.keys.statics, self.keys.pool_id)
        with suppress(ConnectionClosed):
            try:
                channel.receive(_bytes(await socket.recv()))
            except Exception:  # noqa: BLE001 — a stranger gets no answer
                return
            await socket.send(channel.next_record() or b"")
            self._channel, self.live = channel, socket
            async for data in socket:
                for message in channel.receive(_bytes(data)):
                    await self._hear(message, channel)

    async def _hear(self, message: FromWorker, channel: Channel[FromWorker]) -> None:
        self.heard.append(message)
        match message:
            case Hello():
                worker = check_hello(message, channel.remote_static, channel.h)
                if self.refusal is not None:
                    await self.say(self.refusal)
                else:
                    await self.say(
                        Welcome(
                            worker=worker, pool=self.keys.pool_id, pool_name="attic", ci_pub=self.keys.ci_pub,
                            blob_token="t", heartbeat_s=self.heartbeat_s, spread_s=0.05,
                        )
                    )  # fmt: skip
                    self.connections += 1
                    self._spoke = False
            case Heartbeat():
                self._spoke = True
                await self.say(Pulse(echo=message.sent, now=0.0))
            case _:
                pass
        self._changed.set()


def _bytes(data: str | bytes) -> bytes:
    assert isinstance(data, bytes)
    return data


# ---- stories ----


class Machine:
    """A worker's machine: its folder, and the agent that runs on it now."""

    def __init__(self, folder: Path, config: WorkerConfig):
        self.folder = folder
        self.config = config
        self.seen: list[Status] = []
        self.agent: Agent | None = None
        self._home: WorkerHome | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self) -> Agent:
        self._home = WorkerHome.existing(self.folder)
        self.agent = Agent(self._home, self.config, self.seen.append)
        self._running = asyncio.get_running_loop().create_task(self.agent.run())
        return self.agent

    async def end(self) -> None:
        """Wait for the agent's own end; raises what it raised."""
        assert self._running is not None
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._running
        finally:
            self.release()

    async def stop(self) -> None:
        assert self.agent is not None
        self.agent.stop()
        await self.end()

    def release(self) -> None:
        if self._home is not None:
            self._home.close()
            self._home = None

    @property
    def running(self) -> bool:
        return self._running is not None and not self._running.done()


def tell(
    folder: Path,
    story: Callable[[Coordinator, Machine], Coroutine[Any, Any, None]],
    *,
    heartbeat_s: float = 15.0,
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
    **config: Any,
) -> None:
    """Run a story of one coordinator and one worker that has an invite and runs."""

    async def run() -> None:
        coordinator = Coordinator(folder / "certificate", heartbeat_s=heartbeat_s)
        await coordinator.start()
        enrol(folder / "worker", coordinator.invite)
        machine = Machine(folder / "worker", WorkerConfig(name="anna", cores=1, **config))
        machine.start()
        try:
            await coordinator.online()
            await story(coordinator, machine)
        finally:
            if machine.running:
                await machine.stop()
            machine.release()
            await coordinator.stop()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


# ---- tasks ----


def tiny(number: int = 1, values: bytes = bytes(8)) -> Assignment:
    """relu of two floats, inline."""
    return Assignment(
        job="j-1", task=f"t-{number}", attempt=1, token=bytes([number]) * 16, kind="kernel", program=b"relu",
        parameters=b"\x80", precision="float32", inputs={"a": Tensor(dtype="float32", shape=(2,), data=values)},
        outputs={"out": Planned(dtype="float32", shape=(2,))}, digest_key=bytes(32), seed=0, time_limit_s=None,
        lease_s=10.0,
    )  # fmt: skip


def endless(number: int = 1, size: int = 8000) -> Assignment:
    """A product that takes many seconds and needs no input."""
    parameters = msgspec.msgpack.encode({"rows": [0, size], "columns": [0, size], "inner": size})
    return Assignment(
        job="j-2", task=f"t-{number}", attempt=1, token=bytes([number]) * 16, kind="kernel", program=b"matmul",
        parameters=parameters, precision="float32", inputs={},
        outputs={"out": Planned(dtype="float32", shape=(size, size))}, digest_key=bytes(32), seed=3,
        time_limit_s=None, lease_s=60.0,
    )  # fmt: skip


def ref(of: Assignment | ResultEntry) -> LeaseRef:
    return LeaseRef(task=of.task, attempt=of.attempt, token=of.token)
