"""The one retry policy: waits that double, with full jitter, so that many clients never come back together."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime

AWAY = "%s; jobs go on meanwhile, trying again for %.0f s"
BACK = "the coordinator is back"
"""What whoever waits for a coordinator is told, whatever they wait for."""


def delays(
    first_s: float = 0.1, most_s: float = 5.0, uniform: Callable[[float, float], float] = random.uniform
) -> Iterator[float]:
    """Seconds to wait before the next try, without end: uniform in [ceiling / 2, ceiling], the ceiling doubling."""
    ceiling = first_s
    while True:
        yield uniform(ceiling / 2, ceiling)
        ceiling = min(2 * ceiling, most_s)


def retry_after_s(value: str | None, now: float) -> float:
    """Seconds that a `Retry-After` asks for: a number, or a date (RFC 9110); 0 for none, and for what is neither."""
    text = (value or "").strip()
    try:
        seconds = float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
