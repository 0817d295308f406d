"""A TCP proxy that breaks connections as networks do: it delays, stalls, cuts, half-closes, repeats and throttles.

It sits between real processes and knows nothing of what they say. Settings hold for one direction (`up`: towards the
coordinator, `down`: away from it) and may change while bytes flow.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType

PIECE_BYTES = 16 * 1024


class Direction:
    """What happens to the bytes of one direction, on all connections."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        """All connections together, as on one line."""
        self.cut_after: list[int] = []
        """One number for each of the next connections: after so many bytes, both ways end by a reset."""
        self.half_close_after: int | None = None
        """After so many bytes of the next connection this way is closed, while the other goes on. Once."""
        self.repeat_at: int | None = None
        """The piece that holds this byte of the next connection is sent twice. Once."""
        self.passed = 0
        """Bytes that went through."""
        self._flows = threading.Event()
        self._flows.set()
        self._line = threading.Lock()

    def stall(self) -> None:
        """Nothing passes, and nobody is told."""
        self._flows.clear()

    def flow(self) -> None:
        """What was held passes, and all that follows."""
        self._flows.set()

    def wait(self, size: int) -> None:
        """Hold a piece for as long as the line needs."""
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.bytes_per_s:
            with self._line:
                time.sleep(size / self.bytes_per_s)
        self._flows.wait()
        self.passed += size


class Link:
    """One connection through the proxy."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.near = near
        self.far = far
        self.is_held = False
        """Its ends are not told when the other end goes: half-open, as when a machine loses its power."""

    def cut(self) -> None:
        """Reset both ends."""
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)  # wakes who reads it
            end.close()


class Proxy:
    """Forwards to one address of loopback. Use it as a context manager."""

    def __init__(self, to: str) -> None:
        host, port = to.rsplit(":", 1)
        self._to = (host, int(port))
        self.up = Direction()
        self.down = Direction()
        self.links: list[Link] = []
        self.is_open = True
        """Whether new connections are let through; else they are reset."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.up.flow()
        self.down.flow()
        self.cut()
        self._thread.join(5.0)

    def cut(self) -> None:
        """Reset every connection that there is."""
        links, self.links = self.links, []
        for link in links:
            link.cut()

    def hold(self) -> None:
        """The connections that there are stay open whatever their ends do, and carry nothing any more."""
        for link in self.links:
            link.is_held = True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self.is_open:
                    Link(near, near).cut()
                    continue
                try:
                    far = socket.create_connection(self._to)
                except OSError:  # nobody listens there now
                    Link(near, near).cut()
                    continue
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link = Link(near, far)
                self.links.append(link)
                for source, to, direction in ((near, far, self.up), (far, near, self.down)):
                    pump = _Pump(link, source, to, direction)
                    threading.Thread(target=pump.run, daemon=True).start()


class _Pump:
    """Carries one direction of one connection."""

    def __init__(self, link: Link, source: socket.socket, to: socket.socket, direction: Direction) -> None:
        self._link = link
        self._source = source
        self._to = to
        self._direction = direction
        self._cut_after = direction.cut_after.pop(0) if direction.cut_after else None
        self._half_close_after, direction.half_close_after = direction.half_close_after, None
        self._repeat_at, direction.repeat_at = direction.repeat_at, None
        self._carried = 0

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while piece := self._source.recv(PIECE_BYTES):
                if not self._carry(piece):
                    return
        if not self._link.is_held:
            with contextlib.suppress(OSError):
                self._to.shutdown(socket.SHUT_WR)

    def _carry(self, piece: bytes) -> bool:
        """Pass a piece on; returns whether this direction goes on."""
        before, self._carried = self._carried, self._carried + len(piece)
        self._direction.wait(len(piece))
        if self._link.is_held:
            return True
        if self._cut_after is not None and self._carried >= self._cut_after:
            self._to.sendall(piece[: self._cut_after - before])
            self._link.cut()
            return False
        if self._half_close_after is not None and self._carried >= self._half_close_after:
            self._to.sendall(piece[: self._half_close_after - before])
            self._to.shutdown(socket.SHUT_WR)
            return False
        self._to.sendall(piece)
        if self._repeat_at is not None and before <= self._repeat_at < self._carried:
            self._to.sendall(piece)
        return True
