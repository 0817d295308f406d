"""The owner at a Wayland desktop that speaks `ext-idle-notify-v1` (wlroots, KDE, COSMIC).

It tells when there was no input for a second, and when there is some again. A film that keeps the screen on counts as
input: desktops tell it so.

A client of the little that is needed: the registry, a seat, and a notification. A message is the object's id, then its
size and opcode in one word, then its arguments, all in the machine's byte order (wayland.freedesktop.org: Wire Format).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from moregpu.worker.probes.presence import Presence

IDLE_AFTER_S = 1.0
"""What is asked for: the shortest time without input that is worth a message."""

OPEN_S = 1.0
"""A compositor that takes longer to answer the first time is none."""

_HEADER = struct.Struct("=II")
_MAX_BYTES = 4096
_DISPLAY, _REGISTRY, _DONE, _SEAT, _NOTIFIER, _NOTIFICATION = range(1, 7)
"""Objects, as we number them."""

_ERROR, _GLOBAL, _ANSWERED = (_DISPLAY, 0), (_REGISTRY, 0), (_DONE, 0)
_IDLED, _RESUMED = (_NOTIFICATION, 0), (_NOTIFICATION, 1)
"""What is heard: object and opcode."""


class WaylandSeat:
    """A connection to the compositor. Looking reads what has come, and never waits."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic):
        """Connect; raises `OSError` where there is none, or it has no seat or does not tell of idleness."""
        self._clock = clock
        self._received = b""
        self._names: dict[str, int] = {}
        self._idle_since: float | None = None
        self._answered = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(OPEN_S)
            self._socket.connect(str(path))
            self._open()
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def presence(self) -> Presence:
        """Look; raises `OSError` when the compositor is gone."""
        self._read()
        now = self._clock()
        return Presence(idle_s=0.0 if self._idle_since is None else max(0.0, now - self._idle_since))

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def _open(self) -> None:
        self._send(_DISPLAY, 1, struct.pack("=I", _REGISTRY))
        self._send(_DISPLAY, 0, struct.pack("=I", _DONE))
        while not self._answered:
            self._read()
        for interface, new in (("wl_seat", _SEAT), ("ext_idle_notifier_v1", _NOTIFIER)):
            if interface not in self._names:
                raise OSError(f"this desktop offers no {interface}")
            text = _text(interface)
            self._send(_REGISTRY, 0, struct.pack("=I", self._names[interface]) + text + struct.pack("=II", 1, new))
        self._send(_NOTIFIER, 1, struct.pack("=III", _NOTIFICATION, round(IDLE_AFTER_S * 1000), _SEAT))

    def _send(self, target: int, opcode: int, arguments: bytes) -> None:
        size = _HEADER.size + len(arguments)
        self._socket.sendall(_HEADER.pack(target, size << 16 | opcode) + arguments)

    def _read(self) -> None:
        """Take in what has come: once where that may wait (while opening), else all of it."""
        while True:
            try:
                data = self._socket.recv(_MAX_BYTES)
            except BlockingIOError:
                return
            if not data:
                raise OSError("the compositor is gone")
            self._received += data
            self._take()
            if self._socket.gettimeout() != 0.0:
                return

    def _take(self) -> None:
        while len(self._received) >= _HEADER.size:
            target, word = _HEADER.unpack_from(self._received)
            size = word >> 16
            if size < _HEADER.size:
                raise OSError("the compositor speaks nonsense")
            if len(self._received) < size:
                return
            arguments, self._received = self._received[_HEADER.size : size], self._received[size:]
            self._hear((target, word & 0xFFFF), arguments)

    def _hear(self, event: tuple[int, int], arguments: bytes) -> None:
        """Whatever else is heard tells of seats that come and go, and of their names."""
        if event == _ERROR:
            raise OSError("the compositor refuses")
        if event == _GLOBAL:
            (name,) = struct.unpack_from("=I", arguments)
            self._names.setdefault(_read_text(arguments[4:]), name)
        elif event == _ANSWERED:
            self._answered = True
        elif event == _IDLED:
            self._idle_since = self._clock() - IDLE_AFTER_S
        elif event == _RESUMED:
            self._idle_since = None


def socket_of(environment: Mapping[str, str]) -> Path:
    """Where the compositor listens."""
    name = environment.get("WAYLAND_DISPLAY") or "wayland-0"
    return (
        Path(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / name
    )  # an absolute name stays itself


def _text(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("=I", len(data)) + data + bytes(-len(data) % 4)


def _read_text(data: bytes) -> str:
    (size,) = struct.unpack_from("=I", data)
    return data[4 : 4 + max(size - 1, 0)].decode(errors="replace")
