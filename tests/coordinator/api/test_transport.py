"""The shell around the doors: TLS, slow and idle connections, heads and bodies that never end."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
import time

import pytest

from moregpu.coordinator import listen
from moregpu.coordinator.api import ask
from moregpu.coordinator.api.problems import problem_headers
from moregpu.errors import MoreGPUError, TooManyRequests, Unavailable

from .conftest import Pool

GET = "GET /health HTTP/1.1\r\nHost: {0}\r\n\r\n"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience of a quarter of a second, so that the test need not wait for ten."""
    monkeypatch.setattr(listen, "HEAD_S", 0.25)
    monkeypatch.setattr(ask, "WINDOW_S", 0.25)


def closed(connection: socket.socket, within_s: float = 8.0) -> bytes:
    """What still came before the other end closed; fails when it does not close."""
    connection.settimeout(within_s)
    came = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := connection.recv(65536):
            came += data
    return came


def test_tls_1_2_is_refused(pool: Pool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection((pool.host, pool.port), 10) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain)


def test_plain_http_gets_nothing(pool: Pool) -> None:
    with socket.create_connection((pool.host, pool.port), 10) as plain:
        plain.sendall(GET.format(pool.address).encode())
        assert b"HTTP" not in closed(plain)


@pytest.mark.usefixtures("hurried")
def test_who_says_nothing_is_let_go(pool: Pool) -> None:
    with socket.create_connection((pool.host, pool.port), 10) as plain:
        assert closed(plain) == b""  # never began TLS
    assert closed(pool.socket()) == b""  # never began a request


@pytest.mark.usefixtures("hurried")
def test_a_head_that_trickles_is_let_go(pool: Pool) -> None:
    secure = pool.socket()
    began = time.monotonic()
    with pytest.raises((ConnectionError, ssl.SSLError)):
        for byte in GET.format(pool.address).encode() * 100:
            secure.sendall(bytes([byte]))
            time.sleep(0.01)
            assert time.monotonic() < began + 20
    secure.close()


@pytest.mark.usefixtures("hurried")
def test_a_second_head_on_a_kept_connection_must_come_in_time_too(pool: Pool) -> None:
    secure = pool.socket()
    secure.sendall(GET.format(pool.address).encode())
    assert secure.recv(65536).startswith(b"HTTP/1.1 200")
    secure.sendall(b"GET /he")
    assert b"HTTP" not in closed(secure)


def test_a_head_without_end_is_refused(pool: Pool) -> None:
    secure = pool.socket()
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        secure.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"x" * (1 << 20))
    assert closed(secure)[:12] in (b"HTTP/1.1 400", b"")


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("verb_path", ["POST /v1/jobs", "POST /v1/blobs", f"PUT /v1/blobs/{'0' * 64}"])
def test_a_body_that_trickles_is_let_go(pool: Pool, verb_path: str) -> None:
    secure = pool.socket()
    secure.sendall(
        f"{verb_path} HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {pool.admin}\r\n"
        f"Content-Length: 100000\r\n\r\n".encode()
    )
    answer = b""
    secure.settimeout(0.02)
    for _ in range(500):  # a byte now and then is not progress
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            secure.sendall(b"x")
        try:
            answer = secure.recv(65536)
            break
        except TimeoutError:
            continue
    else:
        pytest.fail("a sender of one byte now and then is kept")
    answer += closed(secure)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"about:moregpu/too-slow" in answer


def test_a_half_sent_body_is_nothing(pool: Pool) -> None:
    before = pool.ask("GET", "/v1/jobs", pool.admin).json()["items"]
    secure = pool.socket()
    body = b'{"kind": "kernel", "operation": "relu", "size": 4}'
    secure.sendall(
        f"POST /v1/jobs HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {pool.admin}\r\n"
        f"Content-Length: {len(body) + 1}\r\n\r\n".encode()
        + body
    )
    secure.shutdown(socket.SHUT_RDWR)
    secure.close()
    assert pool.ask("GET", "/v1/jobs", pool.admin).json()["items"] == before


