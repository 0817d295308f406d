"""The one retry policy: waits that double, with full jitter, so that many clients never come back together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator


def delays(
    first_s: float = 0.1, most_s: float = 5.0, uniform: Callable[[float, float], float] = random.uniform
) -> Iterator[float]:
    """Seconds to wait before the next try, without end: uniform in [ceiling / 2, ceiling], the ceiling doubling."""
    ceiling = first_s
    while True:
        yield uniform(ceiling / 2, ceiling)
        ceiling = min(2 * ceiling, most_s)
