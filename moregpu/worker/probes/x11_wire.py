"""As much of the X11 protocol as a look at the owner takes: a library for all of it would cost each tray 3 MB.

Requests and replies as in "X Window System Protocol, X Version 11", least significant byte first; one request at a
time. Events are never asked for.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

COOKIE = b"MIT-MAGIC-COOKIE-1"
SOCKETS = "/tmp/.X11-unix/X"  # noqa: S108 — where X servers listen
FIRST_PORT = 6000
MAX_REPLY_BYTES = 1 << 20
"""A reply to what is asked here is far smaller; the server is not trusted to say so."""

_INTERNET, _INTERNET_6, _LOCAL, _WILD = 0, 6, 256, 65_535
"""Families of addresses in an authority file (Xauth.h)."""

_ERROR, _REPLY, _GENERIC_EVENT = 0, 1, 35
_INTERN_ATOM, _GET_PROPERTY, _QUERY_EXTENSION = 16, 20, 98
_ANY_TYPE = 0


class RequestRefused(Exception):
    """The server answered with an error: a window that is gone."""


class XConnection:
    """A connection to an X server. Each call blocks until the server answers; raises `OSError` when it is gone."""

    def __init__(self, name: str, environment: Mapping[str, str] = os.environ):
        """Connect to "host:display.screen". Raises `OSError`."""
        host, number, screen = _parsed(name)
        self._socket = _connected(host, number)
        try:
            self.root = self._set_up(_cookie(self._socket, host, number, environment), screen)
            """The root window of the screen."""
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()

    def extension(self, name: str) -> int | None:
        """The number by which an extension's requests are called; None where there is none."""
        reply = self._asked(_QUERY_EXTENSION, 0, struct.pack("<HH", len(name), 0) + _padded(name.encode()))
        return reply[9] if reply[8] else None

    def atom(self, name: str) -> int:
        """The number of a name."""
        reply = self._asked(_INTERN_ATOM, 0, struct.pack("<HH", len(name), 0) + _padded(name.encode()))
        return _u32(reply, 8)

    def numbers(self, window: int, property: int) -> list[int]:
        """A window's property of 32-bit numbers; empty where it has none. Raises `RequestRefused`."""
        reply = self._asked(_GET_PROPERTY, 0, struct.pack("<IIIII", window, property, _ANY_TYPE, 0, 1024))
        count = _u32(reply, 16)
        if reply[1] != 32 or len(reply) < 32 + 4 * count:
            return []
        return list(struct.unpack_from(f"<{count}I", reply, 32))

    def idle_s(self, screen_saver: int) -> float:
        """Seconds since the last input, by the extension MIT-SCREEN-SAVER."""
        return _u32(self._asked(screen_saver, 1, struct.pack("<I", self.root)), 16) / 1000.0

    # -- the wire

    def _asked(self, opcode: int, detail: int, body: bytes) -> bytes:
        """Send one request and read its reply."""
        self._socket.sendall(struct.pack("<BBH", opcode, detail, 1 + len(body) // 4) + body)
        while True:
            head = self._read(32)
            if head[0] == _ERROR:
                raise RequestRefused(f"X error {head[1]} of request {opcode}")
            if head[0] in (_REPLY, _GENERIC_EVENT):
                head += self._read(4 * _u32(head, 4))
            if head[0] == _REPLY:
                return head

    def _read(self, size: int) -> bytes:
        if size > MAX_REPLY_BYTES:
            raise OSError("the X server speaks nonsense")
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise OSError("the X server closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _set_up(self, cookie: bytes, screen: int) -> int:
        """Introduce ourselves; returns the root window of that screen."""
        name = COOKIE if cookie else b""
        hello = struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), len(cookie))
        self._socket.sendall(hello + _padded(name) + _padded(cookie))
        head = self._read(8)
        (length,) = struct.unpack_from("<H", head, 6)
        body = self._read(4 * length)
        if head[0] != 1:
            raise OSError(f"the X server refuses: {body[: head[1]].decode(errors='replace').strip()}")
        try:
            return list(_roots(body))[screen]
        except (IndexError, struct.error):
            raise OSError(f"the X server has no screen {screen}") from None


def _roots(body: bytes) -> Iterator[int]:
    """The root windows that a server's answer to our introduction names."""
    (vendor_bytes,) = struct.unpack_from("<H", body, 16)
    screens, formats = body[20], body[21]
    place = 32 + vendor_bytes + -vendor_bytes % 4 + 8 * formats
    for _ in range(screens):
        yield _u32(body, place)
        depths = body[place + 39]
        place += 40
        for _ in range(depths):
            (visuals,) = struct.unpack_from("<H", body, place + 2)
            place += 8 + 24 * visuals


def _parsed(name: str) -> tuple[str, int, int]:
    """Host ("" for this machine), number and screen of a display."""
    host, colon, rest = name.rpartition(":")
    number, _, screen = rest.partition(".")
    if not colon or not number.isdecimal() or not (screen or "0").isdecimal():
        raise OSError(f"{name!r} names no X display")
    host = host.strip("[]")
    return "" if host.partition("/")[0] == "unix" else host, int(number), int(screen or 0)


def _connected(host: str, number: int) -> socket.socket:
    if host:
        return socket.create_connection((host, FIRST_PORT + number))
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(f"{SOCKETS}{number}")
    except BaseException:
        made.close()
        raise
    return made


def _cookie(made: socket.socket, host: str, number: int, environment: Mapping[str, str]) -> bytes:
    """The secret that lets this user in, from the authority file; empty: none is known, the server may need none."""
    file = environment.get("XAUTHORITY") or str(Path(environment.get("HOME", "/")) / ".Xauthority")
    ours = {(_LOCAL, socket.gethostname().encode())}
    if host:
        address = made.getpeername()[0]
        family, packed = (made.family, socket.inet_pton(made.family, address.partition("%")[0]))
        theirs = (_INTERNET_6 if family == socket.AF_INET6 else _INTERNET, packed)
        # What `ssh -X` forwards to this machine's own address is noted under its name.
        ours = {theirs, *ours} if address in ("127.0.0.1", "::1") else {theirs}
    try:
        for family, address, display, name, data in _authorities(Path(file).read_bytes()):
            for_us = family == _WILD or (family, address) in ours
            if for_us and name == COOKIE and display in (b"", str(number).encode()):
                return data
    except (OSError, struct.error):
        pass
    return b""


def _authorities(data: bytes) -> Iterator[tuple[int, bytes, bytes, bytes, bytes]]:
    """The entries of an authority file: family, address, display, name, data."""
    place = 0
    while place < len(data):
        (family,) = struct.unpack_from(">H", data, place)
        place += 2
        fields: list[bytes] = []
        for _ in range(4):
            (size,) = struct.unpack_from(">H", data, place)
            fields.append(data[place + 2 : place + 2 + size])
            place += 2 + size
        address, display, name, secret = fields
        yield family, address, display, name, secret


def _padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 4)


def _u32(data: bytes, place: int) -> int:
    (value,) = struct.unpack_from("<I", data, place)
    return value
