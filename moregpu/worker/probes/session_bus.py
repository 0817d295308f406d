"""The owner at a Wayland desktop, through the session bus: GNOME's idle monitor, or `org.freedesktop.ScreenSaver`."""

from __future__ import annotations

from collections.abc import Sequence

from dbus_fast import BusType

from moregpu.worker.probes.bus import Bus
from moregpu.worker.probes.presence import Presence

Way = tuple[str, str, str, float]
"""Name, path, method, and the seconds of its unit."""

MUTTER: Way = ("org.gnome.Mutter.IdleMonitor", "/org/gnome/Mutter/IdleMonitor/Core", "GetIdletime", 0.001)
SCREEN_SAVER: Way = ("org.freedesktop.ScreenSaver", "/org/freedesktop/ScreenSaver", "GetSessionIdleTime", 1.0)


class SessionBusSeat:
    """Asks whoever counts idle time on the session bus."""

    def __init__(self, ways: Sequence[Way] = (MUTTER, SCREEN_SAVER)):
        """Connect and find the first of these that answers; raises `OSError` when none does."""
        self._bus = Bus(BusType.SESSION)
        self._way = next((way for way in ways if self._ask(way) is not None), None)
        if self._way is None:
            self.close()
            raise OSError("this desktop does not tell since when it is idle")

    def presence(self) -> Presence:
        """Look; raises `OSError` when the desktop no longer answers."""
        idle_s = None if self._way is None else self._ask(self._way)
        if idle_s is None:
            raise OSError("the desktop no longer tells since when it is idle")
        return Presence(idle_s=idle_s)

    def close(self) -> None:
        """Disconnect."""
        self._bus.close()

    def _ask(self, way: Way) -> float | None:
        """Idle seconds, or None."""
        name, path, member, unit_s = way
        body = self._bus.ask(name, path, name, member)
        return float(body[0]) * unit_s if body else None
