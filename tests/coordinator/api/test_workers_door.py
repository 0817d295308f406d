"""Which requests open a worker's session at the threshold: what the WebSocket library would grant, and no page's."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.datastructures import Headers
from websockets.http11 import Request
from websockets.server import ServerProtocol

from moregpu.coordinator.api.workers_door import RequestsOfWorkers
from moregpu.wire.messages import SUBPROTOCOL

KEY = base64.b64encode(bytes(range(16))).decode()
GOOD = {
    "Host": "pool.example:8787",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Protocol": SUBPROTOCOL,
}


async def serve(taken: object) -> None:
    """Nobody comes."""


DOOR = RequestsOfWorkers(
    cast(
        "Any",
        SimpleNamespace(
            desk=SimpleNamespace(serve_worker=serve),
            pool=SimpleNamespace(reach=SimpleNamespace(hosts=frozenset({"pool.example"}))),
        ),
    )
)


def head(headers: dict[str, str], *more: str) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return DOOR.line + "\r\n".join([*lines, *more]).encode("latin-1")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"User-Agent": "Python/3.11 websockets/17.4"},
        {"Connection": "keep-alive, upgrade", "Upgrade": "WebSocket"},
        {"Sec-WebSocket-Protocol": f"moregpu.9, {SUBPROTOCOL}"},
        {"Host": "POOL.example", "Origin": "https://POOL.example"},
        {"X-Forwarded-For": "10.0.0.1"},
    ],
    ids=str,
)
def test_a_workers_request_is_granted_as_the_library_grants_it(changes: dict[str, str]) -> None:
    headers = GOOD | changes
    admitted = DOOR.admit(head(headers), "192.0.2.1")
    library = ServerProtocol(subprotocols=[cast("Any", SUBPROTOCOL)])
    response = library.accept(Request("/v1/worker", Headers(headers)))
    assert admitted is not None and admitted.peer == "192.0.2.1"
    first, *lines = admitted.answer.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first == f"HTTP/1.1 {response.status_code} {response.reason_phrase}"
    said = dict(line.split(": ") for line in lines)
    assert said == {name: value for name, value in response.headers.raw_items() if name != "Date"}


def test_an_address_that_a_tunnel_or_proxy_may_come_from_is_nobodys() -> None:
    admitted = DOOR.admit(head(GOOD), "127.0.0.1")
    assert admitted is not None and admitted.peer == ""


@pytest.mark.parametrize("name", GOOD)
def test_a_request_that_lacks_a_header_is_the_servers_to_answer(name: str) -> None:
    assert DOOR.admit(head({key: value for key, value in GOOD.items() if key != name}), "192.0.2.1") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"Host": "evil.example"},
        {"Host": "pool.example.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://pool.example:8787"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Connection": "close"},
        {"Upgrade": "h2c"},
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Key": base64.b64encode(bytes(17)).decode()},
        {"Sec-WebSocket-Key": KEY + "="},
        {"Sec-WebSocket-Protocol": "moregpu.2"},
        {"Sec-WebSocket-Protocol": SUBPROTOCOL + "0"},
        {"Content-Length": "1"},
        {"Transfer-Encoding": "chunked"},
        {"Bad Name": "x"},
        {"X": "a\x00b"},
    ],
    ids=str,
)
def test_a_pages_request_and_an_odd_one_are_the_servers_to_answer(changes: dict[str, str]) -> None:
    assert DOOR.admit(head(GOOD | changes), "192.0.2.1") is None


@pytest.mark.parametrize(
    "line", ["Host: evil.example", "host: pool.example:8787", " folded", "no colon", ": nameless", ""]
)
def test_a_line_that_is_repeated_folded_or_none_leaves_the_request_to_the_server(line: str) -> None:
    assert DOOR.admit(head(GOOD, line), "192.0.2.1") is None


@given(st.binary(max_size=200))
def test_no_bytes_break_it(text: bytes) -> None:
    assert DOOR.admit(DOOR.line + text, "") is None
