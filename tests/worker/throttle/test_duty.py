"""Duty: decided from limits and clock, and kept between slices. Counted on a clock of the test's own."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.wire.messages import Limits
from moregpu.worker.throttle.duty import REST_S, DutyMeter, fixed_duty

NOON = datetime(2026, 6, 1, 12)
FREE = Limits(ceiling=1.0)


def test_the_ceiling_is_the_owners_and_the_admin_can_only_lower_it() -> None:
    owner = Limits(ceiling=0.85)
    assert fixed_duty(owner, FREE, NOON).value == 0.85
    assert fixed_duty(owner, Limits(ceiling=0.5), NOON).value == 0.5
    assert fixed_duty(Limits(ceiling=0.25), Limits(ceiling=0.85), NOON).value == 0.25


@pytest.mark.parametrize(
    ("owner", "admin", "reason"),
    [
        (Limits(paused=True), FREE, "paused by the owner"),
        (Limits(), Limits(paused=True), "paused by the admin"),
        (Limits(schedule="22:00-07:00"), FREE, "outside the schedule 22:00-07:00"),
        (Limits(), Limits(schedule="22:00-07:00"), "outside the schedule 22:00-07:00"),
    ],
)
def test_a_pause_says_why(owner: Limits, admin: Limits, reason: str) -> None:
    decision = fixed_duty(owner, admin, NOON)
    assert (decision.value, decision.reason) == (0.0, reason)


@given(
    duty=st.floats(0.05, 1.0),
    slices=st.lists(st.floats(0.0001, 0.05), min_size=1, max_size=200),
)
def test_whatever_the_slices_the_share_of_work_is_the_duty(duty: float, slices: list[float]) -> None:
    meter = DutyMeter(duty)
    rested = 0.0
    for work in slices:
        meter.worked(work)
        rest = meter.rest_s
        rested += rest
        meter.rested(rest)
    worked = sum(slices)
    owed = worked * (1.0 / duty - 1.0)
    assert owed - REST_S - 1e-9 <= rested <= owed + 1e-9


@given(idle=st.floats(0.0, 1e6))
def test_idling_pays_what_is_owed_and_never_buys_a_burst(idle: float) -> None:
    meter = DutyMeter(0.5)
    meter.rested(idle)
    meter.worked(1.0)
    assert meter.rest_s == 1.0


def test_a_lone_tiny_task_never_waits() -> None:
    meter = DutyMeter(0.85)
    meter.worked(0.0005)
    assert meter.rest_s == 0.0


@given(before=st.floats(0.001, 1.0), after=st.floats(0.001, 1.0))
def test_what_is_owed_from_before_follows_the_duty(before: float, after: float) -> None:
    meter = DutyMeter(before)
    meter.worked(0.03)
    meter.duty = 0.0
    meter.duty = after
    expected = 0.03 * (1.0 / after - 1.0) if before < 1.0 else 0.0
    assert meter.owed_s == pytest.approx(expected)
