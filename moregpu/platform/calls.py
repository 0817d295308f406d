"""Short messages between two processes of one user over a Unix socket: four bytes of length, then the message.

The calls, and the bytes, are those of `multiprocessing.connection`, which does this on Windows by a pipe.
"""

from __future__ import annotations

import select
import socket
import struct
from pathlib import Path
from types import TracebackType

_LENGTH = struct.Struct("!i")


class Connection:
    """One end of it."""

    def __init__(self, made: socket.socket):
        self._socket = made

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send_bytes(self, message: bytes) -> None:
        """Send one message. Raises `OSError`."""
        self._socket.sendall(_LENGTH.pack(len(message)) + message)

    def recv_bytes(self, at_most: int) -> bytes:
        """Take one message. Raises `EOFError` when the other end is gone, `OSError` for one that is too long."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if not 0 <= size <= at_most:
            self.close()
            raise OSError("bad message length")
        return self._read(size)

    def poll(self, timeout_s: float) -> bool:
        """Whether something comes (or the other end goes) within so long."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(1000.0 * timeout_s))

    def close(self) -> None:
        """Let it go."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Client(Connection):
    """The end that calls. Raises `OSError` when nobody listens there."""

    def __init__(self, address: str, family: str = "AF_UNIX"):
        super().__init__(_made(family))
        try:
            self._socket.connect(address)
        except BaseException:
            self.close()
            raise


class Listener:
    """The end that is called, one caller after another."""

    def __init__(self, address: str, family: str = "AF_UNIX"):
        """Listen there. Raises `OSError` for a place that is taken."""
        self._address = Path(address)
        self._socket = _made(family)
        try:
            self._socket.bind(address)
            self._socket.listen(8)
        except BaseException:
            self._socket.close()
            raise

    def accept(self) -> Connection:
        """Wait for a caller. Raises `OSError` once it is closed."""
        return Connection(self._socket.accept()[0])

    def close(self) -> None:
        """Listen no more; the socket's file goes."""
        self._socket.close()
        self._address.unlink(missing_ok=True)


def _made(family: str) -> socket.socket:
    return socket.socket(getattr(socket, family), socket.SOCK_STREAM)
