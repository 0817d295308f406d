"""The owner as logind knows: desktops tell it when they have been idle for long. The last resort, and a coarse one.

A desktop that is not idle by its own measure (minutes) may have somebody at it or not: that is unknown, and unknown
means somebody is here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from dbus_fast import BusType

from moregpu.worker.probes.bus import Bus
from moregpu.worker.probes.presence import UNKNOWN, Presence

LOOK_S = 1.0
"""What changes once in minutes is asked no more often."""

_NAME = "org.freedesktop.login1"
_SESSION = "org.freedesktop.login1.Session"


class LogindSeat:
    """One session of this machine."""

    def __init__(self, session: str = "auto", address: str | None = None, clock: Callable[[], float] = time.time):
        """Find it: by its id, or the one that this process belongs to. Raises `OSError` where logind knows none."""
        self._clock = clock
        self._looked_at = -math.inf
        self._idle_since: float | None = None
        self._bus = Bus(BusType.SYSTEM, address)
        found = self._bus.ask(_NAME, "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "GetSession", session)
        self._path = str(found[0]) if found else ""
        if self._property("IdleHint") is None:
            self.close()
            raise OSError(f"logind does not know the session {session}")

    def presence(self) -> Presence:
        """Look; raises `OSError` when the session has ended."""
        now = self._clock()
        if not 0.0 <= now - self._looked_at < LOOK_S:  # or the clock was set back
            self._looked_at, self._idle_since = now, self._since()
        return UNKNOWN if self._idle_since is None else Presence(idle_s=max(0.0, now - self._idle_since))

    def _since(self) -> float | None:
        is_idle = self._property("IdleHint")
        if is_idle is None:
            raise OSError("the session has ended")
        since_us = self._property("IdleSinceHint") if is_idle else None
        return since_us / 1e6 if isinstance(since_us, int) and since_us > 0 else None

    def close(self) -> None:
        """Disconnect."""
        self._bus.close()

    def _property(self, name: str) -> Any:
        if not self._path:
            return None
        body = self._bus.ask(_NAME, self._path, "org.freedesktop.DBus.Properties", "Get", _SESSION, name)
        return body[0].value if body else None
