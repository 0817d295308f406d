"""The owner at a Mac. Tested on recorded values; not run on macOS itself yet."""

from __future__ import annotations

import ctypes
import ctypes.util
import math
from typing import Any

from moregpu.worker.probes.presence import UNKNOWN, Presence

_COMBINED_SESSION = 0  # kCGEventSourceStateCombinedSessionState
_ANY_INPUT = 0xFFFF_FFFF  # kCGAnyInputEventType


class MacSeat:
    """`CGEventSourceSecondsSinceLastEventType`."""

    def __init__(self, library: Any = None):
        """`library`: ApplicationServices, as ctypes opens it."""
        opened = library or ctypes.CDLL(ctypes.util.find_library("ApplicationServices"))
        self._seconds: Any = opened.CGEventSourceSecondsSinceLastEventType
        self._seconds.restype = ctypes.c_double
        self._seconds.argtypes = (ctypes.c_int32, ctypes.c_uint32)

    def presence(self) -> Presence:
        """Look."""
        idle_s = float(self._seconds(_COMBINED_SESSION, _ANY_INPUT))
        return Presence(idle_s=idle_s) if math.isfinite(idle_s) and idle_s >= 0.0 else UNKNOWN

    def close(self) -> None:
        """Nothing to let go."""
