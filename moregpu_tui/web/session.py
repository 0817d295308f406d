"""One tab of the browser and its console: what the one draws the other shows, until either is gone.

Binary messages are the terminal's bytes in both directions. Text messages are JSON: the page begins with `Begin`, sends
`Size` when its window has changed, and is told by `Ended` how the console ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.websockets import WebSocket, WebSocketDisconnect

from moregpu_tui.web.terminal import Terminal

BEGIN_S = 10.0
MAX_COLUMNS, MAX_ROWS = 1000, 500

NOT_YOURS, TOO_MANY, NOT_UNDERSTOOD, CANNOT_START = 4401, 4429, 4400, 4500
"""Close codes that `console.js` knows."""

Columns = Annotated[int, Meta(ge=2, le=MAX_COLUMNS)]
Rows = Annotated[int, Meta(ge=2, le=MAX_ROWS)]


class Begin(msgspec.Struct, forbid_unknown_fields=True):
    """The first message of a page."""

    key: str
    columns: Columns
    rows: Rows


class Size(msgspec.Struct, forbid_unknown_fields=True):
    """The page's terminal has another size."""

    columns: Columns
    rows: Rows


class Ended(msgspec.Struct):
    """The last message to a page."""

    ended: int


class Consoles:
    """The consoles of all tabs."""

    def __init__(self, command: Sequence[str], fits: Callable[[str], bool], at_most: int) -> None:
        self._command = command
        self._fits = fits
        self._at_most = at_most
        self._open: set[Terminal] = set()

    async def serve(self, socket: WebSocket) -> None:
        """Run a console for this tab; returns when both are gone."""
        await socket.accept()
        try:
            async with asyncio.timeout(BEGIN_S):
                begin = msgspec.json.decode(await socket.receive_text(), type=Begin)
        except (TimeoutError, msgspec.DecodeError, KeyError, WebSocketDisconnect):
            await _close(socket, NOT_UNDERSTOOD)
            return
        if not self._fits(begin.key):
            await _close(socket, NOT_YOURS)
        elif len(self._open) >= self._at_most:
            await _close(socket, TOO_MANY)
        else:
            await self._run(socket, begin)

    def kill(self) -> None:
        """End whatever is still there, at once."""
        for terminal in self._open:
            terminal.kill()
        self._open.clear()

    async def _run(self, socket: WebSocket, begin: Begin) -> None:
        try:
            terminal = Terminal(self._command, begin.columns, begin.rows)
        except OSError:  # no more processes, terminals or descriptors
            await _close(socket, CANNOT_START)
            return
        self._open.add(terminal)
        typing = asyncio.create_task(_type(socket, terminal))
        drawing = asyncio.create_task(_draw(socket, terminal))
        try:
            first, _ = await asyncio.wait((typing, drawing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (typing, drawing):
                task.cancel()
            await asyncio.gather(typing, drawing, return_exceptions=True)
            await terminal.end()
            self._open.discard(terminal)
        for task in first:
            task.result()


async def _draw(socket: WebSocket, terminal: Terminal) -> None:
    """What the console draws, and how it ended. A page that does not keep up is waited for, and the console waits."""
    try:
        while drawn := await terminal.read():
            await socket.send_bytes(drawn)
        ended = Ended(ended=await terminal.status())
        await socket.send_text(msgspec.json.encode(ended).decode())
        await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        return  # the page is gone


async def _type(socket: WebSocket, terminal: Terminal) -> None:
    """What is typed, pointed at and pasted, and the window's sizes; until the page is gone."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if (data := message.get("bytes")) is not None:
            if terminal.write(data):
                continue
            await _close(socket, NOT_UNDERSTOOD)
            return
        try:
            size = msgspec.json.decode(message.get("text") or "", type=Size)
        except msgspec.DecodeError:
            await _close(socket, NOT_UNDERSTOOD)
            return
        terminal.resize(size.columns, size.rows)


async def _close(socket: WebSocket, code: int) -> None:
    try:
        await socket.close(code)
    except (WebSocketDisconnect, RuntimeError):
        return  # the page was quicker
