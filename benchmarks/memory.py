"""What a machine's memory gives: how long a read takes whose place is not known before.

A coordinator that is asked one small thing walks once through code and rows that lie all over its memory, and what is
not in a cache costs it a read each. On a virtual machine that shares its caches this decides more than the processor.
Where a read took 20 ns in a cache and 200 beyond, a job took 0.4 ms of the coordinator's CPU from its lease on in a
full batch, and 4.3 in all when it was alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LINE_BYTES = 64
NEAR_KIB = 256
FAR_KIB = 64 * 1024
HOPS = 200_000
RESTED_HOPS = 2_000
REST_S = 0.005
RESTS = 20


class Reads(NamedTuple):
    """Nanoseconds of a read, with the two or three dozen that the loop itself takes."""

    near: float
    """Where all of it fits a processor's own cache."""
    far: float
    """Where nothing is in a cache."""
    rested: float
    """Near again, after 5 ms in which this process did nothing: as a waiting submitter's next job finds it."""


def reads() -> Reads:
    """Measure them: half a second."""
    near, far = circle(NEAR_KIB), circle(FAR_KIB)
    _walk(near, HOPS)
    quick, slow = _walk(near, HOPS), _walk(far, HOPS)
    rested = 0.0
    for _ in range(RESTS):
        time.sleep(REST_S)
        rested += _walk(near, RESTED_HOPS)
    return Reads(near=quick, far=slow, rested=rested / RESTS)


def told(found: Reads) -> str:
    """In one line."""
    return f"a random read: {found.near:.0f} ns near, {found.far:.0f} far, {found.rested:.0f} near after 5 ms of rest"


def circle(kib: int) -> memoryview:
    """One walk through `kib` KiB, a cache line a step, in an order that no processor foresees."""
    lines = kib * 1024 // LINE_BYTES
    order = np.random.default_rng(1).permutation(lines) * (LINE_BYTES // 8)
    after = np.zeros(lines * (LINE_BYTES // 8), np.int64)
    after[order] = np.roll(order, -1)
    return after.data


def _walk(after: Sequence[int], hops: int) -> float:
    """Nanoseconds of CPU a step: a wait for a turn is no read."""
    at = 0
    begun = time.thread_time_ns()
    for _ in range(hops):
        at = after[at]
    return (time.thread_time_ns() - begun) / hops
