"""The owner at an X11 desktop: MIT-SCREEN-SAVER's idle counter (0.13 ms a look), and full-screen windows."""

from __future__ import annotations

from typing import Any

from Xlib import X, display, error  # pyright: ignore[reportMissingTypeStubs]
from Xlib.ext import screensaver  # pyright: ignore[reportMissingTypeStubs]

from moregpu.worker.probes.presence import Presence

FULL_SCREEN_EVERY = 10
"""Looks at the counter for each look at the active window."""


class X11Seat:
    """A connection to an X server. Blocks while the server hangs."""

    def __init__(self, name: str):
        """Connect; raises when there is no such display or it keeps no idle counter."""
        self._display: Any = display.Display(name)
        self._display.set_error_handler(_ignore)  # else they are printed
        if not self._display.query_extension(screensaver.extname):
            self._display.close()
            raise OSError("the X server keeps no idle counter")
        self._root = self._display.screen().root
        self._active, self._state, self._full = (
            self._display.intern_atom(name)
            for name in ("_NET_ACTIVE_WINDOW", "_NET_WM_STATE", "_NET_WM_STATE_FULLSCREEN")
        )
        self._looks = 0
        self._full_screen = False

    def presence(self) -> Presence:
        """Look; raises when the server is gone."""
        idle_s = self._root.screensaver_query_info().idle / 1000.0
        if self._looks % FULL_SCREEN_EVERY == 0:
            self._full_screen = self._is_full_screen()
        self._looks += 1
        return Presence(idle_s=idle_s, full_screen=self._full_screen)

    def close(self) -> None:
        """Disconnect."""
        try:
            self._display.close()
        except (error.ConnectionClosedError, OSError):
            pass

    def _is_full_screen(self) -> bool:
        try:
            active = self._root.get_full_property(self._active, X.AnyPropertyType)
            if active is None or not len(active.value) or not active.value[0]:
                return False
            window = self._display.create_resource_object("window", active.value[0])
            state = window.get_full_property(self._state, X.AnyPropertyType)
            return state is not None and self._full in list(state.value)
        except error.XError:  # the window closed meanwhile
            return False


def _ignore(_error: Any, _request: Any) -> None:
    """An asynchronous X error: of a window that is gone."""