@pytest.mark.parametrize("request_", [b"\x00" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01" * 50])
def test_what_is_no_http_is_refused(pool: Pool, request_: bytes) -> None:
    secure = pool.socket()
    secure.sendall(request_)
    assert closed(secure)[:12] in (b"HTTP/1.1 400", b"")


def test_an_idle_crowd_is_bounded_and_others_are_served(pool: Pool) -> None:
    """More silent connections than handshakes are kept: the oldest give way, and memory does not grow with them."""
    wanted = listen.MAX_HANDSHAKES + 200
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * wanted + 200:
        pytest.skip("missing: open files; mend: ulimit -n 4096")
    crowd: list[socket.socket] = []
    try:
        for _ in range(wanted):
            crowd.append(socket.create_connection((pool.host, pool.port), 10))
        assert pool.ask("GET", "/health").status == 200
        assert _open_sockets_to(pool) <= listen.MAX_HANDSHAKES + 20
    finally:
        for connection in crowd:
            connection.close()
    assert pool.ask("GET", "/health").status == 200


def test_the_connection_idle_longest_gives_way(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = pool.connection()
    idle.request("GET", "/health")
    assert idle.getresponse().read()
    doorways = [thing for thing in _living(listen.Doorway) if not thing.should_exit]
    for doorway in doorways:
        monkeypatch.setattr(doorway, "_max_connections", 1)
    assert pool.ask("GET", "/health").status == 200
    assert closed(idle.sock) == b""
    idle.close()


def test_a_connection_serves_many_requests_and_survives_refusals(pool: Pool) -> None:
    connection = pool.connection()
    headers = {"Authorization": f"Bearer {pool.admin}"}
    statuses: list[int] = []
    kept: set[int] = set()
    for path, body in [("/health", None), ("/v1/nothing", None), ("/v1/jobs", b"{"), ("/v1/me", None)]:
        connection.request("POST" if body else "GET", path, body=body, headers=headers)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
        kept.add(connection.sock.fileno())
    assert statuses == [200, 404, 400, 200]
    assert len(kept) == 1
    connection.close()


def test_nobody_learns_what_serves(pool: Pool) -> None:
    assert "server" not in pool.ask("GET", "/health").headers


def test_forwarding_headers_change_nothing(pool: Pool) -> None:
    headers = {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "https", "Forwarded": "for=127.0.0.1"}
    assert pool.ask("GET", "/v1/me", headers=headers).status in (401, 429)


def _living(kind: type[listen.Doorway]) -> list[listen.Doorway]:
    import gc

    # By its type: isinstance asks a weak proxy of something gone for its class, which raises.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def _open_sockets_to(pool: Pool) -> int:
    """Connections of this process's coordinator that the system still holds open (its side)."""
    import psutil

    found = 0
    for connection in psutil.Process(os.getpid()).net_connections("tcp"):
        local = connection.laddr
        if connection.status == psutil.CONN_ESTABLISHED and local and local[1] == pool.port:
            found += 1
    return found


def test_a_small_answer_is_one_tls_record(pool: Pool) -> None:
    """Head and body together: a client that reads once has all of it."""
    secure = pool.socket()
    secure.sendall(f"GET /health HTTP/1.1\r\nHost: {pool.address}\r\n\r\n".encode())
    assert secure.recv(65536).endswith(b"}")
    secure.close()


@pytest.mark.parametrize("error", [Unavailable("the disk is away"), TooManyRequests("slower, please")])
def test_who_is_turned_away_for_now_is_told_when_to_come_back(error: MoreGPUError) -> None:
    """A stampede after a restart spreads out: clients that obey nothing else obey this header."""
    seconds = dict(problem_headers(error))[b"retry-after"]
    assert int(seconds) >= 1
