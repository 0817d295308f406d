"""The throttle as an engine sees it: between two slices it rests, waits out a pause, or stops the task.

One thread does it all: while it rests it listens to the agent, so a pause or a stop arrives at once, and in the middle
of work it looks between slices, which engines keep below 50 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from moregpu.worker.throttle.duty import DutyMeter
from moregpu.workloads.protocol import TaskStopped

SLICE_S = 0.03
"""Aim for one slice: with 12–50 ms the machine is yielded within 0.04 s (measured, `throttle.md`)."""

LOOK_S = 0.002
"""Pause points that follow faster than this do not look at the socket: a look costs 1 µs, a tiny slice hardly more."""

BEAT_S = 1.0
"""A life sign so often while a task is there, working, resting or paused."""


class OutOfTime(TaskStopped):
    """The task's own time limit is over."""


class DutySlicer:
    """Keeps one compute child to its duty. Makes no decision of its own about when to compute."""

    slice_s = SLICE_S

    def __init__(
        self,
        listen: Callable[[float], None],
        beat: Callable[[float | None, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        """`listen(timeout_s)` takes in what the agent says, waiting so long for it; `beat(share, paused)` reports."""
        self.meter = DutyMeter()
        self._listen = listen
        self._beat = beat
        self._clock = clock
        self._mark = clock()  # since when the present stretch of work runs
        self._looked = self._mark
        self._beaten = self._mark
        self._share: float | None = None
        self._stopped = False
        self._left_s: float | None = None
        self._worked_before = 0.0

    def set_duty(self, duty: float) -> None:
        """Obey this share from now on; 0 pauses."""
        self.meter.duty = duty

    def stop(self) -> None:
        """End the task that runs at its next pause point."""
        self._stopped = True

    def begin(self, time_limit_s: float | None) -> None:
        """A task is about to run: pay what is owed, wait out a pause."""
        now = self._clock()
        self.meter.rested(now - self._mark)
        self._mark = now
        self._stopped, self._share, self._left_s = False, None, time_limit_s
        self._worked_before = self.meter.worked_s
        self._beaten = now
        self._rest()

    def pause_point(self, share_done: float | None = None) -> None:
        """Between two slices: see `moregpu.workloads.protocol.Slicer`."""
        if share_done is not None:
            self._share = share_done
        self._count_work()
        if self._mark - self._looked >= LOOK_S:
            self._listen(0.0)
            self._looked = self._mark
        self._rest()
        if self._left_s is not None and not self.seconds <= self._left_s:
            raise OutOfTime(f"the task's time limit of {self._left_s:g} s is over")

    def end(self) -> float:
        """The task has ended; returns its seconds of work."""
        self._count_work()
        return self.seconds

    @property
    def seconds(self) -> float:
        """Work of the present task, rests and pauses left out."""
        return self.meter.worked_s - self._worked_before

    def _count_work(self) -> None:
        now = self._clock()
        self.meter.worked(now - self._mark)
        self._mark = now

    def _rest(self) -> None:
        self._report()
        while not self._stopped and (self.meter.duty == 0.0 or self.meter.rest_s > 0.0):
            self._listen(BEAT_S if self.meter.duty == 0.0 else min(self.meter.rest_s, BEAT_S))
            now = self._clock()
            self.meter.rested(now - self._mark)
            self._mark = self._looked = now
            self._report()
        if self._stopped:
            raise TaskStopped("stopped by the agent")

    def _report(self) -> None:
        paused = self.meter.duty == 0.0
        if self._mark - self._beaten >= BEAT_S or paused:
            self._beat(self._share, paused)
            self._beaten = self._mark
