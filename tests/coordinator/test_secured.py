"""TLS between a plain transport and a protocol: whole streams both ways, an end that is heard, little memory."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moregpu.coordinator.certificate import own_certificate, server_context
from moregpu.coordinator.secured import BUFFER_BYTES, Secured
from moregpu.wire.tls import advisory_context

MANY = 24 << 20


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("tls")
    return server_context(own_certificate(folder, b"password of a test", ["localhost"]))


class Echo(asyncio.Protocol):
    """Sends back what comes, and stops reading while that does not go out."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.lost = asyncio.get_running_loop().create_future()
        self.opened, self.paused = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.opened.set()

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.paused.set()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


def secured(context: ssl.SSLContext, told: list[Exception | None]) -> Secured:
    def never() -> asyncio.Protocol:
        raise AssertionError("nobody is behind a handshake that failed")

    return Secured(context, memoryview(bytearray(BUFFER_BYTES)), never, lambda one, error: told.append(error))


class Cut(asyncio.Transport):
    """A transport that notes that it was cut."""

    aborted = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def abort(self) -> None:
        self.aborted += 1

    def close(self) -> None:
        pass


def test_who_gives_way_before_there_is_a_transport_is_told_of_once_and_cuts_it_when_it_comes(
    context: ssl.SSLContext,
) -> None:
    told: list[Exception | None] = []
    early, below = secured(context, told), Cut()
    early.abort()
    early.connection_made(below)
    early.connection_lost(None)
    assert [type(error) for error in told] == [TimeoutError] and below.aborted == 1


def test_a_handshake_that_fails_is_told_of_once(context: ssl.SSLContext) -> None:
    async def run() -> None:
        told: list[Exception | None] = []
        plain = secured(context, told)
        plain.connection_made(Cut())
        plain.data_received(b"GET / HTTP/1.1\r\n\r\n")
        plain.connection_lost(None)
        assert [isinstance(error, ssl.SSLError) for error in told] == [True]

    asyncio.run(run())


class Teller(Echo):
    """Answers the first bytes at length and closes, whatever else is still to come."""

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(bytes(MANY))
            self.transport.close()


@asynccontextmanager
async def served(context: ssl.SSLContext, kind: Callable[[], Echo] = Echo) -> AsyncGenerator[tuple[int, list[Echo]]]:
    loop, buffer, made = asyncio.get_running_loop(), memoryview(bytearray(BUFFER_BYTES)), list[Echo]()

    def protocol() -> Secured:
        above = kind()
        made.append(above)
        return Secured(context, buffer, lambda: above, lambda secured, error: None)

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], made
    finally:
        server.close()


async def dial(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=advisory_context())


def test_what_is_sent_comes_back_whole_though_its_reader_is_slower_than_the_buffers(context: ssl.SSLContext) -> None:
    async def run() -> None:
        async with served(context) as (port, made), asyncio.timeout(60):
            reader, writer = await dial(port)
            data = os.urandom(1 << 20) * (MANY >> 20)
            writer.write(data)
            await made[0].paused.wait()
            assert await reader.readexactly(MANY) == data
            writer.close()
            assert await made[0].lost is None

    asyncio.run(run())


def test_an_answer_before_the_end_arrives_though_the_other_end_has_not_stopped_sending(context: ssl.SSLContext) -> None:
    async def run() -> None:
        async with served(context, Teller) as (port, made), asyncio.timeout(60):
            reader, writer = await dial(port)
            writer.write(bytes(MANY))
            assert len(await reader.read()) == MANY
            writer.close()
            await made[0].lost

    asyncio.run(run())


def test_the_other_ends_goodbye_and_its_hanging_up_both_end_it(context: ssl.SSLContext) -> None:
    async def run() -> None:
        async with served(context) as (port, made), asyncio.timeout(60):
            _, polite = await dial(port)
            polite.close()
            assert await made[0].lost is None
            _, rude = await dial(port)
            rude.transport.abort()
            await made[1].lost
            assert made[0].transport.is_closing() and made[1].transport.is_closing()
            made[0].transport.write(b"to nobody")

    asyncio.run(run())


def test_bytes_that_are_no_record_cut_the_connection_and_reach_nobody(context: ssl.SSLContext) -> None:
    async def run() -> None:
        async with served(context) as (port, made), asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = advisory_context().wrap_bio(incoming, outgoing)
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
            writer.write(outgoing.read() + b"\x17\x03\x03\x00\x20" + bytes(32))
            await made[0].lost
            writer.close()

    asyncio.run(run())


def test_a_connection_that_says_nothing_keeps_next_to_nothing(context: ssl.SSLContext) -> None:
    """The loops' own TLS holds a quarter of a megabyte for each."""

    async def run() -> None:
        async with served(context) as (port, made), asyncio.timeout(60):
            tls, kept = advisory_context(), list[asyncio.StreamWriter]()
            await dial(port)
            gc.collect()
            tracemalloc.start()
            try:
                count = 10
                for _ in range(count):
                    _, plain = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
                    kept.append(plain)
                    await made[-1].opened.wait()
                gc.collect()
                held = tracemalloc.take_snapshot()
            finally:
                tracemalloc.stop()
            ours = [each for each in held.statistics("filename") if "secured.py" in each.traceback[0].filename]
            assert sum(each.size for each in ours) < count * 16 * 1024
            for each in kept:
                each.transport.abort()

    asyncio.run(run())
