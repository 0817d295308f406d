"""Pages of browsers stay out: Host and Origin on every verb, WebSockets included (faults, row 31)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from moregpu.coordinator.api.guard import check_origin
from moregpu.coordinator.api.table import DOORS, SOCKETS
from moregpu.errors import Forbidden

from .conftest import Pool

VERBS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
HOSTILE = [
    {"Host": "evil.example"},
    {"Host": "evil.example:8787"},
    {"Host": ""},
    {"Host": "127.0.0.1.evil.example"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", HOSTILE, ids=str)
@pytest.mark.parametrize("verb", VERBS)
def test_a_page_is_refused_with_every_verb_even_with_a_token(pool: Pool, verb: str, headers: dict[str, str]) -> None:
    for path in ("/v1/jobs", "/health"):
        answer = pool.ask(verb, path, pool.admin, headers=headers)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("headers", HOSTILE, ids=str)
@pytest.mark.parametrize("path", [door.path for door in SOCKETS])
def test_a_page_opens_no_websocket(pool: Pool, path: str, headers: dict[str, str]) -> None:
    secure = pool.socket()
    host = headers.get("Host", pool.address)
    rest = "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name != "Host")
    secure.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: moregpu.1\r\nAuthorization: Bearer {pool.admin}\r\n{rest}\r\n".encode()
    )
    assert secure.recv(65536).startswith(b"HTTP/1.1 403")
    secure.close()


def test_a_websocket_of_ours_sends_no_origin_and_is_let_in(pool: Pool) -> None:
    headers = {"Authorization": f"Bearer {pool.admin}"}
    with connect(f"wss://{pool.address}/v1/events", ssl=pool.context(), additional_headers=headers, proxy=None) as link:
        assert "snapshot" in str(link.recv(10))
    with pytest.raises(InvalidStatus) as refused:
        connect(
            f"wss://{pool.address}/v1/events", ssl=pool.context(), additional_headers=headers, proxy=None,
            origin="https://evil.example",  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
    assert refused.value.response.status_code == 403


def test_there_is_no_cors_and_no_cookie(pool: Pool) -> None:
    for door in DOORS:
        if door.path == "/v1/events":
            continue
        answer = pool.ask(door.verb, door.path.replace("{id}", "x").replace("{digest}", "x"), pool.admin)
        assert not [name for name in answer.headers if name.startswith("access-control") or name == "set-cookie"]


def test_every_loopback_name_is_the_coordinator(pool: Pool) -> None:
    for host in ("localhost", f"LOCALHOST:{pool.port}", "127.0.0.1", "[::1]:1"):
        assert pool.ask("GET", "/health", headers={"Host": host}).status == 200
    assert pool.ask("GET", "/health", headers={"Origin": f"https://{pool.address}"}).status == 200


@given(host=st.text(max_size=30), origin=st.none() | st.text(max_size=30))
def test_no_header_breaks_the_guard(host: str, origin: str | None) -> None:
    headers = {"host": host} | ({"origin": origin} if origin is not None else {})
    try:
        check_origin(headers, frozenset({"localhost"}))
    except Forbidden:
        return
    assert host.strip().lower().startswith("localhost") or host.strip().lower().startswith("[localhost")
