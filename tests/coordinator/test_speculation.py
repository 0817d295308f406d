"""Which late task is tried a second time. Pure."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moregpu.coordinator import transitions
from moregpu.coordinator.speculation import LEAST_S, Out, is_late, median_s, rescue
from moregpu.coordinator.store.protocol import JobRow, TaskRow
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu.workloads.protocol import WorkerProfile
from tests.coordinator.store import rows

FAST = rows.worker("w-fast", speed=1e9)


def leased(job: JobRow, number: int, worker: str = "w-slow") -> TaskRow:
    task = transitions.cut_task(f"t-{number}", replace(job, cursor=number), rows.task_spec(job, number, number + 1))[1]
    return transitions.leased(task, worker, bytes([number + 1]) * 16, 0.0, 0.0)


def out(job: JobRow, number: int, elapsed_s: float, worker: str = "w-slow") -> Out:
    return Out(job=job, task=leased(job, number, worker), worker=worker, elapsed_s=elapsed_s)


def done(job: JobRow, number: int, seconds: float) -> TaskRow:
    task = leased(job, number)
    return transitions.accepted(task, rows.accepted(rows.lease_of(job, task), seconds=seconds), 1.0)


@pytest.mark.parametrize(
    ("elapsed_s", "usual_s", "late"),
    [(2.1, 1.0, True), (2.0, 1.0, False), (100.0, None, False), (LEAST_S, 1e-4, False), (1.1 * LEAST_S, 1e-4, True)],
)
def test_late_is_past_twice_the_median_and_not_before_a_quarter_of_a_second(
    elapsed_s: float, usual_s: float | None, late: bool
) -> None:
    assert is_late(elapsed_s, usual_s) is late


def test_the_median_is_of_tasks_that_are_done_by_our_clock() -> None:
    job = rows.job(grains=9)
    assert median_s([done(job, n, s) for n, s in enumerate((1.0, 9.0, 2.0))] + [leased(job, 3)]) == 2.0
    assert median_s([leased(job, 0)]) is None


def test_the_one_that_is_out_longest_is_tried_first() -> None:
    job = rows.job(grains=9)
    found = rescue([out(job, 0, 3.0), out(job, 1, 5.0)], {job.id: 1.0}, FAST)
    assert found is not None
    assert (found[0].task.id, found[1].id) == ("t-1", "cpu")


def test_nobody_tries_what_they_have_or_failed_or_what_two_have() -> None:
    job = rows.job(grains=9)
    late = out(job, 0, 5.0)
    usual = {job.id: 1.0}
    assert rescue([late], usual, replace(FAST, id="w-slow")) is None
    assert rescue([replace(late, task=replace(late.task, failed_on=("w-fast",)))], usual, FAST) is None
    twice = transitions.leased_again(late.task, "w-third", b"x" * 16, 0.0, 0.0)
    assert rescue([replace(late, task=twice)], usual, FAST) is None


def test_a_worker_that_would_take_longer_than_it_has_taken_already_does_not_help() -> None:
    job = rows.job(grains=9, grain_flops=4e9)  # four seconds on the fast one
    assert rescue([out(job, 0, 3.0)], {job.id: 1.0}, FAST) is None
    assert rescue([out(job, 0, 4.1)], {job.id: 1.0}, FAST) is not None


def test_nor_does_one_that_does_not_fit_or_cannot_keep_the_time_limit() -> None:
    job = rows.job(grains=9, spec=KernelSpec(operation="relu", time_limit_s=2.0))
    usual = {job.id: 1.0}
    assert rescue([out(job, 0, 5.0)], usual, replace(FAST, kinds=())) is None
    slower = replace(FAST, profile=WorkerProfile(speeds={"relu.float32": 0.4e9}))
    assert rescue([out(job, 0, 5.0)], usual, slower) is None
    assert rescue([out(job, 0, 5.0)], usual, FAST) is not None
