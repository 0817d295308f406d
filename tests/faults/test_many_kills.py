"""SIGKILL a hundred times, under load: nothing told is lost, nothing accepted twice, the ledger verifies."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from tests.faults.load import Load

KILLS = 100
WORKERS = ("anna", "ben")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LoopbackPool]:
    """A coordinator and two workers that a test may kill."""
    with LoopbackPool(tmp_path / "home") as local:
        local.start_coordinator()
        for name in WORKERS:
            local.start_worker(name)
        local.wait_for_workers()
        yield local


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
def test_a_hundred_kills_of_the_coordinator_lose_and_double_nothing(three: LoopbackPool) -> None:
    moment = random.Random(1)
    with Load(three) as load, three.connect() as pool:
        for _ in range(KILLS):
            load.wait_for(moment.choice((1, 1, 2, 5)))
            time.sleep(moment.uniform(0.0, 0.3))  # anywhere between two answers, not just after one
            three.kill_coordinator()
            three.start_coordinator()
            load.check(pool)
            assert pool.audit().ok
        load.stop()
        load.check_all(pool)
        audit = pool.audit()
        assert audit.ok
        print(f"{KILLS} kills of the coordinator, {len(load.ended)} jobs, {audit.rows} accepted results")


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
def test_a_hundred_kills_of_workers_lose_and_double_nothing(three: LoopbackPool) -> None:
    moment = random.Random(2)
    ids = {worker.name: worker.id for worker in three.wait_for_workers()}
    with Load(three) as load, three.connect() as pool:
        for number in range(KILLS):
            name = WORKERS[number % 2]
            load.wait_for(moment.choice((1, 1, 2, 5)))
            time.sleep(moment.uniform(0.0, 0.3))
            three.kill_worker(name)
            three.start_worker(name)
            load.check(pool)
            assert pool.audit().ok
        load.stop()
        load.check_all(pool)
        audit = pool.audit()
        assert audit.ok
        assert {worker.name: worker.id for worker in three.wait_for_workers()} == ids
        print(f"{KILLS} kills of workers, {len(load.ended)} jobs, {audit.rows} accepted results")
