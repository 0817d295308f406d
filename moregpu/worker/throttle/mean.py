"""The duty that is told to the pool: a mean of ten seconds, and no more often than it says something new."""

from __future__ import annotations

from collections import deque

from moregpu.worker.throttle.duty import Decision

SPAN_S = 10.0
STEP = 0.05
"""A mean that moved by less is not worth a message."""

PAUSE_S = 1.0
"""Between two messages, unless work stops or goes on."""


class ToldDuty:
    """Time-weighted mean of the duty in force, and what of it was told. Never 0 unless the worker is paused."""

    def __init__(self):
        self._parts: deque[tuple[float, float]] = deque()  # (since, duty), oldest first
        self.told: Decision | None = None
        """What was told last."""
        self._told_at = 0.0

    def tell(self, decision: Decision, now: float) -> Decision | None:
        """Note what is in force from now on; returns what to tell the pool, if anything."""
        self._note(decision.value, now)
        told = self.told
        fresh = Decision(value=self._mean(now), reason=decision.reason)
        if told is not None and (told.value > 0.0) == (fresh.value > 0.0):
            if fresh.reason == told.reason and abs(fresh.value - told.value) < STEP:
                return None
            if now - self._told_at < PAUSE_S:
                return None
        self.told, self._told_at = fresh, now
        return fresh

    def _note(self, duty: float, now: float) -> None:
        if self._parts and (self._parts[-1][1] > 0.0) != (duty > 0.0):
            self._parts.clear()  # a pause is no part of the mean
        if not self._parts or self._parts[-1][1] != duty:
            self._parts.append((now, duty))
        while len(self._parts) > 1 and self._parts[1][0] <= now - SPAN_S:
            self._parts.popleft()

    def _mean(self, now: float) -> float:
        begin = max(now - SPAN_S, self._parts[0][0])
        if now - begin <= 0.0:
            return self._parts[-1][1]
        ends = [*(since for since, _ in list(self._parts)[1:]), now]
        area = sum(
            duty * (end - max(since, begin)) for (since, duty), end in zip(self._parts, ends, strict=True)
        )  # fmt: skip
        return min(1.0, area / (now - begin))
