"""TLS over one socket, for one thread that reads while others write.

OpenSSL's connections may not be used by two threads at once, and a blocking read would keep every writer out. So TLS
stands beside the socket here: the reading thread waits for ciphertext without holding anything, and only turning bytes
into others happens under the lock.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time

from moregpu.wire.invite import split_address

READ_BYTES = 64 * 1024
_LEAVE_S = 1.0
"""How long closing waits for somebody who is writing."""


class Duplex:
    """One TLS connection, open. Any thread may `write`; one thread at a time may `read`."""

    def __init__(self, address: str, context: ssl.SSLContext, timeout_s: float):
        """Connect to "host:port" and finish the handshake; raises `OSError` (`ssl.SSLError`, `TimeoutError`)."""
        host, port = split_address(address)
        until = time.monotonic() + timeout_s
        self._socket = socket.create_connection((host, port), timeout_s)
        self._received, self._sealed = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sealed, server_hostname=host)
        self._lock = threading.Lock()
        self._waiting = threading.Lock()  # held while somebody is inside recv, so that the descriptor outlives it
        self._ended = False
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands(until)
        except BaseException:
            self._socket.close()
            raise

    def set_timeout(self, timeout_s: float) -> None:
        """How long a `read` waits for something, and a `write` for room."""
        self._socket.settimeout(timeout_s)

    def write(self, data: bytes) -> None:
        """Send all of it. Raises `OSError`, after which the connection is closed."""
        with self._lock:
            if self._ended:
                raise ConnectionError("the connection is closed")
            try:
                self._tls.write(data)
                self._flush()
            except OSError:
                self._shut()  # half a record went out: nothing more can be said, and the reader hears of it
                raise

    def read(self) -> bytes:
        """What came, as soon as something did; b"" at the end. Raises `TimeoutError`, or another `OSError`."""
        while True:
            with self._waiting:
                if self._ended:
                    return b""
                sealed = self._socket.recv(READ_BYTES)
            with self._lock:
                opened = self._opened(sealed)
            if opened or not sealed:
                return opened

    def close(self) -> None:
        """Close, from any thread, also from one that reads or writes."""
        held = self._lock.acquire(timeout=_LEAVE_S)
        try:
            self._shut()
        finally:
            if held:
                self._lock.release()
        with self._waiting:  # whoever was inside recv has been woken
            self._socket.close()

    def _shake_hands(self, until: float) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the TLS handshake takes too long") from None
                self._socket.settimeout(left)
                sealed = self._socket.recv(READ_BYTES)
                if not sealed:
                    raise ConnectionResetError("the connection was closed while it was opened") from None
                self._received.write(sealed)
                continue
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()  # the alert that says why
                raise
            self._flush()
            return

    def _opened(self, sealed: bytes) -> bytes:
        """The plain bytes in what came; the lock is held."""
        if not sealed:
            return b""
        self._received.write(sealed)
        parts: list[bytes] = []
        try:
            while part := self._tls.read(READ_BYTES):
                parts.append(part)
                if not self._received.pending and not self._tls.pending():
                    break  # to be told so by an error takes longer than to read a short message
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._ended = True
            return b"".join(parts)
        self._flush()  # TLS answers by itself sometimes: a change of keys
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _flush(self) -> None:
        if self._sealed.pending:
            self._socket.sendall(self._sealed.read())

    def _shut(self) -> None:
        """No more in either direction; wakes whoever reads."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
