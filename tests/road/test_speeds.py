"""Unequal workers share a job by what they can do, and the slow one does not hold up the end."""

from __future__ import annotations

import time

import pytest

from moregpu.cli.loopback import LoopbackPool


@pytest.mark.acceptance
def test_speeds_one_and_four_finish_within_1_3_times_the_ideal_split(lone: LoopbackPool) -> None:
    """Ceilings of 0.2 and 0.8 make speeds of 1 and 4. Ideal: what both do together, at the rates they show alone."""
    lone.start_worker("slow", "--ceiling", "0.2")
    lone.start_worker("fast", "--ceiling", "0.8")
    lone.wait_for_workers()
    with lone.connect() as pool:
        pool.benchmark("matmul", 1024).wait(60)
        size = 2048
        begun = time.perf_counter()
        handle = pool.benchmark("matmul", size)
        handle.wait(120)
        took_s = time.perf_counter() - begun
        rates = {worker.name: worker.speeds["matmul.float32"] for worker in pool.workers()}
        shares = {"slow": 0.2, "fast": 0.8}
        ideal_s = 2.0 * size**3 / sum(rates[name] * shares[name] for name in rates)
    print(f"took {took_s:.2f} s, ideal {ideal_s:.2f} s, {took_s / ideal_s:.2f} times")
    assert took_s <= 1.3 * ideal_s
