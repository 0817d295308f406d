"""The first word on a connection: a worker's request is granted on the spot, anything else is the server's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from moregpu.coordinator import listen
from moregpu.coordinator.handover import TakenSocket
from moregpu.coordinator.listen import Doorway
from moregpu.coordinator.threshold import MAX_HEAD_BYTES, FirstWord, Granted

LINE = b"GET /worker HTTP/1.1\r\n"
GRANTED = b"HTTP/1.1 101 So be it\r\n\r\n"
FRAME = b"\x82\x82\0\0\0\0hi"


class House:
    """Doors where workers with a password are let in, and the server says to everybody who asked it what."""

    line = LINE

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self.heads: list[tuple[bytes, str]] = []
        self.heard: list[bytes | None] = []
        self.doorway = Doorway(self._app, None, [listener], self)

    def admit(self, head: bytes, client: str) -> Granted | None:
        self.heads.append((head, client))
        return Granted(GRANTED, "peer") if b"Password: please" in head else None

    async def serve(self, taken: TakenSocket, /) -> None:
        self.heard.append(await taken.receive())

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        said = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})


def test_who_says_little_after_a_while_has_no_second_time_for_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes on with the time that began when the connection did."""

    async def run() -> None:
        given: asyncio.Queue[float] = asyncio.Queue()
        real = Doorway.when_late

        def noted(door: Doorway, late: Callable[[], None], until: float) -> asyncio.TimerHandle:
            given.put_nowait(until)
            return real(door, late, until)

        monkeypatch.setattr(Doorway, "when_late", noted)
        async with house() as made:
            _, writer = await asyncio.open_connection("127.0.0.1", made.port)
            first = await given.get()
            writer.write(b"GET /o")
            assert await given.get() == first
            writer.close()

    asyncio.run(run())


@asynccontextmanager
async def house() -> AsyncGenerator[House]:
    made = House()
    running = asyncio.create_task(made.doorway.run_doors())
    try:
        async with asyncio.timeout(30):
            yield made
    finally:
        made.doorway.end()
        await running


async def said(made: House, request: bytes) -> bytes:
    """What comes back until the other end closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


WORKER = LINE + b"Host: here\r\nPassword: please\r\n\r\n"


class Wire:
    """A transport that notes what is written and who reads it."""

    def __init__(self) -> None:
        self.written = b""
        self.reader: Any = None

    def write(self, data: bytes) -> None:
        self.written += data

    def set_protocol(self, protocol: Any) -> None:
        self.reader = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 7) if name == "peername" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize("cut", [len(LINE), len(LINE) + 3, len(WORKER) - 2, len(WORKER), len(WORKER) + 3])
def test_a_worker_is_let_in_however_its_request_is_cut_and_what_came_behind_it_is_its_first_message(cut: int) -> None:
    stream = WORKER + FRAME

    async def run() -> None:
        async with house() as made:
            wire = Wire()
            first = FirstWord(made.doorway, made)
            first.connection_made(cast("Any", wire))
            for piece in (stream[:cut], stream[cut:]):
                (wire.reader or first).data_received(piece)
            assert wire.written == GRANTED and isinstance(wire.reader, TakenSocket)
            assert made.heads == [(WORKER[:-4], "192.0.2.1")] and wire.reader.peer == "peer"
            assert list(made.doorway.server_state.connections) == [wire.reader]
            wire.reader.connection_lost(None)
            while not made.heard:  # noqa: ASYNC110 — a turn of the loop or two
                await asyncio.sleep(0)
            assert made.heard == [b"hi"]

    asyncio.run(run())


@pytest.mark.parametrize("request_", [LINE + b"Host: here\r\n", b"GET /other HTTP/1.1\r\nHost: here\r\n"])
def test_who_is_not_granted_it_and_who_asks_for_anything_else_is_answered_by_the_server(request_: bytes) -> None:
    async def run() -> None:
        async with house() as made:
            answer = await said(made, request_ + b"Connection: close\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(request_.split()[1])

    asyncio.run(run())


def test_a_head_without_end_becomes_the_servers_which_refuses_it() -> None:
    async def run() -> None:
        async with house() as made:
            assert (await said(made, LINE + b"X: " + b"x" * MAX_HEAD_BYTES)).startswith(b"HTTP/1.1 400")
            assert made.heads == []

    asyncio.run(run())


@pytest.mark.parametrize("piece", [b"", LINE])
def test_who_does_not_end_a_head_in_time_is_let_go(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    monkeypatch.setattr(listen, "HEAD_S", 0.05)

    async def run() -> None:
        async with house() as made:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
            writer.write(piece)
            with pytest.raises(ConnectionResetError):
                if await reader.read() == b"":
                    raise ConnectionResetError
            writer.close()
            assert not made.doorway.server_state.connections

    asyncio.run(run())


def test_who_has_said_nothing_yet_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with house() as made:
            silent, writer = await asyncio.open_connection("127.0.0.1", made.port)
            while not made.doorway.server_state.connections:  # noqa: ASYNC110 — until it was taken in
                await asyncio.sleep(0)
            monkeypatch.setattr(made.doorway, "_max_connections", 1)
            _, other = await asyncio.open_connection("127.0.0.1", made.port)
            with pytest.raises(ConnectionResetError):
                if await silent.read() == b"":
                    raise ConnectionResetError
            writer.close()
            other.close()

    asyncio.run(run())


def test_a_server_that_stops_waits_for_nobody_who_has_said_nothing() -> None:
    async def run() -> None:
        async with house() as made:
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
            while not made.doorway.server_state.connections:  # noqa: ASYNC110
                await asyncio.sleep(0)
            made.doorway.end()
            assert await reader.read() == b""
            writer.close()

    asyncio.run(run())
