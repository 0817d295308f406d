"""A worker's link as cheap as it can be: TLS, WebSocket and Noise in one protocol, with no task of its own.

Thousands of light workers share a machine with the coordinator that they measure, and what theirs costs is taken from
it. So the first message of Noise, which says nothing about the connection, is made beforehand, while a worker waits to
come back; frames are read and written by hand; and OpenSSL stands right beside the transport.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from moregpu.errors import HandshakeFailed, MoreGPUError, Unavailable, Unreachable
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.messages import SUBPROTOCOL, FromCoordinator, FromWorker
from moregpu.wire.session import Channel
from moregpu.wire.tls import advisory_context, leaf_pin

READ_BYTES = 64 * 1024
_BINARY, _CLOSE = 0x2, 0x8
_UNMASKED = bytes(4)  # a client must mask; by zeros nothing changes


class Prepared:
    """What a worker can make before it dials."""

    def __init__(self, keys: WorkerKeys, cs_pub: bytes, pool_id: bytes):
        self.channel = Channel.initiator(keys.ws, cs_pub, pool_id)
        self.first = self.channel.start()


class LeanLink(asyncio.Protocol):
    """One connection. `opened` is done when the Noise handshake has passed; then `hear` is told each message."""

    def __init__(
        self, address: str, prepared: Prepared, hear: Callable[[FromCoordinator], None], lost: Callable[[], None]
    ):
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.leaf = b""
        self.channel = prepared.channel
        self._address = address
        self._first = prepared.first
        self._hear = hear
        self._lost = lost
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = cast("ssl.SSLObject", None)
        self._secure = self._upgraded = False
        self._unread = b""
        self._transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with TLS."""
        self._transport = cast("asyncio.Transport", transport)
        self._tls = advisory_context().wrap_bio(self._incoming, self._outgoing)
        self._shake_hands()

    def data_received(self, data: bytes) -> None:
        """Whatever came; a fault ends the connection."""
        try:
            self._incoming.write(data)
            if not self._secure and not self._shake_hands():
                return
            self._unread += self._plain()
            if self._upgraded or self._upgrade():
                for message in self._frames():
                    self._take(message)
        except (MoreGPUError, ssl.SSLError) as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self.channel.close()
        if not self.opened.done():
            self.opened.set_exception(Unreachable(f"{self._address} hung up"))
        elif self.opened.exception() is None:
            self._lost()

    def send(self, messages: list[FromWorker]) -> None:
        """Seal and write."""
        for message in messages:
            self.channel.send(message)
        frames: list[bytes] = []
        while (record := self.channel.next_record()) is not None:
            frames.append(_frame(record))
        if frames:
            self._write(b"".join(frames))

    def close(self) -> None:
        """Cut it."""
        self._transport.abort()

    def _take(self, record: bytes) -> None:
        if self.channel.established:
            for message in self.channel.receive(record):
                self._hear(message)
            return
        self.channel.receive(record)
        der = self._tls.getpeercert(binary_form=True)
        self.leaf = leaf_pin(der) if der else b""
        if not self.opened.done():
            self.opened.set_result(None)

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        self._secure = True
        self._write(
            f"GET /v1/worker HTTP/1.1\r\nHost: {self._address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: bGlnaHQtd29ya2VyLWtleQ==\r\n"
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n".encode()
        )
        return True

    def _upgrade(self) -> bool:
        head, end, rest = self._unread.partition(b"\r\n\r\n")
        if not end:
            return False
        if not head.startswith(b"HTTP/1.1 101 "):
            raise Unavailable(f"{self._address} answers {head[:40].decode('latin-1')!r}")
        self._upgraded, self._unread = True, rest
        self._write(_frame(self._first))
        return True

    def _frames(self) -> list[bytes]:
        """Whole messages that have come."""
        found: list[bytes] = []
        data, at = self._unread, 0
        while len(data) - at >= 2:
            kind, length, begin = data[at], data[at + 1], at + 2
            if length == 126:
                length, begin = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif length > 126:
                raise HandshakeFailed("a frame that is larger than any record")
            if begin > len(data) or len(data) - begin < length:
                break
            at = begin + length
            if kind & 0x0F == _BINARY:
                found.append(data[begin:at])
            elif kind & 0x0F == _CLOSE:
                self._transport.close()
        self._unread = data[at:]
        return found

    def _plain(self) -> bytes:
        parts: list[bytes] = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
                if not self._incoming.pending and not self._tls.pending():
                    break
            else:
                self._transport.close()  # the other end's goodbye
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)

    def _write(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _fail(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
        self._transport.abort()


def _frame(data: bytes) -> bytes:
    size = len(data)
    head = bytes((0x80 | _BINARY, 0x80 | size)) if size < 126 else b"\x82\xfe" + size.to_bytes(2, "big")
    return head + _UNMASKED + data
