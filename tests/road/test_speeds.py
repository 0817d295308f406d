"""Unequal workers share a job by what they can do, and the slow one does not hold up the end."""

from __future__ import annotations

import time

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.jobs import JobState
from moregpu.wire.api import InviteRequest

SIZE = 3072
CEILINGS = {"slow": "0.2", "fast": "0.8"}
"""Speeds of 1 and 4."""


def seconds(pool: Pool, group: str | None = None) -> float:
    """The best of three, since what else runs on this machine can only add.

    Unchecked: the coordinator's checks would take the same two cores that the workers have here, and nowhere else.
    """
    best = float("inf")
    for seed in range(3):
        begun = time.perf_counter()
        assert pool.benchmark("matmul", SIZE, seed=seed, group=group, check="none").wait(120).state is JobState.DONE
        best = min(best, time.perf_counter() - begun)
    return best


@pytest.mark.acceptance
def test_speeds_one_and_four_finish_within_1_3_times_the_ideal_split(lone: LoopbackPool) -> None:
    """Ideal: each worker's rate as it is alone, both at once, with no end to wait for."""
    with lone.connect() as pool:
        for name, ceiling in CEILINGS.items():
            invite = pool.invite(InviteRequest(owner=name, groups=[name])).line
            lone.start_worker(name, "--ceiling", ceiling, invite=invite)
        lone.wait_for_workers()
        alone_s = {name: seconds(pool, group=name) for name in CEILINGS}
        together_s = seconds(pool)
    ideal_s = 1.0 / sum(1.0 / spent for spent in alone_s.values())
    print(f"alone {alone_s}, together {together_s:.2f} s, ideal {ideal_s:.2f} s: {together_s / ideal_s:.2f} times")
    assert together_s <= 1.3 * ideal_s
