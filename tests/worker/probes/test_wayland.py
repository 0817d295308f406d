"""Wayland's idle notification from a compositor of a few lines, and logind's hint from a private bus."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbus_fast import PropertyAccess
from dbus_fast.service import ServiceInterface, dbus_property, method

from moregpu.worker.probes.logind import LogindSeat
from moregpu.worker.probes.presence import UNKNOWN, Presence
from moregpu.worker.probes.seat import find_seat
from moregpu.worker.probes.wayland import IDLE_AFTER_S, WaylandSeat, socket_of
from tests.displays import served, session_bus
from tests.worker.probes.test_seat import until

GLOBALS = ("wl_compositor", "wl_seat", "ext_idle_notifier_v1")


class Compositor:
    """Speaks Wayland's wire format as far as an idle watcher hears it, and notes what it asked for."""

    def __init__(self, path: Path, offers: tuple[str, ...] = GLOBALS):
        self.offers = offers
        self.asked: tuple[int, int, int] | None = None  # notification, timeout, seat
        self.bound: dict[int, str] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._client: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def idled(self) -> None:
        self._event(0)

    def resumed(self) -> None:
        self._event(1)

    def say(self, data: bytes) -> None:
        until(lambda: self._client is not None)
        assert self._client is not None
        self._client.sendall(data)

    def close(self) -> None:
        for end in (self._listener, self._client):
            if end is not None:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()
        self._thread.join(20.0)

    def _event(self, opcode: int) -> None:
        until(lambda: self.asked is not None)
        assert self.asked is not None
        self.say(message(self.asked[0], opcode))

    def _serve(self) -> None:
        try:
            self._client, _ = self._listener.accept()
            for target, opcode, arguments in requests(self._client):
                self._hear(target, opcode, arguments)
        except OSError:
            return

    def _hear(self, target: int, opcode: int, arguments: bytes) -> None:
        words = struct.unpack_from(f"={len(arguments) // 4}I", arguments)
        if (target, opcode) == (1, 1):  # get_registry
            registry = words[0]
            told = [
                message(registry, 0, struct.pack("=I", 10 + place) + text(name) + struct.pack("=I", 5))
                for place, name in enumerate(self.offers)
            ]
            self.bound[registry] = "wl_registry"
            self.say(b"".join(told))
        elif (target, opcode) == (1, 0):  # sync
            answer = message(words[0], 0, struct.pack("=I", 7)) + message(1, 1, struct.pack("=I", words[0]))
            self.say(answer[:5])  # in two pieces, as a stream may bring it
            self.say(answer[5:])
        elif self.bound.get(target) == "wl_registry" and opcode == 0:  # bind
            self.bound[words[-1]] = self.offers[words[0] - 10]
            if self.bound[words[-1]] == "wl_seat":
                self.say(message(words[-1], 0, struct.pack("=I", 3)))  # its capabilities, which nobody asked for
        elif self.bound.get(target) == "ext_idle_notifier_v1" and opcode == 1:
            assert self.bound[words[2]] == "wl_seat"
            self.asked = (words[0], words[1], words[2])


def message(target: int, opcode: int, arguments: bytes = b"") -> bytes:
    return struct.pack("=II", target, (8 + len(arguments)) << 16 | opcode) + arguments


def text(name: str) -> bytes:
    data = name.encode() + b"\0"
    return struct.pack("=I", len(data)) + data + bytes(-len(data) % 4)


