"""A client's token reaches only who shows the pinned certificate, or one that the system trusts (rows 2 and 51)."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import websockets.asyncio.client
import websockets.sync.client
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moregpu.blobs.transfer import BlobHTTP
from moregpu.errors import Unreachable, WrongCertificate
from moregpu.wire import tls
from moregpu.wire.connection import open_http
from moregpu.wire.tls import advisory_context, context_for, fetch_leaf, leaf_pin, pinned_context, system_context
from tests.certificates import certificate


class Server:
    """HTTPS that remembers every request it was sent."""

    def __init__(self, certificate: Path, key: Path, der: bytes, maximum: ssl.TLSVersion | None = None) -> None:
        seen: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(f"{self.requestline} {self.headers.get('Authorization')}")
                # All of it: who closes with a body unread resets the connection, and the answer may go with it.
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(204)
                self.end_headers()

            do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.seen = seen
        self.pin = leaf_pin(der)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if maximum is not None:
            context.maximum_version = maximum
        context.load_cert_chain(certificate, key)
        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.address = f"127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Refused handshakes are what these tests are about."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def pool(folder: Path) -> Iterator[Server]:
    with running(Server(*certificate(folder, "pool"))) as server:
        yield server


@pytest.fixture(scope="module")
def stranger(folder: Path) -> Iterator[Server]:
    with running(Server(*certificate(folder, "stranger"))) as server:
        yield server


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def nothing_remembered() -> None:
    tls._leaves.clear()


def get(connection: http.client.HTTPSConnection) -> int:
    connection.request("GET", "/", headers={"Authorization": "Bearer secret"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_the_pinned_leaf_is_trusted_whatever_it_is_called(pool: Server) -> None:
    assert get(open_http(pool.address, pool.pin, 5.0)) == 204
    assert get(open_http(pool.address.replace("127.0.0.1", "localhost"), pool.pin, 5.0)) == 204
    assert pool.seen[-1] == "GET / HTTP/1.1 Bearer secret"


def test_another_leaf_is_refused_before_anything_is_sent(pool: Server, stranger: Server) -> None:
    with pytest.raises(WrongCertificate, match=pool.pin.hex()[:16]) as refused:
        open_http(stranger.address, pool.pin, 5.0)
    assert "nothing was sent" in str(refused.value)
    assert refused.value.hint
    assert stranger.seen == []


def test_every_kind_of_client_stops_before_its_header(pool: Server, stranger: Server) -> None:
    """The context holds the pool's leaf and meets the stranger: blocking and asyncio clients alike send nothing."""
    context = pinned_context(pool.address, pool.pin)
    host, port = stranger.address.split(":")
    headers = {"Authorization": "Bearer secret"}
    with pytest.raises(ssl.SSLCertVerificationError):
        get(http.client.HTTPSConnection(host, int(port), context=context, timeout=5.0))
    with pytest.raises(ssl.SSLCertVerificationError):
        websockets.sync.client.connect(
            f"wss://{stranger.address}/", ssl=context, additional_headers=headers, proxy=None
        )

    async def asynchronously() -> None:
        async with websockets.asyncio.client.connect(
            f"wss://{stranger.address}/", ssl=context, additional_headers=headers, proxy=None
        ):
            pass

    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(asynchronously())
    blobs = BlobHTTP(stranger.address, pool.pin, lambda: "secret", 5.0)
    with pytest.raises(WrongCertificate):
        blobs.head("0" * 64)
    with pytest.raises(WrongCertificate):
        blobs.upload_stream(b"data")
    assert stranger.seen == []


def test_a_leaf_that_an_authority_signed_is_pinned_by_itself(folder: Path) -> None:
    authority_path, authority_key, _ = certificate(folder, "authority")
    signer = (
        x509.load_pem_x509_certificate(authority_path.read_bytes()),
        serialization.load_pem_private_key(authority_key.read_bytes(), None),
    )
    with running(Server(*certificate(folder, "signed", signer=signer))) as server:  # type: ignore[arg-type]
        assert get(open_http(server.address, server.pin, 5.0)) == 204


def test_a_wrong_clock_does_not_lock_a_pinned_pool_out(folder: Path) -> None:
    with running(Server(*certificate(folder, "expired", days=-10))) as server:
        assert get(open_http(server.address, server.pin, 5.0)) == 204


def test_without_a_pin_the_systems_store_decides(pool: Server, folder: Path) -> None:
    before = len(pool.seen)
    with pytest.raises(WrongCertificate, match="not trusted here") as refused:
        open_http(pool.address, None, 5.0)
    assert "MGPUC1-" in refused.value.hint
    assert len(pool.seen) == before
    program = (
        "import sys; from moregpu.wire.connection import open_http; "
        "c = open_http('localhost:' + sys.argv[1], None, 5.0); c.request('GET', '/'); print(c.getresponse().status)"
    )
    with running(Server(*certificate(folder, "localhost"))) as server:
        done = subprocess.run(
            [sys.executable, "-c", program, server.address.split(":")[1]],
            env={"SSL_CERT_FILE": str(folder / "localhost.pem"), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stdout.strip() == "204"


def test_tls_below_1_3_is_refused(folder: Path) -> None:
    with running(Server(*certificate(folder, "old"), ssl.TLSVersion.TLSv1_2)) as server:
        for pin in (server.pin, None):
            with pytest.raises(Unreachable, match=r"TLS 1\.3"):
                open_http(server.address, pin, 5.0)
        assert server.seen == []


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 cannot be reached"):
        open_http("127.0.0.1:1", bytes(32), 5.0)
    with pytest.raises(Unreachable):
        open_http("127.0.0.1:1", None, 5.0)


def test_a_leaf_is_fetched_once(pool: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned_context(pool.address, pool.pin)
    monkeypatch.setattr(tls, "fetch_leaf", None)
    assert context_for(pool.address, pool.pin) is pinned_context(pool.address, pool.pin)


def test_the_workers_context_sees_the_leaf(pool: Server) -> None:
    assert leaf_pin(fetch_leaf(pool.address, 5.0)) == pool.pin
    assert advisory_context().verify_mode is ssl.CERT_NONE
    assert system_context().minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_pin_has_32_bytes(pool: Server) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        pinned_context(pool.address, b"short")


@pytest.mark.parametrize(("body", "pieces"), [(None, 1), (b"x" * 100, 1), (b"x" * 100_000, 2)])
def test_a_small_request_leaves_in_one_piece(pool: Server, body: bytes | None, pieces: int) -> None:
    """Head and body together, which a server that reads once has whole; a large body is not copied for that."""
    connection = open_http(pool.address, pool.pin, 5.0)
    sent: list[int] = []
    assert connection.sock is not None
    send = connection.sock.sendall

    def noted(data: bytes) -> None:
        sent.append(len(data))
        send(data)

    connection.sock.sendall = noted  # type: ignore[method-assign]
    connection.request("POST", "/", body)
    answer = connection.getresponse()
    assert (answer.read(), answer.status) == (b"", 204)
    assert len(sent) == pieces
    connection.close()
