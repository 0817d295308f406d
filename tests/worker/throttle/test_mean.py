"""What the pool is told of the duty: a mean, seldom, but a pause at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.worker.throttle.duty import Decision
from moregpu.worker.throttle.mean import PAUSE_S, ToldDuty


def at(value: float, reason: str = "") -> Decision:
    return Decision(value=value, reason=reason)


def test_the_first_decision_is_told_at_once() -> None:
    assert ToldDuty().tell(at(0.4, "why"), 0.0) == at(0.4, "why")


def test_what_is_told_is_the_mean_of_ten_seconds() -> None:
    told = ToldDuty()
    told.tell(at(0.8), 0.0)
    told.tell(at(0.2), 10.0)
    mean = told.tell(at(0.2), 15.0)
    assert mean is not None
    assert mean.value == pytest.approx(0.5)


def test_a_pause_and_its_end_are_told_at_once_and_are_no_part_of_the_mean() -> None:
    told = ToldDuty()
    told.tell(at(0.8), 0.0)
    assert told.tell(at(0.0, "paused"), 0.01) == at(0.0, "paused")
    assert told.tell(at(0.3), 0.02) == at(0.3)


def test_small_changes_are_not_told() -> None:
    told = ToldDuty()
    told.tell(at(0.80), 0.0)
    assert told.tell(at(0.82), 20.0) is None
    assert told.tell(at(0.82), 40.0) is None


@given(st.lists(st.tuples(st.floats(0.001, 1), st.floats(0.001, 3)), min_size=1, max_size=50))
def test_messages_are_seldom_and_never_zero_while_work_goes_on(history: list[tuple[float, float]]) -> None:
    told, now, last = ToldDuty(), 0.0, -PAUSE_S
    for value, elapsed in history:
        now += elapsed
        message = told.tell(at(value, f"{value > 0.5}"), now)
        if message is not None:
            assert 0.0 < message.value <= 1.0
            assert now - last >= PAUSE_S
            last = now
