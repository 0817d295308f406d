"""One request, as the handlers see it, and what they answer with.

Thin on purpose: a tiny job passes here twice, and a framework's request object costs more than the job's lease.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from moregpu.coordinator.api.problems import LengthRequired, SlowSender
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.store.protocol import JobRow
from moregpu.errors import InvalidRequest, TooLarge

T = TypeVar("T")

MAX_BODY_BYTES = 1 << 20
"""Largest body but a blob's: a JobSpec with 256 KiB inline fits, in JSON too."""

WINDOW_S = 10.0
WINDOW_BYTES = 64 * 1024
"""A sender must bring this much in every such window, or the end: slower ones are let go (6.4 kB/s)."""

MAX_QUERY_FIELDS = 32

SEND_S = 60.0
"""A reader that takes nothing for this long is let go."""


class ClientGone(Exception):
    """The other end closed in the middle; there is nobody to answer."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    media_type: str = "application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is made while it is sent; `length` None = unknown (server-sent events)."""

    parts: AsyncGenerator[bytes]
    length: int | None
    status: int = 200
    media_type: str = "application/octet-stream"
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Asked:
    """What is known of every request, whether it wants an answer or a WebSocket."""

    def __init__(self, scope: Scope, services: Services):
        self.scope = scope
        self.services = services
        self.params: Mapping[str, str] = {}
        """Parts of the path; set when its route is found."""
        self.headers = headers_of(scope)
        self._query: dict[str, str] | None = None
        self._who: Principal | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query by name. Read when it is first asked for, so that whoever may ask nothing has nothing read.

        Raises `InvalidRequest`.
        """
        if self._query is None:
            self._query = query_of(self.scope)
        return self._query

    @property
    def who(self) -> Principal:
        """Who asks; set by the table's role check."""
        if self._who is None:
            raise LookupError("a public route asked who it is")
        return self._who

    @who.setter
    def who(self, who: Principal) -> None:
        self._who = who

    @property
    def peer(self) -> str:
        """The other end's address; behind a tunnel or proxy on this machine it is not the real one: ""."""
        return peer_of(self.scope)


