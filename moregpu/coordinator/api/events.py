"""Doors to the one stream of events: a WebSocket, or server-sent events; both resume by sequence number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any

import msgspec

from moregpu.coordinator.api.ask import Ask, Stream
from moregpu.coordinator.api.socket import SocketAsk
from moregpu.errors import InvalidRequest
from moregpu.wire.api import Event

QUIET_S = 15.0
"""A stream says this often that it lives."""


async def stream(ask: Ask) -> Stream:
    """Server-sent events: a `snapshot` first, then deltas; `Last-Event-ID` or `?after=` resumes."""
    after = _sequence(ask.headers.get("last-event-id") or ask.query.get("after"))
    return Stream(parts=_server_sent(ask, after), length=None, media_type="text/event-stream")


async def socket(ask: SocketAsk) -> None:
    """Events as JSON texts: a `snapshot` first, then deltas; `?after=` resumes."""
    after = _sequence(ask.query.get("after"))
    await ask.accept()
    events = ask.services.desk.events.subscribe(ask.who, after)
    async for event in until_gone(events, gone_or_ended(ask)):
        if event is not None:
            await ask.send_text(msgspec.json.encode(event).decode())
    if not await ask.services.authority.holds(ask.who):
        await ask.close(1008, "the token no longer holds")


async def gone_or_ended(ask: Ask | SocketAsk) -> None:
    """Return when the other end closed, or when its token is good no longer."""
    either = [asyncio.ensure_future(ask.gone()), asyncio.ensure_future(ask.services.authority.until_ended(ask.who))]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in either:
            future.cancel()
        await asyncio.gather(*either, return_exceptions=True)


async def until_gone(
    events: AsyncIterator[Event], gone: Awaitable[None], quiet_s: float | None = None, *, begin: bool = False
) -> AsyncIterator[Event | None]:
    """Events as they come, and None every `quiet_s` seconds, however many come; ends when `gone` returns.

    `begin`: None at once, too.
    """
    period_s = QUIET_S if quiet_s is None else quiet_s
    loop = asyncio.get_running_loop()
    left = asyncio.ensure_future(gone)
    coming: asyncio.Future[Event] | None = None
    look_at = loop.time() + (0.0 if begin else period_s)
    try:
        while not left.done():
            if coming is None:
                coming = asyncio.ensure_future(anext(events))
            wait_s = max(0.0, look_at - loop.time())
            done, _ = await asyncio.wait({coming, left}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            if loop.time() >= look_at:
                look_at = loop.time() + period_s
                yield None
            if coming in done:
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                coming = None
                yield event
    finally:
        waiting: list[asyncio.Future[Any]] = [left] if coming is None else [left, coming]
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await close_quietly(events)


async def close_quietly(events: AsyncIterator[Event]) -> None:
    """End a subscription now, not when its last reference goes."""
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


async def _server_sent(ask: Ask, after: int | None) -> AsyncGenerator[bytes]:
    async for _ in ask.body_parts():  # a GET has none; from then on the next message is the disconnect
        pass
    events = ask.services.desk.events.subscribe(ask.who, after)
    async for event in until_gone(events, gone_or_ended(ask)):
        yield b": quiet\n\n" if event is None else server_sent(event)


def server_sent(event: Event) -> bytes:
    """One event in the format of the HTML standard, 9.2; live ones carry no id, so that resuming skips none."""
    id = b"" if event.seq is None else b"id: %d\n" % event.seq
    kind = event.type.replace("\n", " ").replace("\r", " ").encode()
    return id + b"event: " + kind + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


def _sequence(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidRequest(f"after={text[:40]!r} is not a sequence number")
    return int(text)
