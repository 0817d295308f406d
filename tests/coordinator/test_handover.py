"""A worker's WebSocket lives without server and route: whole messages, back-pressure, an end from either side."""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import Protocol, Side
from websockets.utils import accept_key

from moregpu.coordinator.cork import Corked
from moregpu.coordinator.handover import MAX_UNREAD, MAX_UNSENT_BYTES, TakenSocket
from moregpu.coordinator.listen import Doorway, WatchedSocket
from moregpu.coordinator.threshold import WS_MAX_BYTES, Granted

Serve = Callable[[TakenSocket], Awaitable[None]]


class Door:
    """Grants every WebSocket, and hands it over."""

    line = b"GET / HTTP/1.1\r\n"

    def __init__(self, serve: Serve) -> None:
        self.serve = serve

    def admit(self, head: bytes, client: str) -> Granted:
        key = head.decode().partition("Sec-WebSocket-Key: ")[2].partition("\r\n")[0]
        return Granted(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n".encode(),
            "peer",
        )


class Doors:
    """Real doors where every WebSocket is handed over; or, without `serve`, kept by the only route."""

    def __init__(self, serve: Serve | None):
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self.kept = asyncio.Event()
        self.doorway = Doorway(self._app, None, [listener], None if serve is None else Door(serve))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.kept.set()
        await receive()

    def connect(self, **options: Any) -> connect:
        return connect(f"ws://127.0.0.1:{self.port}", compression=None, proxy=None, **options)


@asynccontextmanager
async def doors(serve: Serve | None) -> AsyncIterator[Doors]:
    opened = Doors(serve)
    running = asyncio.create_task(opened.doorway.run_doors())
    try:
        yield opened
    finally:
        opened.doorway.end()
        await running


async def until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 — it waits for many things
            await asyncio.sleep(0.001)


async def echo(taken: TakenSocket) -> None:
    assert taken.peer == "peer"
    while (message := await taken.receive()) is not None:
        await taken.send(message)


def test_messages_come_whole_and_in_order() -> None:
    async def run() -> None:
        async with doors(echo) as opened, opened.connect() as link:
            sent = [bytes([number]) * (number * 100) for number in range(4 * MAX_UNREAD)]
            for message in sent:
                await link.send(message)
            assert [await link.recv() for _ in sent] == sent
            await link.close()
            assert link.close_code == 1000

    asyncio.run(run())


