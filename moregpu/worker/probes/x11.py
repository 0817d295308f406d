"""The owner at an X11 desktop: MIT-SCREEN-SAVER's idle counter, and full-screen windows."""

from __future__ import annotations

import math
import time

from moregpu.worker.probes.presence import Presence
from moregpu.worker.probes.x11_wire import RequestRefused, XConnection

FULL_SCREEN_S = 0.45
"""Between two looks at the active window; the counter is looked at each time."""


class X11Seat:
    """A connection to an X server. Blocks while the server hangs."""

    def __init__(self, name: str):
        """Connect; raises `OSError` when there is no such display or it keeps no idle counter."""
        self._display = XConnection(name)
        saver = self._display.extension("MIT-SCREEN-SAVER")
        if saver is None:
            self._display.close()
            raise OSError("the X server keeps no idle counter")
        self._saver = saver
        self._active, self._state, self._full = (
            self._display.atom(name) for name in ("_NET_ACTIVE_WINDOW", "_NET_WM_STATE", "_NET_WM_STATE_FULLSCREEN")
        )
        self._full_screen = False
        self._looked_at = -math.inf

    def presence(self) -> Presence:
        """Look; raises when the server is gone."""
        idle_s = self._display.idle_s(self._saver)
        now = time.monotonic()
        if now - self._looked_at >= FULL_SCREEN_S:
            self._full_screen, self._looked_at = self._is_full_screen(), now
        return Presence(idle_s=idle_s, full_screen=self._full_screen)

    def close(self) -> None:
        """Disconnect."""
        self._display.close()

    def _is_full_screen(self) -> bool:
        try:
            active = self._display.numbers(self._display.root, self._active)
            if not active or not active[0]:
                return False
            return self._full in self._display.numbers(active[0], self._state)
        except RequestRefused:  # the window closed meanwhile
            return False
