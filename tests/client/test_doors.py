"""The client's calls, against servers that are no coordinator."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.client.access import Access
from moregpu.client.aio import AsyncPool
from moregpu.client.doors import Doors
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool
from moregpu.errors import MoreGPUError
from moregpu.jobs import JobState
from moregpu.wire.api import JobView, Me
from moregpu.wire.tls import leaf_pin

from .tls_server import TlsServer


class Gate(TlsServer):
    """A proxy that sends everybody to its page for logging in."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.pin = leaf_pin(ssl.PEM_cert_to_DER_cert((folder / "localhost.pem").read_text()))

    def met(self, stream: ssl.SSLSocket) -> None:
        said = b""
        while b"\r\n\r\n" not in said:
            piece = stream.recv(1 << 16)
            if not piece:  # it only looked at the certificate
                return
            said += piece
        stream.sendall(
            b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\nContent-Type: text/html\r\n"
            b"Content-Length: 13\r\nConnection: close\r\n\r\n<html></html>"
        )


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[Doors]:
    gate = Gate(tmp_path)
    doors = Doors(Access(addresses=(gate.address,), token="mgt_me", pin=gate.pin))
    yield doors
    doors.close()
    gate.stop()


@pytest.mark.parametrize(("method", "answer"), [("GET", Me), ("DELETE", type(None))])
def test_a_redirection_is_no_answer_of_the_coordinator(doors: Doors, method: str, answer: type) -> None:
    with pytest.raises(MoreGPUError, match="answers 302 Found, and not as a MoreGPU coordinator does"):
        doors.call(method, "/v1/me", answer)
    with pytest.raises(MoreGPUError, match="answers 302"):
        list(doors.read("/v1/events", accept="text/event-stream"))


def test_what_is_connected_is_not_pickled_and_says_what_to_do() -> None:
    view = JobView(id="j-1", kind="kernel", name="", state=JobState.DONE, submitter="me", created_at=0.0)
    with Pool(Access(addresses=("127.0.0.1:1",), token="mgt_secret")) as pool:
        for one in (pool, AsyncPool(pool), JobHandle(pool.doors, pool.link, pool.blobs, view)):
            with pytest.raises(TypeError, match=r"moregpu\.connect\(\)") as refused:
                pickle.dumps(one)
            assert "mgt_" not in str(refused.value)
