"""How fast bulk data moves to and from each worker, by our own clock, and what that allows."""

from __future__ import annotations

import math
from collections.abc import Mapping

from moregpu.wire.api import LinkView, WorkerView

LEAST_BYTES = 256 * 1024
"""Shorter transfers are mostly overhead: they say nothing about a link."""
WEIGHT = 0.3
"""Of the newest transfer in the moving average."""
_PRODUCT = "matmul.float32"


class Traffic:
    """Moving averages of bytes a second, by worker and direction."""

    def __init__(self) -> None:
        self._to: dict[str, float] = {}
        self._from: dict[str, float] = {}
        self._moved: dict[str, int] = {}

    def moved(self, worker: str, size_bytes: int, seconds: float, *, to_worker: bool) -> None:
        """Note a transfer that ended."""
        self._moved[worker] = self._moved.get(worker, 0) + size_bytes
        if size_bytes < LEAST_BYTES or not seconds > 0.0:
            return
        rates = self._to if to_worker else self._from
        rate = size_bytes / seconds
        rates[worker] = rate if worker not in rates else (1.0 - WEIGHT) * rates[worker] + WEIGHT * rate

    def total_bytes(self) -> int:
        """All that was moved to and from workers."""
        return sum(self._moved.values())

    def view(self, worker: WorkerView) -> LinkView:
        """One worker's link."""
        to_rate, from_rate = self._to.get(worker.id), self._from.get(worker.id)
        size = worth_moving(worker.speeds, to_rate, from_rate)
        tasks = None if worker.round_trip_s is None else 1.0 / max(worker.round_trip_s, 1e-4)
        return LinkView(
            worker=worker.id,
            name=worker.name,
            state=worker.state,
            round_trip_s=worker.round_trip_s,
            to_worker_bytes_s=to_rate,
            from_worker_bytes_s=from_rate,
            moved_bytes=self._moved.get(worker.id, 0),
            tasks_per_s=tasks,
            product_size=size,
            allows=_words(tasks, size),
        )


def worth_moving(speeds: Mapping[str, float], to_rate: float | None, from_rate: float | None) -> int | None:
    """The size from which a product of square float32 matrices takes longer to compute than to move.

    2 n³ operations against 8 n² bytes there and 4 n² back: n = speed · (4 / to + 2 / from). None while a rate is
    unknown.
    """
    speed = speeds.get(_PRODUCT, 0.0)
    if not speed > 0.0 or to_rate is None:
        return None
    return max(1, math.ceil(speed * (4.0 / to_rate + 2.0 / (from_rate or to_rate))))


def _words(tasks: float | None, size: int | None) -> str:
    if tasks is None and size is None:
        return ""
    said = [] if tasks is None else [f"up to {tasks:,.0f} tiny tasks a second, one after another"]
    if size is not None:
        said.append(f"products from {size:,} × {size:,} on compute longer than they travel")
    return "; ".join(said)