def frame(data: bytes, mask: bytes, first: int = 0x82) -> bytes:
    """As a client sends it."""
    size = len(data)
    head = bytes([first, 0x80 + size]) if size < 126 else bytes([first, 0x80 + 126]) + size.to_bytes(2, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


@pytest.mark.parametrize("seed", range(40))
def test_messages_are_whole_however_the_stream_is_cut(seed: int) -> None:
    """And whatever else comes between them: a ping, after which the library reads."""
    rng = Random(seed)
    messages = [rng.randbytes(rng.choice((0, 1, 5, 125, 126, 127, 300, 5000))) for _ in range(12)]
    frames = [frame(message, rng.randbytes(4)) for message in messages]
    if seed % 2:
        frames.insert(rng.randrange(12), frame(b"ping", rng.randbytes(4), 0x89))
    stream = b"".join(frames)
    cuts = sorted(rng.choices(range(len(stream)), k=rng.choice((0, 3, 40))))
    taken = TakenSocket("peer", cast("asyncio.Transport", Silent()), set(), WS_MAX_BYTES)
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        taken.data_received(stream[start:stop])
    assert taken._unread == messages


def test_an_end_that_is_told_goodbye_in_the_middle_of_its_message_is_understood_all_the_same() -> None:
    closed: list[bool] = []

    class Noted(Silent):
        def close(self) -> None:
            closed.append(True)

    async def run() -> None:
        taken = TakenSocket("peer", cast("asyncio.Transport", Noted()), set(), WS_MAX_BYTES)
        message = frame(b"a message", b"mask")
        taken.data_received(message[:7])
        await taken.close(1000)
        taken.data_received(message[7:])
        assert closed == []
        taken.data_received(frame(b"\x03\xe8", b"mask", 0x88))
        assert closed == [True] and await taken.receive() is None
        taken.connection_lost(None)

    asyncio.run(run())


class Silent:
    """A transport that swallows."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: 0


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_519, 65_535, 65_536])
def test_what_is_written_is_what_the_library_would_write(size: int) -> None:
    written: list[bytes] = []

    class Noted(Silent):
        def write(self, data: bytes) -> None:
            written.append(data)

        def is_closing(self) -> bool:
            return False

    taken = TakenSocket("peer", cast("asyncio.Transport", Noted()), set(), WS_MAX_BYTES)
    taken.put(bytes(size))
    taken.flush()
    other = Protocol(Side.SERVER)
    other.send_binary(bytes(size))
    assert b"".join(written) == b"".join(other.data_to_send())


@pytest.mark.parametrize("nonsense", ["text", ["a text in ", "two frames"], [b"bytes in ", b"two frames"]])
def test_what_no_worker_sends_ends_the_socket_and_its_reader_is_told(nonsense: Any) -> None:
    read: list[bytes | None] = []

    async def serve(taken: TakenSocket) -> None:
        read.append(await taken.receive())
        with pytest.raises(ConnectionError):
            await taken.send(b"too late")

    async def run() -> None:
        async with doors(serve) as opened, opened.connect() as link:
            await link.send(nonsense)
            with pytest.raises(ConnectionClosed):
                await link.recv()
            assert link.close_code == 1003 and read == [None]

    asyncio.run(run())


def test_an_other_end_that_closes_is_read_to_its_last_message() -> None:
    read: list[bytes | None] = []
    closed = asyncio.Event()

    async def serve(taken: TakenSocket) -> None:
        await closed.wait()
        read.extend([await taken.receive(), await taken.receive(), await taken.receive()])
        with pytest.raises(ConnectionError):
            await taken.send(b"nobody is there")

    async def run() -> None:
        async with doors(serve) as opened:
            async with opened.connect() as link:
                await link.send(b"one")
                await link.send(b"two")
            closed.set()
            await until(lambda: len(read) == 3)
            assert read == [b"one", b"two", None]

    asyncio.run(run())


def test_our_closing_names_its_code_and_a_server_that_stops_says_so() -> None:
    async def serve(taken: TakenSocket) -> None:
        if await taken.receive() == b"close":
            await taken.close(4001, "replaced")
        else:
            assert await taken.receive() is None

    async def run() -> None:
        async with doors(serve) as opened:
            async with opened.connect() as link:
                await link.send(b"close")
                with pytest.raises(ConnectionClosed):
                    await link.recv()
                assert (link.close_code, link.close_reason) == (4001, "replaced")
            staying: ClientConnection = await opened.connect()
            await staying.send(b"stay")
            opened.doorway.end()
            with pytest.raises(ConnectionClosed):
                await staying.recv()
            assert staying.close_code == 1012

    asyncio.run(run())


def test_a_writer_waits_for_an_end_that_does_not_read_and_goes_on_or_fails_with_it() -> None:
    written: list[int] = []
    writing: list[TakenSocket] = []
    failed = asyncio.Event()

    async def serve(taken: TakenSocket) -> None:
        writing.append(taken)
        try:
            for number in range(4096):
                await taken.send(bytes(1 << 16))
                written.append(number)
        except ConnectionError:
            failed.set()

    async def run() -> None:
        async with doors(serve) as opened:
            link = await opened.connect(max_size=1 << 17, max_queue=1)
            await until(lambda: bool(writing) and writing[0]._drained is not None)
            before = len(written)
            assert before < 4096, "it stopped long before the end"
            for _ in range(before):
                await link.recv()
            await until(lambda: len(written) > before)
            link.transport.abort()
            await until(failed.is_set)

    asyncio.run(run())


def test_what_is_said_in_one_turn_of_the_loop_is_one_write() -> None:
    writes: list[int] = []

    async def serve(taken: TakenSocket) -> None:
        transport = taken._transport

        class Counted:
            def __getattr__(self, name: str) -> Any:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                writes.append(len(data))
                transport.write(data)

        taken._transport = Counted()  # type: ignore[assignment]
        for message in (b"one", b"two", b"three"):
            await taken.send(message)
        await taken.receive()

    async def run() -> None:
        async with doors(serve) as opened, opened.connect() as link:
            assert [await link.recv() for _ in range(3)] == [b"one", b"two", b"three"]
            assert len(writes) == 1
            await link.send(b"enough")
            await link.wait_closed()

    asyncio.run(run())


PINGS = (b"\x89\xfd\0\0\0\0" + bytes(125)) * 8000
"""A MiB of them, masked with zeros."""


async def pinger(opened: Doors) -> asyncio.StreamWriter:
    """An end that opens a WebSocket and never reads."""
    _, writer = await asyncio.open_connection("127.0.0.1", opened.port, limit=1024)
    key = b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    return writer


async def flood(writer: asyncio.StreamWriter, mib: int) -> None:
    """Pings, until so many were taken or nobody takes them any more."""
    try:
        for _ in range(mib):
            writer.write(PINGS)
            await writer.drain()
    except ConnectionError:
        pass


def test_two_faults_at_once_end_the_socket_like_one() -> None:
    troubles: list[dict[str, Any]] = []
    ended = asyncio.Event()

    async def serve(taken: TakenSocket) -> None:
        assert await taken.receive() is None
        ended.set()

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        async with doors(serve) as opened:
            writer = await pinger(opened)
            writer.write(b"\x02\x81\0\0\0\0x" * 2)  # a piece of a message, and in its middle another's first
            async with asyncio.timeout(20):
                await ended.wait()
            writer.transport.abort()
        assert troubles == []

    asyncio.run(run())


def test_an_end_that_pings_and_never_reads_is_let_go_before_its_answers_fill_the_memory() -> None:
    taken: list[TakenSocket] = []
    ended = asyncio.Event()

    async def serve(socket: TakenSocket) -> None:
        taken.append(socket)
        assert await socket.receive() is None
        ended.set()

    async def run() -> None:
        async with doors(serve) as opened:
            writer = await pinger(opened)
            await until(lambda: bool(taken))
            async with asyncio.timeout(20):
                await flood(writer, 64)
                await ended.wait()
            writer.transport.abort()

    asyncio.run(run())


def test_where_a_socket_is_not_handed_over_such_pings_get_no_answer() -> None:
    async def run() -> None:
        async with doors(None) as opened:
            writer = await pinger(opened)
            await opened.kept.wait()
            await flood(writer, 32)
            (connection,) = opened.doorway.server_state.connections
            transport = connection.transport
            assert isinstance(transport, Corked)
            assert transport.get_write_buffer_size() < 2 * MAX_UNSENT_BYTES
            writer.transport.abort()

    asyncio.run(run())


class Kept(Doors):
    """Doors whose only route keeps its WebSocket, and reads when it is told to."""

    def __init__(self) -> None:
        super().__init__(None)
        self.reads = asyncio.Event()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self.kept.set()
        await self.reads.wait()
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "bytes": message["bytes"]})


def test_a_socket_that_is_kept_lets_little_lie_unread_and_loses_nothing() -> None:
    async def run() -> None:
        opened = Kept()
        running = asyncio.create_task(opened.doorway.run_doors())
        sent = [bytes([number]) * 60_000 for number in range(8 * MAX_UNREAD)]
        async with opened.connect() as link:
            await opened.kept.wait()
            sending = asyncio.create_task(send_all(link, sent))
            (connection,) = opened.doorway.server_state.connections
            socket = cast("WatchedSocket", connection)
            await until(lambda: socket.read_paused)
            assert MAX_UNREAD < socket.queue.qsize() < 2 * MAX_UNREAD  # what one reading brought is kept
            opened.reads.set()
            assert [await link.recv() for _ in sent] == sent
            await sending
        opened.doorway.end()
        await running

    asyncio.run(run())


async def send_all(link: ClientConnection, messages: list[bytes]) -> None:
    for message in messages:
        await link.send(message)
