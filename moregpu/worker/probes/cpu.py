"""How busy all cores are, and how much of it is the pool's own work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import psutil

from moregpu.worker.throttle.controller import Load

SAMPLE_S = 0.25
"""A sample spans at least so long: the kernel counts CPU time in steps of 10 ms a core."""

_NOT_BUSY = ("idle", "iowait", "steal", "guest", "guest_nice")
"""Waiting; what other guests of the host took; and what user and nice hold already."""


class CpuLoad:
    """Samples of the CPU; each spans the time since the one before."""

    def __init__(self, own: Callable[[], Iterable[int]], clock: Callable[[], float] = time.monotonic):
        """`own` names the pool's processes: this agent and its children."""
        self._own = own
        self._clock = clock
        self._cores = psutil.cpu_count() or 1
        self._processes: dict[int, psutil.Process] = {}
        self._at = clock()
        self._busy_s, self._own_s = _busy_s(), self._spent_s()
        self.others = 0.0
        """Share of the machine that other programs used over the last sample."""

    def sample(self) -> Load | None:
        """The load since the last sample; None when that is too short ago."""
        now = self._clock()
        elapsed = now - self._at
        if elapsed < SAMPLE_S:
            return None
        busy_s, own_s = _busy_s(), self._spent_s()
        capacity = elapsed * self._cores
        load = Load(total=(busy_s - self._busy_s) / capacity, own=max(0.0, own_s - self._own_s) / capacity)
        self._at, self._busy_s, self._own_s = now, busy_s, own_s
        self.others = min(1.0, max(0.0, load.total - load.own))
        return load

    def _spent_s(self) -> float:
        """CPU time of the pool's processes, dead children included: those are counted to their parent."""
        spent, before, self._processes = 0.0, self._processes, {}
        for pid in self._own():
            try:
                # Kept from sample to sample: to make one reads as much as the sample does.
                process = before.get(pid) or psutil.Process(pid)
                spent += sum(process.cpu_times()[:4])  # user, system, and both of dead children
            except psutil.Error:
                continue
            self._processes[pid] = process
        return spent


def _busy_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - sum(getattr(times, name, 0.0) for name in _NOT_BUSY)
