"""Links that are slow, silent or deaf for long: rows 13, 19, 23 and 28. Only `make acceptance` has the minutes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from moregpu.jobs import AttemptState, TaskState
from moregpu.wire.api import TaskView
from tests.faults.rig import SLOWED, Rig, attempts, until

pytestmark = pytest.mark.acceptance

CABLE_S = 40.0
"""For so long a cable may be pulled without costing anything: the lease is longer."""


def test_a_cable_that_is_pulled_for_forty_seconds_costs_nothing(rig: Rig) -> None:
    """Rows 13 and 19: silence without a close; every task runs once."""
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    stall(rig)
    time.sleep(CABLE_S)
    flow(rig)
    view = product.is_right_and_once()
    assert AttemptState.LOST not in attempts(view)


def test_a_link_that_is_dead_and_seems_alive_is_given_up_by_both_ends_and_its_task_runs_again(rig: Rig) -> None:
    """Row 13: half-open for good. The worker's own end notices that no Pulse comes back."""
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    rig.proxy.hold()
    product.is_right_and_once()
    assert [(worker.id, worker.state) for worker in rig.pool.workers()] == [(anna, "online")]


def test_an_assignment_that_is_never_confirmed_goes_to_another_after_ten_seconds(rig: Rig) -> None:
    """Row 23: the worker hears, and is not heard."""
    anna = rig.start_worker("anna")
    rig.proxy.up.stall()
    product = rig.product()
    until(lambda: leased_to(product.handle.status().tasks or [], anna))
    rig.local.start_worker("ben")  # not by way of the proxy
    view = product.is_right_and_once()
    assert AttemptState.LOST in attempts(view)
    rig.proxy.up.flow()


def test_bulk_transfers_on_a_narrow_line_starve_no_heartbeat(rig: Rig) -> None:
    """Row 28: the line is full of blobs for longer than a silent worker would be believed in."""
    anna = rig.start_worker("anna")
    rig.proxy.up.bytes_per_s = rig.proxy.down.bytes_per_s = 1 << 20
    a, b = (np.random.default_rng(seed).standard_normal(9_000_000, dtype=np.float32) for seed in (1, 2))
    handle = rig.pool.kernel("vector_add", a, b)  # 72 MB down and 36 MB up at 1 MB/s
    states: set[str] = set()

    def ended() -> bool:
        states.update(worker.state for worker in rig.pool.workers())
        return handle.done()

    until(ended, 900.0)
    assert states == {"online"}
    assert np.array_equal(handle.result(60), a + b)
    view = handle.status()
    assert AttemptState.LOST not in attempts(view)
    assert {task.worker for task in view.tasks or []} == {anna}


def stall(rig: Rig) -> None:
    rig.proxy.up.stall()
    rig.proxy.down.stall()


def flow(rig: Rig) -> None:
    rig.proxy.up.flow()
    rig.proxy.down.flow()


def leased_to(tasks: list[TaskView], worker: str) -> bool:
    return any(task.worker == worker and task.state is TaskState.LEASED for task in tasks)
