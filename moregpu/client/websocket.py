"""One WebSocket for threads: any of them sends, one of them receives, and nothing is handed from thread to thread.

The protocol is the sans-I/O one of `websockets`. Its own client for threads keeps a thread that reads and passes each
frame on to the one that asked; here whoever receives reads the socket itself, which is one change of threads less for
every answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidMessage, ProtocolError
from websockets.exceptions import InvalidState as NotOpen
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from moregpu.wire.duplex import Duplex

if TYPE_CHECKING:
    import ssl

_DATA = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)
_BROKEN = 1006
_LEAVE_S = 1.0


class Closed(Exception):
    """The connection is closed; `code` is what the other end said, 1006 where it said nothing."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


class WebSocket:
    """An open WebSocket.

    One whose other end vanished without a word is noticed after two times `ping_s`.
    """

    def __init__(self, protocol: ClientProtocol, duplex: Duplex):
        self._protocol = protocol
        self._duplex = duplex
        self._lock = threading.Lock()
        self._messages: deque[bytes] = deque()
        self._pieces: list[bytes] = []
        self._pinged = False

    @classmethod
    def open(
        cls,
        address: str,
        path: str,
        context: ssl.SSLContext,
        *,
        subprotocol: str,
        headers: Mapping[str, str],
        max_bytes: int,
        timeout_s: float,
        ping_s: float,
    ) -> WebSocket:
        """Connect, and wait for the answer.

        Raises `OSError` while connecting, `EOFError` when the other end closes instead of answering, and
        `InvalidHandshake` (`InvalidStatus` with the answer's status and body) when it does not open a WebSocket.
        """
        protocol = ClientProtocol(
            parse_uri(f"wss://{address}{path}"), subprotocols=[Subprotocol(subprotocol)], max_size=max_bytes
        )
        until = time.monotonic() + timeout_s
        duplex = Duplex(address, context, timeout_s)
        try:
            request = protocol.connect()
            request.headers.update(headers)
            protocol.send_request(request)
            socket = cls(protocol, duplex)
            socket._flush()
            socket._opened(until)
            duplex.set_timeout(ping_s)
        except BaseException:
            duplex.close()
            raise
        return socket

    def send(self, message: bytes) -> None:
        """Send one binary message; raises `Closed`."""
        with self._lock:
            try:
                self._protocol.send_binary(message)
                self._flush()
            except (NotOpen, OSError) as error:
                raise Closed(self._code()) from error

    def receive(self) -> bytes:
        """The next message, binary or text; raises `Closed`. One thread."""
        while not self._messages:  # what came before the end is read first
            if self._is_over():
                self._duplex.close()
                raise Closed(self._code())
            try:
                self._take(self._duplex.read())
            except TimeoutError:
                self._ask()
            except OSError:
                self._take(b"")
        return self._messages.popleft()

    def close(self) -> None:
        """Say goodbye and close; from any thread."""
        if self._lock.acquire(timeout=_LEAVE_S):  # else somebody writes to an end that does not read: no goodbye
            try:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
                self._flush()
            except (NotOpen, ProtocolError, OSError):
                pass  # it is over already
            finally:
                self._lock.release()
        self._duplex.close()

    def _opened(self, until: float) -> None:
        """Read until the answer to the opening request is there."""
        while self._protocol.state is State.CONNECTING:
            self._duplex.set_timeout(max(0.001, until - time.monotonic()))
            data = self._duplex.read()
            self._feed(data)
            refused = self._protocol.handshake_exc
            if refused is not None:
                raise EOFError("closed without an answer") if _is_cut(refused) else refused
            for event in self._protocol.events_received():
                if isinstance(event, Frame):  # said in one breath with the answer
                    self._frame(event)

    def _feed(self, data: bytes) -> None:
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()

    def _take(self, data: bytes) -> None:
        """Let the protocol read it."""
        self._pinged = False
        with self._lock:
            self._feed(data)
            for event in self._protocol.events_received():
                if isinstance(event, Frame):
                    self._frame(event)
            with contextlib.suppress(OSError):  # the next read tells
                self._flush()  # pongs, and the answer to a goodbye

    def _is_over(self) -> bool:
        """Whether nothing more comes: a goodbye, a fault, or the end of the stream."""
        return self._protocol.close_rcvd is not None or self._protocol.parser_exc is not None

    def _frame(self, frame: Frame) -> None:
        if frame.opcode not in _DATA:
            return
        if frame.fin and not self._pieces:
            self._messages.append(bytes(frame.data))
            return
        self._pieces.append(bytes(frame.data))
        if frame.fin:
            self._messages.append(b"".join(self._pieces))
            self._pieces.clear()

    def _ask(self) -> None:
        """Nothing came for long: ask whether anybody is there; the second time the connection is over."""
        if self._pinged:
            self._take(b"")
            return
        self._pinged = True
        with self._lock, contextlib.suppress(NotOpen, OSError):
            self._protocol.send_ping(b"")
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:  # an empty one says that nothing more comes: closing says that here
                self._duplex.write(data)

    def _code(self) -> int:
        rcvd = self._protocol.close_rcvd
        return rcvd.code if rcvd is not None else _BROKEN


def _is_cut(error: Exception) -> bool:
    """Whether the other end closed instead of answering."""
    return isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError)
