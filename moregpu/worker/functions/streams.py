"""A socket of the agent's loop that is written to at once where it takes that, and from a buffer where it does not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

_READ_BYTES = 1 << 18


class Stream:
    """`heard(data)` gets what comes; `ended()` is called once, when the other end is gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        heard: Callable[[bytes], None],
        ended: Callable[[], None],
    ):
        sock.setblocking(False)
        self._loop = loop
        self._sock = sock
        self._heard = heard
        self._ended = ended
        self._unsent = bytearray()
        self._closed = False
        loop.add_reader(sock, self._read)

    def send(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        """Send; descriptors go with the first byte."""
        if self._closed:
            return
        try:
            if fds:
                self._flush_for_descriptors()
                sent = socket.send_fds(self._sock, [data], list(fds))
            else:
                sent = 0 if self._unsent else self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the reader hears of it
        if sent < len(data):
            if not self._unsent:
                self._loop.add_writer(self._sock, self._write)
            self._unsent += memoryview(data)[sent:]

    def read_now(self) -> None:
        """Take in what has come. That the other end is gone is left to the loop."""
        if not self._closed and (data := self._received()):
            self._heard(data)

    def close(self) -> None:
        """Close it; nothing is called any more."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    def _flush_for_descriptors(self) -> None:
        if self._unsent:  # only a zygote that has stopped reading lets it come to this
            raise OSError("the other end does not read")

    def _read(self) -> None:
        data = self._received()
        if data:
            self._heard(data)
        elif data is not None:
            self.close()
            self._ended()

    def _received(self) -> bytes | None:
        """What has come: nothing (None), or that nothing more will (empty)."""
        try:
            return self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _write(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()
            sent = 0
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._sock)
