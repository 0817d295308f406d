"""How much work fits between two pause points: learnt from the work itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moregpu.workloads.protocol import Slicer

FILL = 0.6
"""Share of a slice that a piece of work aims at: what is left covers noise and a first guess."""

STRETCH = 2.0
"""Wall time that a piece may take for each second of work before pieces shrink on a busy machine, to half at most. A
matrix product in pieces half as large costs 3 to 4 % more, a quarter as large 14 % (BLAS packs its operands for each),
and where others have the cores, smaller pieces leave them no sooner."""

FIRST_GUESS = 2e9
"""Units a second before anything was measured: low, since a first piece that is too long starves the throttle."""


class Pace:
    """Sizes the pieces of one task and calls the slicer between them.

    `speeds` (units a second by operation) outlives the task: the engine keeps it, so the next task starts well.
    """

    def __init__(
        self,
        operation: str,
        total: float,
        slicer: Slicer,
        speeds: dict[str, float],
        clock: Callable[[], float] = time.perf_counter,
        effort: Callable[[], float] = time.thread_time,
    ):
        """Begin now. `effort` is the clock of this thread's work, which stands while others have its core."""
        self._operation = operation
        self._total = max(total, 1.0)
        self._slicer = slicer
        self._speeds = speeds
        self._clock = clock
        self._done = 0.0
        self._since_pause = 0.0
        self._effort = effort
        self._mark, self._worked = clock(), effort()

    def room(self) -> float:
        """Units of work that the next piece may have."""
        return self._speeds.get(self._operation, FIRST_GUESS) * self._slicer.slice_s * FILL

    def done(self, amount: float) -> None:
        """A piece of `amount` units was computed since the last call: learn, and pause when a slice is used up."""
        now, worked = self._clock(), self._effort()
        took = now - self._mark
        self._done += amount
        self._since_pause += took
        if took > 1e-4:  # shorter ones say more about call overhead than about speed
            work = worked - self._worked
            speed = amount / min(max(work, took / STRETCH), max(2.0 * work, took / 20.0))
            known = self._speeds.get(self._operation, speed)
            # Slower counts at once, faster by halves: a burst must not make the next piece too long.
            self._speeds[self._operation] = min(speed, known) if speed < known / 2 else (known + speed) / 2
        if self._since_pause + took > self._slicer.slice_s or self._done >= self._total:
            self._slicer.pause_point(min(1.0, self._done / self._total))
            self._since_pause = 0.0
        self._mark, self._worked = self._clock(), self._effort()
