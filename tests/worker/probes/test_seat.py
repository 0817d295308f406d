"""Who is at the machine: real X servers, a real bus, real terminals; and what cannot be told means: somebody is."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dbus_fast.service import ServiceInterface, method
from Xlib import X, Xatom, display

from moregpu.worker.probes.presence import UNKNOWN, Presence
from moregpu.worker.probes.seat import Seats, Unseen, desktop_sessions, find_seat
from moregpu.worker.probes.session_bus import SessionBusSeat
from moregpu.worker.probes.terminals import Terminals
from moregpu.worker.probes.watch import SeatWatch
from moregpu.worker.probes.x11 import X11Seat
from tests.displays import screen, served, session_bus

DEADLINE_S = 20.0


def until(met: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not met():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


# ---- X11 ----


def test_input_at_an_x11_desktop_sets_the_counter_back() -> None:
    with screen() as x:
        seat = X11Seat(x.name)
        until(lambda: (seat.presence().idle_s or 0.0) > 0.2)
        x.move_mouse()
        idle_s = seat.presence().idle_s
        assert idle_s is not None
        assert idle_s < 0.2
        seat.close()


def test_a_full_screen_window_is_seen_and_so_is_its_end() -> None:
    with screen() as x:
        seat = X11Seat(x.name)
        assert not seat.presence().full_screen
        shown = display.Display(x.name)
        root = shown.screen().root
        window = root.create_window(0, 0, 640, 480, 0, X.CopyFromParent)
        atom = shown.intern_atom
        window.change_property(atom("_NET_WM_STATE"), Xatom.ATOM, 32, [atom("_NET_WM_STATE_FULLSCREEN")])
        root.change_property(atom("_NET_ACTIVE_WINDOW"), Xatom.WINDOW, 32, [window.id])
        shown.sync()
        until(lambda: seat.presence().full_screen)
        window.destroy()  # the property still names it
        shown.sync()
        until(lambda: not seat.presence().full_screen)
        seat.close()
        shown.close()


@contextmanager
def watched(find: Callable[[], object]) -> Generator[tuple[SeatWatch, list[float]]]:
    noticed: list[float] = []
    watch = SeatWatch(lambda: noticed.append(time.monotonic()), find)  # type: ignore[arg-type]
    try:
        yield watch, noticed
    finally:
        watch.close()


def test_an_x_server_that_hangs_is_unknown_and_one_that_goes_on_is_known_again() -> None:
    with screen() as x, watched(lambda: X11Seat(x.name)) as (watch, _):
        until(lambda: watch.presence != UNKNOWN)
        x.hang()
        until(lambda: watch.presence == UNKNOWN)
        x.go_on()
        until(lambda: watch.presence != UNKNOWN)


def test_an_x_server_that_ends_is_unknown_and_costs_nothing_else() -> None:
    with screen() as x, watched(lambda: X11Seat(x.name)) as (watch, _):
        until(lambda: watch.presence != UNKNOWN)
        x.process.kill()
        until(lambda: watch.presence == UNKNOWN)


def test_input_is_noticed_while_the_pool_computes() -> None:
    with screen() as x, watched(lambda: X11Seat(x.name)) as (watch, noticed):
        watch.set_busy(True)
        until(lambda: (watch.presence.idle_s or 0.0) > 0.3)
        noticed.clear()
        x.move_mouse()
        until(lambda: noticed)


def test_no_display_at_all_means_somebody_may_be_here() -> None:
    with watched(lambda: X11Seat(":4711")) as (watch, _):
        assert watch.presence == UNKNOWN


# ---- Wayland ----


class Monitor(ServiceInterface):
    def __init__(self, name: str, value: int):
        super().__init__(name)
        self.value = value

    @method()
    def GetIdletime(self) -> "t":  # type: ignore[name-defined]  # noqa: F821, UP037
        return self.value

    @method()
    def GetSessionIdleTime(self) -> "u":  # type: ignore[name-defined]  # noqa: F821, UP037
        return self.value


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("org.gnome.Mutter.IdleMonitor", "/org/gnome/Mutter/IdleMonitor/Core", 42_000),
        ("org.freedesktop.ScreenSaver", "/org/freedesktop/ScreenSaver", 42),
    ],
)
def test_a_wayland_desktop_is_asked_through_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, path: str, value: int
) -> None:
    with session_bus(tmp_path) as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        with served(address, name, {path: Monitor(name, value)}):
            seat = SessionBusSeat()
            assert seat.presence() == Presence(idle_s=42.0)
        with pytest.raises(OSError, match="no longer tells"):
            seat.presence()
        seat.close()
        with pytest.raises(OSError, match="does not tell"):
            SessionBusSeat()


def test_under_wayland_x11_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/nobody")
    with screen() as x, pytest.raises(OSError):
        find_seat({"DISPLAY": x.name, "WAYLAND_DISPLAY": "wayland-0"})


# ---- text terminals and headless machines ----


def test_typing_at_a_terminal_is_input_even_over_ssh() -> None:
    ours, theirs = os.openpty()
    name = os.ttyname(theirs).removeprefix("/dev/")
    typed_at = os.stat(theirs).st_atime
    terminals = Terminals(lambda: [name], lambda: typed_at + 30.0)
    assert terminals.presence() == Presence(idle_s=30.0)
    os.close(ours)
    os.close(theirs)
    assert terminals.presence().idle_s == math.inf


def test_nobody_logged_in_is_certainly_idle() -> None:
    assert Terminals(list).presence() == Presence(idle_s=math.inf)


def test_a_machine_without_a_screen_is_watched_for_logins_alone(tmp_path: Path) -> None:
    assert isinstance(find_seat({}, tmp_path / "none"), Terminals)


def test_a_desktop_that_this_process_cannot_see_counts_as_somebody(tmp_path: Path) -> None:
    (tmp_path / "2").write_text("UID=1000\nACTIVE=1\nTYPE=wayland\nCLASS=user\n")
    (tmp_path / "c1").write_text("TYPE=x11\nCLASS=greeter\n")
    (tmp_path / "3").write_text("TYPE=tty\nCLASS=user\n")
    (tmp_path / "2.ref").write_text("")
    assert desktop_sessions(tmp_path) == ["2"]
    assert find_seat({}, tmp_path).presence().idle_s is None


class Looks:
    def __init__(self, idle_s: float | None):
        self._idle_s = idle_s

    def presence(self) -> Presence:
        return Presence(idle_s=self._idle_s)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("looks", "together"),
    [((5.0, 9.0), 5.0), ((9.0, math.inf), 9.0), ((None, 9.0), None), ((None, 0.1), 0.1), ((None, None), None)],
)
def test_of_several_seats_the_one_that_moved_last_counts(
    looks: tuple[float | None, ...], together: float | None
) -> None:
    assert Seats(*map(Looks, looks)).presence().idle_s == together


def test_an_unseen_seat_is_unknown() -> None:
    assert Unseen().presence() == UNKNOWN
