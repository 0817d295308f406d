"""How much of what functions print is passed on and kept: one set of limits, for both ends of the line.

A worker holds a task to its share before it sends anything; the coordinator holds a job to its own, since a worker may
say what it likes. People read a few lines; how many are left out is said by a line of its own.
"""

from __future__ import annotations

from moregpu.wire.text import LINE_LIMIT

LINE_CHARACTERS = LINE_LIMIT
"""Of a line; the rest is cut off."""

TASK_BYTES = 1 << 20
TASK_BURST_LINES, TASK_LINES_PER_S = 500, 200

JOB_LINES = 2000
"""The newest ones that are kept of a job."""

JOB_BURST_LINES, JOB_LINES_PER_S = 2000, 500


class LineBudget:
    """Lines that may pass: a burst, then so many a second. What may not is counted."""

    def __init__(self, burst: int, per_s: float):
        self._burst = float(burst)
        self._per_s = per_s
        self._left = self._burst
        self._at: float | None = None
        self.left_out = 0

    def tick(self, now: float) -> None:
        """It is so late, in seconds of any clock that does not go back."""
        if self._at is not None:
            self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = now

    def allows(self) -> bool:
        """Whether one more line may pass; it is counted either way."""
        if self._left < 1.0:
            self.left_out += 1
            return False
        self._left -= 1.0
        return True

    def said(self) -> str:
        """The line that says how many were left out since the last such line; "" for none."""
        left_out, self.left_out = self.left_out, 0
        return f"… {left_out} lines were printed and are left out" if left_out else ""
