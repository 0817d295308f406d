"""Windows and macOS, on what their calls answer: recorded values, since neither system is here."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.worker.probes.macos import MacSeat
from moregpu.worker.probes.presence import UNKNOWN, Presence
from moregpu.worker.probes.windows import WindowsSeat, idle_seconds


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31))
def test_the_tick_counter_of_windows_may_wrap(last_ms: int, passed_ms: int) -> None:
    assert idle_seconds((last_ms + passed_ms) % 2**32, last_ms) == passed_ms / 1000


class Windows:
    """`ctypes.windll` with the answers of a machine idle for 1.25 s whose counter has just wrapped."""

    def __init__(self, state: int, known: bool = True):
        self._state, self._known = state, known
        self.user32 = self.kernel32 = self.shell32 = self

    def GetLastInputInfo(self, info: Any) -> bool:
        ctypes.cast(info, ctypes.POINTER(ctypes.c_uint))[1] = 2**32 - 1000
        return self._known

    def GetTickCount(self) -> int:
        return 250

    def SHQueryUserNotificationState(self, state: Any) -> int:
        ctypes.cast(state, ctypes.POINTER(ctypes.c_int))[0] = self._state
        return 0


@pytest.mark.parametrize(("state", "full"), [(1, False), (2, True), (3, True), (4, True), (5, False), (7, False)])
def test_windows_tells_idle_time_and_presentations(state: int, full: bool) -> None:
    assert WindowsSeat(Windows(state)).presence() == Presence(idle_s=1.25, full_screen=full)


def test_a_windows_that_does_not_answer_is_unknown() -> None:
    assert WindowsSeat(Windows(5, known=False)).presence() == UNKNOWN


class Services:
    def __init__(self, seconds: float):
        def answer(_state: int, _kind: int) -> float:
            return seconds

        self.CGEventSourceSecondsSinceLastEventType = answer


@pytest.mark.parametrize(("seconds", "idle_s"), [(12.5, 12.5), (0.0, 0.0), (-1.0, None), (float("nan"), None)])
def test_macos_tells_idle_time(seconds: float, idle_s: float | None) -> None:
    assert MacSeat(Services(seconds)).presence().idle_s == idle_s
