"""A recording of what a machine's owner does: input and the load of others, for tuning and for `benchmarks.throttle`.

It holds shares and seconds, nothing else: no names of programs, no keys.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec

from moregpu.worker.probes.cpu import CpuLoad
from moregpu.worker.probes.seat import Seat, find_seat
from moregpu.worker.probes.watch import SeatWatch

PERIOD_S = 0.25


class Sample(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One moment: seconds since input (None: unknown or nobody), share of all cores that others use."""

    idle_s: float | None
    others: float


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a machine's life."""

    version: int = 1
    system: str
    cores: int
    period_s: float
    samples: list[Sample]


def record(
    seconds: float,
    system: str,
    cores: int,
    find: Callable[[], Seat] = find_seat,
    wait: Callable[[float], object] = time.sleep,
) -> Recording:
    """Record for so long. The pool's own work is none of it when the worker is paused meanwhile."""
    seat, cpu = SeatWatch(lambda: None, find), CpuLoad(list)
    seat.set_busy(True)
    samples: list[Sample] = []
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            wait(PERIOD_S)
            cpu.sample()
            idle_s = seat.presence.idle_s
            known = idle_s is not None and math.isfinite(idle_s)
            samples.append(
                Sample(idle_s=round(idle_s, 2) if known and idle_s is not None else None, others=round(cpu.others, 3))
            )
    finally:
        seat.close()
    return Recording(system=system, cores=cores, period_s=PERIOD_S, samples=samples)
