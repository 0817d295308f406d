"""SIGKILL anywhere: an accepted job reaches its one right end, and nothing is accepted twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from moregpu_kernels.reference import expect

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool
from moregpu.errors import Unreachable
from moregpu.jobs import AttemptState, JobState, TaskState
from moregpu.wire.api import JobView, TaskView

Array = np.ndarray[Any, Any]
SLOWED = ("--ceiling", "0.1")
"""The owner's ceiling stretches tasks of milliseconds to something that can be hit in its middle."""

SIZE = 1536


def draw(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((SIZE, SIZE), dtype=np.float32)


def until(condition: Callable[[], Any], deadline_s: float = 60.0) -> Any:
    end = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
    return found


def leased_to(handle: JobHandle, worker: str) -> list[TaskView]:
    view = handle.status()
    assert view.state in (JobState.QUEUED, JobState.RUNNING), "the job ended before it could be disturbed"
    return [task for task in view.tasks or [] if task.worker == worker and task.state is TaskState.LEASED]


def assert_right_and_once(pool: Pool, handle: JobHandle, A: Array, B: Array) -> JobView:
    ratio = expect("matmul", {"a": A, "b": B}, {}, "float32").ratio(handle.result(90))
    assert (ratio <= 1.0).all()
    view = handle.status()
    assert view.checked
    assert view.signed
    tasks = view.tasks or []
    for task in tasks:
        assert [one.state for one in task.attempts].count(AttemptState.ACCEPTED) == 1
    assert sorted(grain for task in tasks for grain in range(*task.grains)) == list(range(view.grains))
    assert len(handle.statements()) == len(tasks)
    assert pool.audit().ok
    return view


def start_slow(lone: LoopbackPool, *names: str) -> dict[str, str]:
    for name in names:
        lone.start_worker(name, *SLOWED)
    return {worker.name: worker.id for worker in lone.wait_for_workers()}


@pytest.mark.slow
def test_a_worker_killed_in_mid_task_costs_only_that_task(lone: LoopbackPool) -> None:
    ids = start_slow(lone, "anna", "ben")
    A, B = draw(1), draw(2)
    with lone.connect() as pool:
        handle = pool.kernel("matmul", A, B)
        until(lambda: leased_to(handle, ids["ben"]))
        lone.kill_worker("ben")
        view = assert_right_and_once(pool, handle, A, B)
        lost = [one for task in view.tasks or [] for one in task.attempts if one.state is AttemptState.LOST]
        assert lost
        assert {one.worker for one in lost} == {ids["ben"]}
        until(lambda: [one.state for one in pool.workers() if one.name == "ben"] == ["offline"])


@pytest.mark.slow
def test_a_coordinator_killed_in_mid_job_goes_on_where_it_was(lone: LoopbackPool) -> None:
    ids = start_slow(lone, "anna", "ben")
    A, B = draw(3), draw(4)
    with lone.connect() as pool:
        handle = pool.kernel("matmul", A, B)
        until(lambda: leased_to(handle, ids["anna"]))
        lone.kill_coordinator()
        with pytest.raises(Unreachable):
            pool.me(patience_s=0)
        lone.start_coordinator()
        assert_right_and_once(pool, handle, A, B)


@pytest.mark.slow
def test_a_wait_outlives_the_coordinator(lone: LoopbackPool) -> None:
    """The submitter sits in `matmul` while the coordinator dies and returns; it gets its product all the same."""
    from concurrent.futures import ThreadPoolExecutor

    ids = start_slow(lone, "anna")
    A, B = draw(5), draw(6)
    with lone.connect() as pool, ThreadPoolExecutor(1) as thread:
        product = thread.submit(pool.matmul, A, B)
        running = until(lambda: pool.jobs(state="running"))
        until(lambda: leased_to(pool.job(running[0].id), ids["anna"]))
        lone.kill_coordinator()
        lone.start_coordinator()
        ratio = expect("matmul", {"a": A, "b": B}, {}, "float32").ratio(product.result(90))
        assert (ratio <= 1.0).all()
        assert len(pool.jobs()) == 1


@pytest.mark.slow
def test_a_worker_that_is_killed_and_started_again_is_the_same_worker(lone: LoopbackPool) -> None:
    ids = start_slow(lone, "anna")
    A, B = draw(7), draw(8)
    with lone.connect() as pool:
        handle = pool.kernel("matmul", A, B)
        until(lambda: leased_to(handle, ids["anna"]))
        lone.kill_worker("anna")
        assert start_slow(lone, "anna") == ids
        assert_right_and_once(pool, handle, A, B)


@pytest.mark.slow
def test_jobs_accepted_with_nobody_there_run_when_somebody_comes(lone: LoopbackPool) -> None:
    with lone.connect() as pool:
        handle = pool.benchmark("matmul", 256)
        assert until(lambda: handle.status().waiting_reason)
        lone.kill_coordinator()
        lone.start_coordinator()
        lone.start_worker("anna")
        assert handle.wait(60).checked
