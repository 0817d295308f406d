"""How busy the machine is with everything but the pool's own work."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil


class LoadProbe:
    """Measures the share of all cores that other programs use, between two calls."""

    def __init__(self):
        self._at = time.monotonic()
        self._busy_s = _busy_s()
        self._own_s: dict[int, float] = {}
        self._cores = psutil.cpu_count() or 1

    def user_load(self, own: Iterable[int]) -> float:
        """Share 0–1 since the last call; `own` are the pool's processes."""
        now, busy_s = time.monotonic(), _busy_s()
        spent = {pid: _spent_s(pid) for pid in own}
        ours = sum(seconds - self._own_s.get(pid, 0.0) for pid, seconds in spent.items())
        elapsed = max(now - self._at, 1e-3) * self._cores
        share = (busy_s - self._busy_s - ours) / elapsed
        self._at, self._busy_s, self._own_s = now, busy_s, spent
        return min(1.0, max(0.0, share))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _spent_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system