class Ask(Asked):
    """A request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, services: Services):
        super().__init__(scope, services)
        self.body_read = False
        """Whether the whole body was taken; if not, the connection cannot carry another request."""
        self.plain = False
        """Whether it came without TLS."""
        self.compat = False
        """Whether the path is one of MoreGPU 1.x: errors are said in its words."""
        self.route = "none"
        """The path's pattern, for what is counted."""
        self.status = 0
        """What was answered; 0 before."""
        self.started = False
        """Whether an answer is on its way: too late for another one."""
        self._receive = receive
        self._send = send
        self._job: JobRow | None = None

    @property
    def job(self) -> JobRow:
        """The job that the path names; set by the table's owner check."""
        if self._job is None:
            raise LookupError("a route without owner check asked for a job")
        return self._job

    @job.setter
    def job(self, job: JobRow) -> None:
        self._job = job

    @property
    def content_length(self) -> int | None:
        """Declared length of the body; raises `InvalidRequest` for nonsense."""
        text = self.headers.get("content-length")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise InvalidRequest("Content-Length is not a number")
        return int(text)

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number of the query, clamped to what is offered; raises `InvalidRequest` for what is none."""
        text = self.query.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise InvalidRequest(f"{name}={text[:40]!r} is not a number") from None
        if not value >= low:  # NaN fails too
            raise InvalidRequest(f"{name}={text[:40]!r} must be at least {low:g}")
        return min(value, high)

    def flag(self, name: str) -> bool:
        """Whether the query switches something on."""
        return self.query.get(name, "").lower() in ("1", "true", "yes")

    async def decoded(self, type: type[T]) -> T:
        """The body as a Struct: JSON, or msgpack where Content-Type says so. Raises `InvalidRequest`, `TooLarge`."""
        return decoded_as(await self.body(), type, packed=self.packed)

    @property
    def packed(self) -> bool:
        """Whether the body is msgpack."""
        return "msgpack" in self.headers.get("content-type", "")

    async def body(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """The whole body. Raises `TooLarge` before any of it is read when it says so, `SlowSender`, `ClientGone`."""
        if (self.content_length or 0) > limit:
            raise TooLarge(f"the body is larger than {limit:,} bytes", "send large arrays as blobs: POST /v1/blobs")
        data = bytearray()
        async for part in self.body_parts():
            data += part
            if len(data) > limit:
                raise TooLarge(f"the body is larger than {limit:,} bytes", "send large arrays as blobs: POST /v1/blobs")
        return bytes(data)

    async def body_parts(self) -> AsyncIterator[bytes]:
        """The body as it comes, at a bearable pace. Raises `SlowSender` and `ClientGone`."""
        loop = asyncio.get_running_loop()
        window_ends, seen = loop.time() + WINDOW_S, 0
        while not self.body_read:
            try:
                async with asyncio.timeout_at(window_ends):
                    message = await self._receive()
            except TimeoutError:
                raise SlowSender(
                    f"less than {WINDOW_BYTES:,} bytes came in {WINDOW_S:g} s", "send it again; blobs resume"
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            self.body_read = not message.get("more_body", False)
            part = message.get("body", b"")
            seen += len(part)
            if seen >= WINDOW_BYTES:
                window_ends, seen = loop.time() + WINDOW_S, 0
            if part:
                yield part

    def require_length(self) -> int:
        """The declared length of a body that must say it first."""
        length = self.content_length
        if length is None:
            raise LengthRequired("a blob's length must be said first", "send Content-Length")
        return length

    async def gone(self) -> None:
        """Return when the other end closed. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # answering

    def answer(self, value: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
        """A value as compact JSON, or as msgpack where Accept asks for it."""
        if "msgpack" in (accept := self.headers.get("accept", "")) and _prefers_msgpack(accept):
            return Answer(
                status=status, body=msgspec.msgpack.encode(value), media_type="application/msgpack", headers=headers
            )
        return Answer(status=status, body=msgspec.json.encode(value), headers=headers)

    async def reply(self, answer: Answer) -> None:
        """Send a whole answer. What is left of the request's body is let in for a moment, so that it is read."""
        unread = not self.body_read and self._expects_body()
        await self._start(answer.status, answer.media_type, len(answer.body), answer.headers, close=unread)
        head_only = self.scope["method"] == "HEAD"
        await self._send({"type": "http.response.body", "body": b"" if head_only else answer.body, "more_body": unread})
        if unread:
            await self._linger()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def stream(self, stream: Stream) -> None:
        """Send an answer while it is made. A reader that stands still is let go."""
        await self._start(stream.status, stream.media_type, stream.length, stream.headers, close=False)
        async with aclosing(stream.parts) as parts:
            async for part in parts:
                async with asyncio.timeout(SEND_S):
                    await self._send({"type": "http.response.body", "body": part, "more_body": True})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(
        self, status: int, media_type: str, length: int | None, headers: tuple[tuple[bytes, bytes], ...], *, close: bool
    ) -> None:
        self.started = True
        self.status = status
        sent = [(b"cache-control", b"no-store"), *headers]
        if status != 204:
            sent.append((b"content-type", media_type.encode()))
        if length is not None and status != 204 and not any(name == b"content-length" for name, _ in headers):
            sent.append((b"content-length", str(length).encode()))
        if close:
            sent.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": sent})

    def _expects_body(self) -> bool:
        return self.headers.get("content-length", "0") != "0" or "transfer-encoding" in self.headers

    async def _linger(self) -> None:
        """Read on for a moment before closing: a close with unread data resets the connection, and the answer with it.

        A sender that waits for `100 Continue` has been answered already, and sends nothing.
        """
        try:
            async with asyncio.timeout(LINGER_S):
                left = LINGER_BYTES
                while left > 0:
                    message = await self._receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
                    left -= len(message.get("body", b""))
        except TimeoutError:
            return


def decoded_as(data: bytes | bytearray, type: type[T], *, packed: bool = False, what: str = "the body") -> T:
    """JSON or msgpack as a Struct. Raises `InvalidRequest`."""
    try:
        return msgspec.msgpack.decode(data, type=type) if packed else msgspec.json.decode(data, type=type)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{what} is not what was expected: {error}", "see GET /v1/openapi.json") from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{what} is nested too deeply, or is no text", "see GET /v1/openapi.json") from error


LINGER_S = 2.0
LINGER_BYTES = 16 << 20


def preferred(accept: str) -> list[str]:
    """The media types of an Accept header, what is liked best first; those of weight 0 are not to be had."""
    weighed: list[tuple[float, str]] = []
    for part in accept.lower().split(","):
        kind, *about = (one.strip() for one in part.split(";"))
        said = next((one[2:] for one in about if one.startswith("q=")), "1")
        weight = float(said) if re.fullmatch(r"[01](\.\d{0,3})?", said) else 1.0
        if kind and weight > 0:
            weighed.append((-weight, kind))
    return [kind for _, kind in sorted(weighed, key=lambda one: one[0])]


def _prefers_msgpack(accept: str) -> bool:
    for kind in preferred(accept):
        if "msgpack" in kind:
            return True
        if kind in ("application/json", "application/*", "*/*"):
            return False
    return False


def headers_of(scope: Scope) -> dict[str, str]:
    """Headers by lower-case name; of repeated ones the last, but those that must be one are joined, so they fail."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def query_of(scope: Scope) -> dict[str, str]:
    """The query by name; of repeated names the last. Raises `InvalidRequest` for more of them than any call takes."""
    raw = scope.get("query_string", b"")
    if raw and b"&" not in raw and b"%" not in raw and b"+" not in raw:  # as nearly always
        name, _, value = raw.decode("latin-1").partition("=")
        return {name: value}
    if not raw:
        return {}
    try:
        return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS))
    except ValueError:
        raise InvalidRequest(
            f"the query has more than {MAX_QUERY_FIELDS} fields", "see GET /v1/openapi.json for what a call takes"
        ) from None


def peer_of(scope: Scope) -> str:
    """The other end's address for counting, where it is the real one."""
    client = scope.get("client")
    return real_address(str(client[0]) if client else "")


def real_address(host: str) -> str:
    """An address that is the other end's; "" for loopback, where tunnels and proxies come from."""
    return "" if host in ("127.0.0.1", "::1") or host.startswith("127.") else host
