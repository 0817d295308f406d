"""TLS of one connection, between the loop's plain transport and the protocol that speaks HTTP.

The loops bring their own, made for few connections: uvloop's keeps 28 kB for one that says nothing, asyncio's 288 kB
(measured, 600 connections). Ten thousand workers say little and stay for days; so here nothing is kept beside OpenSSL's
own state, and all connections of a door read into one buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, cast

LINGER_S = 10.0
"""After our goodbye the other end has so long to hang up; what it still sends is dropped. (To close at once would make
its system throw away an answer that it has not read yet.)"""

RECORD_BYTES = 16 * 1024
BUFFER_BYTES = 256 * 1024
"""As much as a loop reads at once."""


class Secured(asyncio.Protocol, asyncio.Transport):
    """A protocol to the plain transport below, a transport to the protocol above."""

    __slots__ = ("_above", "_below", "_buffer", "_incoming", "_leaving", "_lingering", "_outgoing", "_shaken", "_tls",
                 "_waiting")  # fmt: skip

    def __init__(
        self,
        context: ssl.SSLContext,
        buffer: memoryview,
        above: Callable[[], asyncio.Protocol],
        shaken: Callable[[Secured, Exception | None], None],
    ) -> None:
        """`buffer`: `BUFFER_BYTES`, shared by connections of one loop.

        `shaken` is told once how the handshake went; then `above` is asked for the protocol that is protected.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._buffer = buffer
        self._waiting: Callable[[], asyncio.Protocol] | None = above
        self._shaken: Callable[[Secured, Exception | None], None] | None = shaken
        self._above = cast("asyncio.Protocol", None)
        self._below = cast("asyncio.Transport", None)
        self._leaving = False
        self._lingering: asyncio.TimerHandle | None = None

    # -- for the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the other end's first word, unless this one has given way already."""
        self._below = cast("asyncio.Transport", transport)
        if self._leaving:
            self._below.abort()

    def data_received(self, data: bytes) -> None:
        """Ciphertext came."""
        if self._leaving:
            return
        self._incoming.write(data)
        if self._waiting is not None and not self._shake_hands(self._waiting):
            return
        while self._incoming.pending and not self._leaving and self._read():
            pass

    def eof_received(self) -> bool:
        """The other end hung up: so does the transport below."""
        return False

    def pause_writing(self) -> None:
        """More is written than goes out."""
        if self._waiting is None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """There is room again."""
        if self._waiting is None:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._leaving = True
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._waiting is None:
            self._above.connection_lost(exc)
        else:
            self._tell(exc or ConnectionResetError("hung up during the handshake"))

    # -- for the protocol above

    def write(self, data: Any) -> None:
        """Seal and send; what is written after the end goes nowhere."""
        if self._leaving:
            return
        try:
            if len(data) <= BUFFER_BYTES:
                self._tls.write(data)
                self._flush()
                return
            view = memoryview(data)
            for at in range(0, len(view), BUFFER_BYTES):  # never twice as much as that is held in between
                self._tls.write(view[at : at + BUFFER_BYTES])
                self._flush()
        except ssl.SSLError:
            self.abort()

    def close(self) -> None:
        """Say goodbye behind what was written, and let the other end hang up."""
        if self._leaving:
            return
        self._leaving = True
        with contextlib.suppress(ssl.SSLError):  # it says that the other end's goodbye has yet to come
            self._tls.unwrap()
        self._flush()
        self._below.resume_reading()
        self._lingering = asyncio.get_running_loop().call_later(LINGER_S, self._below.abort)

    def abort(self) -> None:
        """Cut it, at any time."""
        self._leaving = True
        self._tell(TimeoutError("not shaken hands in time, or in the way of others"))
        if cast("asyncio.Transport | None", self._below) is not None:
            self._below.abort()

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._leaving or self._below.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another protocol takes over."""
        self._above = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who speaks now."""
        return self._above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of TLS, else of the transport below."""
        if name == "ssl_object":
            return self._tls
        return self._tls.context if name == "sslcontext" else self._below.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Take no more from the other end."""
        if not self._leaving:
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if not self._leaving:
            self._below.resume_reading()

    def is_reading(self) -> bool:
        """Whether what comes is taken."""
        return not self._leaving and self._below.is_reading()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to go out, sealed."""
        return self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Of the transport below."""
        return self._below.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of the transport below."""
        self._below.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        """TLS ends in both directions at once here."""
        return False

    # -- inside

    def _shake_hands(self, above: Callable[[], asyncio.Protocol]) -> bool:
        """Go on with the handshake; whether it has passed."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert that says why
            self._leaving = True
            self._below.close()
            self._tell(error)
            return False
        self._flush()
        self._tell(None)
        self._above, self._waiting = above(), None
        self._above.connection_made(self)
        return True

    def _tell(self, error: Exception | None) -> None:
        """Say once how the handshake went."""
        shaken, self._shaken = self._shaken, None
        if shaken is not None:
            shaken(self, error)

    def _read(self) -> bool:
        """Tell what came, as much as the buffer holds; whether there may be more."""
        tls, buffer, at, ended = self._tls, self._buffer, 0, False
        try:
            while at <= BUFFER_BYTES - RECORD_BYTES:
                got = cast("int", tls.read(RECORD_BYTES, cast("bytearray", buffer[at : at + RECORD_BYTES])))
                if not got:  # the other end's goodbye
                    ended = True
                    break
                at += got
                if not self._incoming.pending and not tls.pending():
                    break  # to be told so by an error takes longer than to read a short message
        except ssl.SSLWantReadError:  # the rest of a record has yet to come
            if not at:
                self._flush()
                return False
        except ssl.SSLError:
            self._flush()
            self.abort()
            return False
        self._flush()  # TLS answers by itself sometimes: a change of keys
        if at:
            self._above.data_received(bytes(buffer[:at]))
        if ended:
            self.close()
        return not ended

    def _flush(self) -> None:
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())
