"""A worker's connection: what nobody waits for is said together with what comes next, soon, and before the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from moregpu.coordinator import connection
from moregpu.coordinator.connection import Connection
from moregpu.wire.identity import PoolKeys, WorkerKeys
from moregpu.wire.messages import Acknowledged, FromCoordinator, FromWorker, Heartbeat, Pulse
from moregpu.wire.session import Channel
from tests.coordinator.room.pool import Socket

Said = Callable[[], Awaitable[FromCoordinator | None]]

ACKNOWLEDGED = Acknowledged(entries=[])
PULSE = Pulse(echo=1.0, now=2.0)


class Prompt(Socket):
    """A socket that takes messages without being waited for, as long as there is room."""

    def __init__(self) -> None:
        super().__init__()
        self.room = True
        self.flushed = 0
        self._put: list[bytes] = []

    @property
    def has_room(self) -> bool:
        return self.room and self.closed is None

    def put(self, data: bytes) -> None:
        self._put.append(data)

    def flush(self) -> None:
        assert self.other is not None
        self.flushed += 1
        put, self._put = self._put, []
        for data in put:
            self.other.inbox.put_nowait(data)


def connected(
    test: Callable[[Connection, Said], Awaitable[None]], kinds: Sequence[type[Socket]] = (Socket, Prompt)
) -> None:
    """Run a test on a connection whose session stands; `said` gives what the worker hears next, None at the end."""
    for kind in kinds:
        _connected(test, kind)


def _connected(test: Callable[[Connection, Said], Awaitable[None]], kind: type[Socket]) -> None:
    async def run() -> None:
        keys, worker = PoolKeys.generate(), WorkerKeys.generate()
        near, far = kind(), kind()
        near.other, far.other = far, near
        heard: asyncio.Queue[FromWorker] = asyncio.Queue()
        ours = Connection(near, Channel.responder(keys.statics, keys.pool_id), heard.put)
        theirs = Channel.initiator(worker.ws, keys.cs_pub, keys.pool_id)

        async def said() -> FromCoordinator | None:
            async with asyncio.timeout(20):
                while (data := await far.receive()) is not None:
                    if messages := theirs.receive(data):
                        return messages[0]
            return None

        running = asyncio.create_task(ours.run())
        await far.send(theirs.start())
        reply = await far.receive()
        assert reply is not None and theirs.receive(reply) == []
        theirs.send(Heartbeat(sent=0.0))
        record = theirs.next_record()
        assert record is not None
        await far.send(record)
        await heard.get()
        await test(ours, said)
        ours.end(1000, "")
        await running

    asyncio.run(run())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_may_wait_is_said_soon_though_nothing_follows() -> None:
    async def test(ours: Connection, said: Said) -> None:
        ours.send(ACKNOWLEDGED, may_wait=True)
        assert await said() == ACKNOWLEDGED

    connected(test)


def test_what_may_wait_goes_with_the_next_message_and_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE_S", 3600.0)

    async def test(ours: Connection, said: Said) -> None:
        ours.send(ACKNOWLEDGED, may_wait=True)
        await turns(20)
        assert ours.channel.waiting == 1, "nobody waits for it"
        ours.send(PULSE)
        assert [await said(), await said()] == [ACKNOWLEDGED, PULSE]

    connected(test)


def test_what_waits_is_said_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE_S", 3600.0)

    async def test(ours: Connection, said: Said) -> None:
        ours.send(ACKNOWLEDGED, may_wait=True)
        await turns(20)
        ours.end(1000, "")
        assert [await said(), await said()] == [ACKNOWLEDGED, None]

    connected(test)


def test_what_is_said_in_one_turn_goes_together_and_without_a_task() -> None:
    async def test(ours: Connection, said: Said) -> None:
        socket = ours._socket
        assert isinstance(socket, Prompt)
        before = socket.flushed
        for _ in range(3):
            ours.send(PULSE)
        assert ours.channel.waiting == 3 and ours._writer is None
        assert [await said() for _ in range(3)] == [PULSE] * 3
        assert socket.flushed == before + 1 and ours._writer is None

    connected(test, [Prompt])


def test_where_there_is_no_room_a_task_waits_for_it_and_the_order_stays() -> None:
    async def test(ours: Connection, said: Said) -> None:
        socket = ours._socket
        assert isinstance(socket, Prompt)
        socket.room = False
        ours.send(ACKNOWLEDGED)
        await turns(1)
        assert ours._writer is not None
        ours.send(PULSE)
        assert [await said(), await said()] == [ACKNOWLEDGED, PULSE]

    connected(test, [Prompt])


def test_last_words_are_said_though_the_reader_has_ended_in_the_same_turn() -> None:
    async def run() -> None:
        keys, worker = PoolKeys.generate(), WorkerKeys.generate()
        near, far = Prompt(), Prompt()
        near.other, far.other = far, near

        async def refuse(message: FromWorker) -> None:
            ours.send(PULSE)
            ours.end(1008, "no")

        ours = Connection(near, Channel.responder(keys.statics, keys.pool_id), refuse)
        theirs = Channel.initiator(worker.ws, keys.cs_pub, keys.pool_id)
        running = asyncio.create_task(ours.run())
        await far.send(theirs.start())
        theirs.receive(await far.receive() or b"")
        theirs.send(Heartbeat(sent=0.0))
        await far.send(theirs.next_record() or b"")
        async with asyncio.timeout(20):
            assert theirs.receive(await far.receive() or b"") == [PULSE]
            await running
        assert far.closed == (1008, "no")

    asyncio.run(run())
