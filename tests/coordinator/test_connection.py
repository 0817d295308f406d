"""A worker's connection: what nobody waits for is said together with what comes next, soon, and before the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

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


def connected(test: Callable[[Connection, Said], Awaitable[None]]) -> None:
    """Run a test on a connection whose session stands; `said` gives what the worker hears next, None at the end."""

    async def run() -> None:
        keys, worker = PoolKeys.generate(), WorkerKeys.generate()
        near, far = Socket.pair()
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
