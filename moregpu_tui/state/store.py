"""The one place that holds the present snapshot: inputs wait here, a batch at a time becomes the next one.

No threads, no timers: whoever drives it says what time it is. At most five batches a second; what comes now and then
is taken at once.
"""

from __future__ import annotations

from collections import deque

import msgspec

from moregpu_tui.state.events import Input
from moregpu_tui.state.model import SERIES, PoolState
from moregpu_tui.state.reduce import Changed, reduce
from moregpu_tui.state.selectors import link_word, sample

BATCH_S = 0.2
"""Time between two batches where news never ends: a screen that changes more often is not read more often."""

AHEAD_S = 0.15
"""A batch may come so much before its time, which those after it make good: news in bursts needs no waiting."""

HISTORY = 600
"""Samples of each graph, one a second."""

SAMPLE_S = 1.0

CURVE = 240
"""Samples of a worker's curve."""

ALL_CURVES = 300
"""Up to so many workers each has a curve from the start; of more, those that were looked at."""

MOST_CURVES = 400


class Store:
    """Inputs in, snapshots out."""

    def __init__(self, state: PoolState | None = None) -> None:
        self.state = state or PoolState()
        self._waiting: list[Input] = []
        self._next_batch_s = float("-inf")
        self._next_sample_s = float("-inf")
        self._grains_before: tuple[float, int] | None = None
        self._curves: dict[str, deque[tuple[float, float]]] = {}

    def offer(self, *inputs: Input) -> None:
        """Let inputs wait for the next batch."""
        self._waiting.extend(inputs)

    def due_in(self, now: float) -> float | None:
        """Seconds until the next batch may be taken; None when nothing waits."""
        if not self._waiting:
            return None
        return max(0.0, self._next_batch_s - AHEAD_S - now)

    def take(self, now: float) -> Changed:
        """Reduce what waits. `now`: monotonic seconds."""
        waiting, self._waiting = self._waiting, []
        self._next_batch_s = min(max(self._next_batch_s, now), now + AHEAD_S) + BATCH_S
        self.state, changed = reduce(self.state, waiting)
        return changed

    def sample(self, now: float) -> bool:
        """Once a second: put the present figures at the end of the graphs. Whether it was time.

        Not while nothing is heard: what a pool did meanwhile is not known. What it finished is shared out over that
        time once it is, and is no peak of one second.
        """
        if now < self._next_sample_s or not self.state.loaded or link_word(self.state.link, now) != "live":
            return False
        self._next_sample_s = now + SAMPLE_S
        grains = self.state.grains_total
        before = self._grains_before
        rate = max(0, grains - before[1]) / (now - before[0]) if before and now > before[0] else 0.0
        self._grains_before = (now, grains)
        figures = sample(self.state, rate)
        history = {
            name: (*self.state.history.get(name, ()), figures[name])[-HISTORY:] for name in SERIES
        }  # fmt: skip
        self.state = msgspec.structs.replace(self.state, history=history)
        workers = self.state.workers
        for id in workers if len(workers) <= ALL_CURVES else [*self._curves]:
            if id in workers:
                self.curve(id).append((workers[id].duty, workers[id].user_load))
        return True

    def curve(self, worker: str) -> deque[tuple[float, float]]:
        """(duty, its owner's load) of a worker in the last minutes; from now on, if it was not asked for before."""
        curve = self._curves.get(worker)
        if curve is None:
            if len(self._curves) >= MOST_CURVES:
                self._curves.pop(next(iter(self._curves)))
            curve = self._curves[worker] = deque(maxlen=CURVE)
        return curve
