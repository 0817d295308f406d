"""Which opening requests of workers are granted at the threshold. What is not granted here is the routes' to refuse."""

from __future__ import annotations

import binascii
from collections.abc import Mapping

from websockets.utils import accept_key

from moregpu.coordinator.api.ask import real_address
from moregpu.coordinator.api.guard import check_origin
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.threshold import Granted
from moregpu.errors import Forbidden
from moregpu.wire.messages import SUBPROTOCOL

_ANSWER = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n"
    f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
)


class RequestsOfWorkers:
    """The `WorkerDoor` of a coordinator."""

    line = b"GET /v1/worker HTTP/1.1\r\n"

    def __init__(self, services: Services) -> None:
        self.serve = services.desk.serve_worker
        self._pool = services.pool

    def admit(self, head: bytes, client: str) -> Granted | None:
        """Grant a request that opens a WebSocket of our version, under the rules of every request."""
        headers = headers_in(head[len(self.line) :])
        if headers is None or not _opens(headers):
            return None
        try:
            check_origin(headers, self._pool.reach.hosts)
        except Forbidden:
            return None
        return Granted(_ANSWER.format(accept_key(headers["sec-websocket-key"])).encode(), real_address(client))


def headers_in(text: bytes) -> dict[str, str] | None:
    """Headers by lower-case name; None where one is repeated, folded or odd in any other way."""
    headers: dict[str, str] = {}
    for line in text.decode("latin-1").split("\r\n"):
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name.replace("-", "").isalnum() or name in headers or not value.isprintable():
            return None
        headers[name] = value.strip()
    return headers


def _opens(headers: Mapping[str, str]) -> bool:
    """Whether it asks for a WebSocket (RFC 6455, 4.2.1) that speaks our version, and brings no body."""
    try:
        return (
            headers["upgrade"].lower() == "websocket"
            and "upgrade" in _items(headers["connection"].lower())
            and headers["sec-websocket-version"] == "13"
            and SUBPROTOCOL in _items(headers["sec-websocket-protocol"])
            and len(binascii.a2b_base64(headers["sec-websocket-key"], strict_mode=True)) == 16
            and "content-length" not in headers
            and "transfer-encoding" not in headers
        )
    except (KeyError, ValueError):
        return False


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",")]
