"""How often each worker failed or died at its tasks in a row: one count a worker, wherever it is.

A count that lived in a worker's session would be copied at each of its comings and goings, and what ended meanwhile (a
result that was judged late, a lease that went back) would be counted in the copy that is thrown away.
"""

from __future__ import annotations

FAST_FAILURES = 8
"""So many failed tasks in a row, and the worker is paused: a machine that fails everything empties queues."""


class Conduct:
    """Counts, for each worker that has any."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, str]] = {}
        """Worker → how often in a row, and how it was the last time."""

    def failed(self, worker: str, how: str) -> None:
        """It failed at a task, or went away with some. `how` is said to the admin."""
        times, _ = self._counts.get(worker, (0, ""))
        self._counts[worker] = (times + 1, how)

    def clear(self, worker: str) -> None:
        """It did one well, or somebody lets it begin anew."""
        self._counts.pop(worker, None)

    def hopeless(self, worker: str) -> bool:
        """Whether it must be paused."""
        return self._counts.get(worker, (0, ""))[0] >= FAST_FAILURES

    def why(self, worker: str) -> str:
        """What is said of it."""
        times, how = self._counts.get(worker, (0, ""))
        return f"{times} of its tasks failed in a row; the last one: {how}"