def requests(client: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    while header := client.recv(8, socket.MSG_WAITALL):
        target, word = struct.unpack("=II", header)
        rest = (word >> 16) - 8
        yield target, word & 0xFFFF, client.recv(rest, socket.MSG_WAITALL) if rest else b""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "wayland-7"


def test_the_desktop_is_asked_for_a_second_and_tells_both_ways(place: Path) -> None:
    now = [50.0]
    compositor = Compositor(place)
    seat = WaylandSeat(place, lambda: now[0])
    try:
        until(lambda: compositor.asked is not None)
        assert compositor.asked is not None
        assert compositor.asked[1] == IDLE_AFTER_S * 1000
        assert seat.presence() == Presence(idle_s=0.0), "somebody may just have moved"
        compositor.idled()
        until(lambda: seat.presence().idle_s == IDLE_AFTER_S)
        now[0] += 60.0
        assert seat.presence() == Presence(idle_s=IDLE_AFTER_S + 60.0)
        compositor.resumed()
        until(lambda: seat.presence().idle_s == 0.0)
    finally:
        seat.close()
        compositor.close()


def test_a_desktop_that_ends_or_speaks_nonsense_is_unknown(place: Path) -> None:
    compositor = Compositor(place)
    seat = WaylandSeat(place)
    compositor.close()
    with pytest.raises(OSError):
        until(lambda: not seat.presence())
    seat.close()
    place.unlink()
    compositor = Compositor(place)
    seat = WaylandSeat(place)
    compositor.say(struct.pack("=II", 1, 0))
    with pytest.raises(OSError, match="nonsense"):
        until(lambda: not seat.presence())
    seat.close()
    compositor.close()


@pytest.mark.parametrize("missing", ["wl_seat", "ext_idle_notifier_v1"])
def test_a_desktop_that_does_not_offer_it_says_what_is_missing(place: Path, missing: str) -> None:
    compositor = Compositor(place, tuple(name for name in GLOBALS if name != missing))
    with pytest.raises(OSError, match=missing):
        WaylandSeat(place)
    compositor.close()


def test_the_socket_is_where_the_session_says() -> None:
    assert socket_of({"XDG_RUNTIME_DIR": "/run/user/7", "WAYLAND_DISPLAY": "wayland-1"}) == Path(
        "/run/user/7/wayland-1"
    )
    assert socket_of({"XDG_RUNTIME_DIR": "/run/user/7", "WAYLAND_DISPLAY": "/tmp/w"}) == Path("/tmp/w")


def test_without_gnome_the_compositor_is_asked_before_the_screen_saver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    compositor = Compositor(place)
    with session_bus(tmp_path / "bus") as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        seat = find_seat({"WAYLAND_DISPLAY": str(place)})
        until(lambda: compositor.asked is not None)
        seat.close()
    compositor.close()


def test_where_nobody_tells_it_is_said_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"unix:path={tmp_path}/nobody"
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", nobody)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", nobody)
    with pytest.raises(OSError, match="does not tell since when it is idle"):
        find_seat({"WAYLAND_DISPLAY": str(tmp_path / "none")})


# ---- logind ----

NAME, MANAGER, SESSION = "org.freedesktop.login1", "/org/freedesktop/login1", "/org/freedesktop/login1/session/_32"


class Manager(ServiceInterface):
    def __init__(self) -> None:
        super().__init__("org.freedesktop.login1.Manager")

    @method()
    def GetSession(self, session: "s") -> "o":  # type: ignore[name-defined]  # noqa: F821, UP037
        if session not in ("auto", "2"):
            raise ValueError("no such session")
        return SESSION


class Session(ServiceInterface):
    def __init__(self, is_idle: bool, since_us: int):
        super().__init__("org.freedesktop.login1.Session")
        self.is_idle, self.since_us = is_idle, since_us

    @dbus_property(access=PropertyAccess.READ)
    def IdleHint(self) -> "b":  # type: ignore[name-defined]  # noqa: F821, UP037
        return self.is_idle

    @dbus_property(access=PropertyAccess.READ)
    def IdleSinceHint(self) -> "t":  # type: ignore[name-defined]  # noqa: F821, UP037
        return self.since_us


def test_a_session_that_logind_calls_idle_is_so_since_then_and_another_is_unknown(tmp_path: Path) -> None:
    since = time.time() - 300.0
    told = Session(True, round(since * 1e6))
    with session_bus(tmp_path) as address, served(address, NAME, {MANAGER: Manager(), SESSION: told}):
        now = [since + 300.0]
        seat = LogindSeat("2", address, lambda: now[0])
        assert seat.presence().idle_s == pytest.approx(300.0, abs=0.01)
        told.is_idle = False
        now[0] += 2.0
        assert seat.presence() == UNKNOWN, "not idle by a measure of minutes tells nothing"
        seat.close()
        with pytest.raises(OSError, match="does not know"):
            LogindSeat("99", address)


def test_a_session_that_ends_is_unknown(tmp_path: Path) -> None:
    with session_bus(tmp_path) as address:
        with served(address, NAME, {MANAGER: Manager(), SESSION: Session(True, 1)}):
            seat = LogindSeat("auto", address)
        with pytest.raises(OSError, match="has ended"):
            seat.presence()
        seat.close()
