"""The owner at a Windows desktop. Tested on recorded values; not run on Windows itself yet."""

from __future__ import annotations

import ctypes
from typing import Any

from moregpu.worker.probes.presence import UNKNOWN, Presence

BUSY_STATES = (2, 3, 4)
"""`QUERY_USER_NOTIFICATION_STATE`: QUNS_BUSY, QUNS_RUNNING_D3D_FULL_SCREEN, QUNS_PRESENTATION_MODE."""


class _LastInput(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint), ("tick_ms", ctypes.c_uint))


def idle_seconds(now_ms: int, last_ms: int) -> float:
    """Between two readings of `GetTickCount`, which wraps after 49.7 days."""
    return ((now_ms - last_ms) & 0xFFFF_FFFF) / 1000.0


class WindowsSeat:
    """`GetLastInputInfo`; counts remote desktops, too."""

    def __init__(self, libraries: Any = None):
        """`libraries`: what `ctypes.windll` is on Windows."""
        self._dll: Any = libraries if libraries is not None else getattr(ctypes, "windll")  # noqa: B009 — Windows only

    def presence(self) -> Presence:
        """Look."""
        last = _LastInput(size=ctypes.sizeof(_LastInput))
        if not self._dll.user32.GetLastInputInfo(ctypes.byref(last)):
            return UNKNOWN
        idle_s = idle_seconds(int(self._dll.kernel32.GetTickCount()), int(last.tick_ms))
        state = ctypes.c_int(0)
        failed = self._dll.shell32.SHQueryUserNotificationState(ctypes.byref(state))
        return Presence(idle_s=idle_s, full_screen=not failed and state.value in BUSY_STATES)

    def close(self) -> None:
        """Nothing to let go."""
