"""Another certificate than the pinned one: the server behind it never sees a header, let alone a token."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moregpu.blobs.transfer import BlobHTTP
from moregpu.client.access import Access
from moregpu.client.aio import AsyncPool
from moregpu.client.doors import Doors
from moregpu.client.old import MoreGPU
from moregpu.client.pool import Pool
from moregpu.errors import WrongCertificate
from moregpu.wire import tls
from moregpu.wire.api import Me
from moregpu.wire.invite import ClientLine
from moregpu.wire.link import Show
from tests.certificates import certificate

from .tls_server import TlsServer

TOKEN = "mgt_abcdefgh_" + "x" * 43


class Stranger(TlsServer):
    """Keeps every byte which a client was willing to send it."""

    def __init__(self, folder: Path):
        self.heard = b""
        self.connections = 0
        super().__init__(folder)

    def connected(self) -> None:
        self.connections += 1

    def met(self, stream: ssl.SSLSocket) -> None:
        stream.settimeout(5)
        while data := stream.recv(4096):
            self.heard += data
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


def line_of(access: Access) -> str:
    return ClientLine(addresses=access.addresses, pin=access.pin, token=access.token).line() if access.pin else TOKEN


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    server = Stranger(tmp_path)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The pin of a coordinator that was talked to before: its leaf is at hand, and the next connection trusts it."""
    _, _, der = certificate(tmp_path_factory.mktemp("known"))
    tls._leaves[tls.leaf_pin(der)] = der  # pyright: ignore[reportPrivateUsage]
    return tls.leaf_pin(der)


async def in_a_coroutine(access: Access) -> object:
    return await AsyncPool(Pool(access)).matmul([[1.0]], [[1.0]])


def ask_link(access: Access) -> object:
    return Pool(access).link().ask(lambda id: Show(id=id, job="j-01"), lambda answer: None)


@pytest.mark.parametrize(
    "pin", [bytes(32), None, b""], ids=["another pin", "another than the known one", "the system's store"]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda access: Pool(access).me(patience_s=0),
        lambda access: Doors(access).call("GET", "/v1/me", Me, patience_s=0),
        lambda access: list(Doors(access).read("/v1/events", accept="text/event-stream")),
        lambda access: BlobHTTP(access.addresses[0], access.pin, lambda: TOKEN, 5.0).head("ab" * 32),
        lambda access: BlobHTTP(access.addresses[0], access.pin, lambda: TOKEN, 5.0).upload_stream(bytes(100)),
        ask_link,
        lambda access: Pool(access).benchmark("relu", 10),
        lambda access: Pool(access).matmul([[1.0]], [[1.0]]),
        lambda access: asyncio.run(in_a_coroutine(access)),
        lambda access: MoreGPU(f"https://{access.addresses[0]}", line_of(access)).submit("relu", 10),
    ],
    ids=["pool", "doors", "stream", "blob head", "blob upload", "link", "job", "arrays", "coroutine", "class of 1.x"],
)
def test_every_client_stops_before_it_sends_anything(
    stranger: Stranger, known: bytes, call: Callable[[Access], object], pin: bytes | None
) -> None:
    access = Access(addresses=(stranger.address,), token=TOKEN, pin=known if pin is None else pin)
    with pytest.raises(WrongCertificate) as refused:
        call(access)
    assert stranger.connections > 0
    assert stranger.heard == b""
    assert TOKEN not in str(refused.value)
