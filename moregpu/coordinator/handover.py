"""A worker's WebSocket once its opening request was answered.

Ten thousand workers hold ten thousand sockets that say little. What a server and its routes keep for a request (its
headers, queues, and a dozen coroutines that wait for its end) would be four fifths of what each of them costs; so this
is all that stays beside the transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from moregpu.coordinator.framing import head, whole_messages

CLOSE_S = 10.0
"""The other end has so long to answer a closing frame."""

MAX_UNREAD = 16
"""Messages that may lie here before no more is read. (To stop and start for each one costs two system calls.)"""

MAX_UNSENT_BYTES = 1 << 20
"""Answers to pings that an end does not read; one that lets more lie is let go. (What we say waits in `send`.)"""

TOGETHER_BYTES = 16 * 1024
"""What is sent in one turn of the loop is written together, up to so much: one TLS record, one system call."""

_websockets = logging.getLogger("uvicorn.error")
_GONE = "the other end of the WebSocket is gone"

Serve = Callable[["TakenSocket"], Awaitable[None]]


class TakenSocket(asyncio.Protocol):
    """The hub's `WorkerSocket`: whole binary messages over one connection."""

    __slots__ = ("_begun", "_closing", "_connections", "_drained", "_gone", "_most", "_out", "_paused",
                 "_transport", "_unread", "_unwritten", "_waiting", "_ws", "peer")  # fmt: skip

    def __init__(self, peer: str, transport: asyncio.Transport, connections: set[Any], max_bytes: int) -> None:
        """`connections`: whom the server stops, this one among them. `max_bytes` of a message."""
        self.peer = peer
        self._transport = transport
        self._ws: Protocol | None = None  # made when it is needed
        self._most = max_bytes
        self._connections = connections
        self._unread: list[bytes] = []
        self._begun = b""  # a message whose end has yet to come
        self._out: list[bytes] = []  # frames that wait to be written
        self._unwritten = 0  # bytes that wait for the end of this turn of the loop
        self._waiting: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._paused = False
        self._gone = False

    # -- for the hub

    async def receive(self) -> bytes | None:
        """The next message; None when the other end closed."""
        while not self._unread:
            if self._gone:
                return None
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        message = self._unread.pop(0)
        if self._paused and not self._unread and not self._gone:
            self._paused = False
            self._transport.resume_reading()
        return message

    async def send(self, data: bytes) -> None:
        """Write one message, once the transport has room; raises `ConnectionError` when the socket is gone."""
        while self._drained is not None:
            await asyncio.shield(self._drained)
        if self._gone:
            raise ConnectionError(_GONE)
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self.put(data)

    @property
    def has_room(self) -> bool:
        """Whether `put` may be called: the other end reads, and the socket is open."""
        return self._drained is None and not self._gone

    def put(self, data: bytes) -> None:
        """Take one message, to be written with `flush`."""
        before = head(len(data))
        self._out += (before, data)
        self._unwritten += len(before) + len(data)
        if self._unwritten > TOGETHER_BYTES:
            self._write()

    def flush(self) -> None:
        """Write what was put, all together."""
        if self._out:
            self._write()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it; closing what is closed does nothing."""
        if self._gone:
            return
        self._library().send_close(code, reason[:100])
        self._write()
        self._say_goodbye()

    # -- for the transport

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._ws is None:
            data = self._read_plain(data)
            if not data:
                return
        ws = self._library()
        ws.receive_data(data)
        for event in ws.events_received():
            if isinstance(event, Frame):
                self._took(event)
        self._write()  # pongs, and the answer to a closing frame or to nonsense
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._transport.abort()
            return
        if ws.close_sent is not None and (ws.close_rcvd is not None or ws.parser_exc is not None):
            self._leave()
            self._transport.close()

    def pause_writing(self) -> None:
        """The other end reads slower than we write."""
        self._drained = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It caught up."""
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is closed."""
        self._leave()
        self.resume_writing()
        self._connections.discard(self)
        if self._closing is not None:
            self._closing.cancel()

    def shutdown(self) -> None:
        """The server stops (uvicorn calls this for every connection)."""
        if not self._gone:
            self._library().send_close(1012)
            self._write()
            self._leave()
        self._transport.close()

    # -- inside

    def _read_plain(self, data: bytes) -> bytes:
        """Take whole messages off the front, as nearly all that comes is. The rest is for the library, from here on."""
        messages, rest, is_other = whole_messages(self._begun + data if self._begun else data)
        self._begun = b"" if is_other else rest
        for message in messages:
            self.received(message)
        return rest if is_other else b""

    def _library(self) -> Protocol:
        """What reads and says all but whole messages: from now on, and with what had come of the next."""
        if self._ws is None:
            self._ws = Protocol(Side.SERVER, max_size=self._most, logger=_websockets)
            begun, self._begun = self._begun, b""
            self._ws.receive_data(begun)
        return self._ws

    def _took(self, frame: Frame) -> None:
        """A frame. Records are never split into several, and nobody sends text: such a frame ends the session."""
        if frame.opcode in (Opcode.TEXT, Opcode.CONT) or (frame.opcode is Opcode.BINARY and not frame.fin):
            self.received(None)
        elif frame.opcode is Opcode.BINARY:
            self.received(bytes(frame.data))

    def received(self, message: bytes | None) -> None:
        """A message to be read; None: one that is none of ours."""
        if self._gone:
            return
        if message is None:
            with contextlib.suppress(InvalidState):  # what came behind it was nonsense, and said so already
                self._library().send_close(1003, "binary messages only")
            self._write()
            self._say_goodbye()
            return
        self._unread.append(message)
        self._wake()
        if len(self._unread) >= MAX_UNREAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _say_goodbye(self) -> None:
        """Our closing frame is written: whatever comes but its answer is dropped."""
        self._unread.clear()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._closing = asyncio.get_running_loop().call_later(CLOSE_S, self._transport.close)
        self._leave()

    def _leave(self) -> None:
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _write(self) -> None:
        self._unwritten = 0
        out, self._out = self._out, []
        data = b"".join(out if self._ws is None else out + self._ws.data_to_send())
        if data and not self._transport.is_closing():
            self._transport.write(data)


async def served(socket: TakenSocket, serve: Serve) -> None:
    """Serve a socket to its end, and close it."""
    try:
        await serve(socket)
    finally:
        await socket.close()
