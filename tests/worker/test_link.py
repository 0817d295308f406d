"""The worker's link: what stands between may cut messages and stop reading, and nothing is lost or changes places."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

from moregpu.coordinator.certificate import own_certificate, server_context
from moregpu.wire.identity import PoolKeys, WorkerKeys
from moregpu.wire.messages import SUBPROTOCOL, Bye, Heartbeat, LeaseRef, Started
from moregpu.wire.session import Channel
from moregpu.worker.link import Link
from tests.worker.scripted import DEADLINE_S, Coordinator, Machine, tell, tiny

LONG_BYTES = 9_000


def test_a_message_that_was_cut_on_its_way_is_heard_whole(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, _machine: Machine) -> None:
        await coordinator.assign_in_pieces(tiny(1), 3)
        await coordinator.assign(tiny(2))
        assert {(await coordinator.result(1)).task, (await coordinator.result(2)).task} == {"t-1", "t-2"}
        assert coordinator.connections == 1

    tell(tmp_path, story)


def test_text_ends_the_connection_and_the_worker_comes_back(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, _machine: Machine) -> None:
        assert coordinator.live is not None
        await coordinator.live.send("hello")
        await coordinator.online(2)

    tell(tmp_path, story)


def test_what_there_is_no_room_for_goes_out_in_order_when_there_is(tmp_path: Path) -> None:
    keys, started, ended = PoolKeys.generate(), asyncio.Event(), asyncio.Event()
    heard: list[Any] = []

    async def answer(socket: ServerConnection) -> None:
        channel = Channel.responder(keys.statics, keys.pool_id)
        channel.receive(await socket.recv(decode=False))
        await socket.send(channel.next_record() or b"")
        socket.transport.pause_reading()
        await started.wait()
        socket.transport.resume_reading()
        async for data in socket:
            assert isinstance(data, bytes)
            heard.extend(channel.receive(data))
        ended.set()

    async def run() -> None:
        tls = server_context(own_certificate(tmp_path, b"password", ["localhost"]))
        async with serve(
            answer, "127.0.0.1", 0, ssl=tls, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None,
            ping_interval=None,
        ) as server, asyncio.timeout(DEADLINE_S):  # fmt: skip
            port = next(iter(server.sockets)).getsockname()[1]
            link = await Link.open(f"127.0.0.1:{port}", WorkerKeys.generate(), keys.cs_pub, keys.pool_id)
            room = asyncio.Event()
            link.listen(lambda _record: None, room.set)
            sent = 0
            while not link.is_full:
                link.send([Bye(reason=f"{sent:06d}" + "." * LONG_BYTES)])
                sent += 1
                await asyncio.sleep(0)
            link.send([Heartbeat(sent=1.0, duty={}, user_load=0.0, held=[])])
            link.send([Started(leases=[LeaseRef(task="t-1", attempt=1, token=bytes(16))])])
            assert not heard
            started.set()
            await room.wait()
            await link.close()
            await ended.wait()
            assert [message.reason[:6] for message in heard[:sent]] == [f"{number:06d}" for number in range(sent)]
            assert [type(message) for message in heard[sent:]] == [Heartbeat, Started]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
