"""Functions whose worker, coordinator or program dies: nothing is lost, nothing runs twice that must not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.errors import NotReproducible, TaskLost

from .conftest import UNPRIVILEGED


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LoopbackPool]:
    """A pool that a test may break."""
    with LoopbackPool(tmp_path / "home", environment={"MOREGPU_FUNCTIONS_USER": UNPRIVILEGED}) as local:
        local.start_coordinator()
        local.start_worker("anna", "--allow", "functions", "--ceiling", "1.0")
        (anna,) = local.wait_for_workers()
        if "function" not in anna.kinds:
            pytest.skip("missing: a sandbox for functions; mend: apt-get install bubblewrap")
        yield local


def slow(x: Any) -> Any:
    time.sleep(0.2)
    return x


def until_leased(pool: Pool) -> None:
    until = time.monotonic() + 30
    while not any(worker.leases for worker in pool.workers()) and time.monotonic() < until:
        time.sleep(0.01)


def until_taken(pool: Pool) -> None:
    """Until its worker said that it has the call: one that never went out is nobody's, and waits for another."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        tasks = [task for job in pool.jobs(limit=1) for task in pool.job(job.id).status().tasks or []]
        if any(attempt.state == "started" for task in tasks for attempt in task.attempts):
            return
        time.sleep(0.01)
    raise AssertionError("no worker took it")


def test_a_map_survives_its_workers_death_and_its_coordinators(own: LoopbackPool) -> None:
    with own.connect() as pool:
        results = pool.map(slow, range(20))
        until_leased(pool)
        own.kill_worker("anna")
        own.start_worker("anna", "--allow", "functions", "--ceiling", "1.0")
        assert next(results) == 0
        own.kill_coordinator()
        own.start_coordinator()
        assert list(results) == list(range(1, 20))


def test_a_coordinator_that_is_killed_in_mid_map_and_started_again_makes_no_call_twice(own: LoopbackPool) -> None:
    with own.connect() as pool:
        results = pool.calls(isolate="task").map(slow, range(10))  # each call is a task of its own, so each is counted
        assert next(results) == 0
        own.kill_coordinator()
        own.start_coordinator()
        assert list(results) == list(range(1, 10))
        tasks = [task for job in pool.jobs() for task in pool.job(job.id).view.tasks or ()]
        assert [len(task.attempts) for task in tasks] == [1] * 10


def test_a_call_that_may_run_only_once_is_lost_with_its_worker_and_not_made_again(own: LoopbackPool) -> None:
    with own.connect() as pool:
        future = pool.calls(idempotent=False).submit(time.sleep, 600)
        until_taken(pool)
        own.kill_worker("anna")
        with pytest.raises(TaskLost, match="lost with its worker"):
            future.result(90)


def test_an_interrupted_with_block_cancels_its_calls(own: LoopbackPool) -> None:
    with pytest.raises(KeyboardInterrupt), own.connect() as pool:
        pool.submit(time.sleep, 600)
        until_leased(pool)
        raise KeyboardInterrupt
    with own.connect() as pool:
        until = time.monotonic() + 30
        while any(worker.leases for worker in pool.workers()) and time.monotonic() < until:
            time.sleep(0.01)
        assert [job.state for job in pool.jobs()] == ["cancelled"]
        assert pool.submit(slow, 1).result(60) == 1


def test_owners_agree_on_what_is_always_the_same_and_nobody_loses_trust_over_what_never_is(own: LoopbackPool) -> None:
    for name in ("ben", "cleo"):
        own.start_worker(name, "--allow", "functions", "--ceiling", "1.0")
    own.wait_for_workers()
    with own.connect() as pool:
        careful = pool.calls(check="agree")
        assert careful.submit(slow, 7).result(90) == 7
        job = pool.jobs(limit=1)[0]
        assert (job.checked, list(job.evidence)) == (True, ["agreed"])
        with pytest.raises(NotReproducible):
            careful.submit(os.urandom, 8).result(90)
        assert [worker.state for worker in pool.workers()] == ["online"] * 3
        assert careful.submit(slow, 8).result(90) == 8
