"""Is somebody at this machine? One small probe a windowing system, behind one protocol.

What cannot be told counts as "somebody is here": the prime rule is that the owner never notices.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from moregpu.worker.probes.presence import UNKNOWN, Presence
from moregpu.worker.probes.terminals import Terminals

SESSIONS = Path("/run/systemd/sessions")
"""logind's book of sessions: what `sd_session_get_type` reads."""


class Seat(Protocol):
    """A place where a person may be."""

    def presence(self) -> Presence:
        """Look. May block; raises anything when it cannot tell, and is then made anew."""
        ...

    def close(self) -> None:
        """Let it go."""
        ...


class Unseen:
    """A desktop that this process has no way to look at."""

    def presence(self) -> Presence:
        """Unknown."""
        return UNKNOWN

    def close(self) -> None:
        """Nothing to let go."""


class Seats:
    """Several seats of one machine: whoever moved last counts."""

    def __init__(self, *seats: Seat):
        self._seats = seats

    def presence(self) -> Presence:
        """The busiest of them; unknown when any is."""
        seen = [seat.presence() for seat in self._seats]
        known = [look.idle_s for look in seen if look.idle_s is not None]
        idle_s = min(known, default=math.inf) if len(known) == len(seen) else None
        if idle_s is None and known and min(known) < 1.0:
            idle_s = min(known)  # somebody is certainly here: say so
        return Presence(idle_s=idle_s, full_screen=any(look.full_screen for look in seen))

    def close(self) -> None:
        """Let all go."""
        for seat in self._seats:
            seat.close()


def find_seat(environment: Mapping[str, str] | None = None, sessions: Path = SESSIONS) -> Seat:
    """The seats of this machine. Raises what opening one raises."""
    environment = os.environ if environment is None else environment
    if sys.platform == "win32":
        from moregpu.worker.probes.windows import WindowsSeat

        return WindowsSeat()
    terminals = Terminals()
    if sys.platform == "darwin":
        from moregpu.worker.probes.macos import MacSeat

        return Seats(MacSeat(), terminals)
    screen = _screen(environment, sessions)
    return terminals if screen is None else Seats(screen, terminals)


def _screen(environment: Mapping[str, str], sessions: Path) -> Seat | None:
    """The desktop, if there is one. Never X11 under Wayland: Xwayland sees only what its own windows are given."""
    if environment.get("WAYLAND_DISPLAY") or environment.get("XDG_SESSION_TYPE") == "wayland":
        return _first(_wayland_ways(environment))
    if environment.get("DISPLAY"):
        from moregpu.worker.probes.x11 import X11Seat

        return X11Seat(environment["DISPLAY"])
    # Desktops of other sessions, or of this one before it began: logind may know of each.
    found = [_of_logind(session) for session in desktop_sessions(sessions)]
    return Seats(*found) if found else None


def _wayland_ways(environment: Mapping[str, str]) -> list[Callable[[], Seat]]:
    """From the exact to the coarse."""
    from moregpu.worker.probes.wayland import WaylandSeat, socket_of

    ways: list[Callable[[], Seat]] = [lambda: WaylandSeat(socket_of(environment))]
    try:
        from moregpu.worker.probes.logind import LogindSeat
        from moregpu.worker.probes.session_bus import MUTTER, SCREEN_SAVER, SessionBusSeat
    except ImportError:
        return ways
    return [
        lambda: SessionBusSeat([MUTTER]),
        *ways,
        lambda: SessionBusSeat([SCREEN_SAVER]),
        LogindSeat,
    ]


def _first(ways: Iterable[Callable[[], Seat]]) -> Seat:
    """The first that opens. Raises `OSError` when none does."""
    said: list[str] = []
    for way in ways:
        try:
            return way()
        except Exception as error:  # noqa: BLE001 — dbus-fast's errors share no base class
            said.append(str(error) or type(error).__name__)
    raise OSError(f"this desktop does not tell since when it is idle ({'; '.join(said)})")


def _of_logind(session: str) -> Seat:
    try:
        from moregpu.worker.probes.logind import LogindSeat

        return LogindSeat(session)
    except Exception:  # noqa: BLE001 — no dbus-fast, no bus, no such session: nobody can tell
        return Unseen()


def desktop_sessions(sessions: Path = SESSIONS) -> list[str]:
    """Ids of the graphical sessions of people on this machine, whoever they are; login screens do not count."""
    found: list[str] = []
    try:
        files = sorted(path for path in sessions.iterdir() if path.suffix != ".ref")
    except OSError:
        return []
    for file in files:
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        facts = dict(line.split("=", 1) for line in lines if "=" in line)
        if facts.get("CLASS") == "user" and facts.get("TYPE") in ("x11", "wayland", "mir"):
            found.append(file.name)
    return found
