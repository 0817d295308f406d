"""Limits, clock and signals together: the owner's word holds, and a reason is always there."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from moregpu.wire.messages import Limits
from moregpu.worker.throttle.controller import Load, Signals
from moregpu.worker.throttle.governor import Governor

NOON = datetime(2026, 11, 30, 12, 0)
ALL = Limits(ceiling=1.0)
FREE = Signals(idle_s=3600.0, load=Load(total=0.0, own=0.0))


def settled(owner: Limits, admin: Limits = ALL, signals: Signals = FREE) -> tuple[Governor, float]:
    governor = Governor()
    for second in range(30):
        governor.decide(owner, admin, NOON, signals, float(second))
    return governor, 30.0


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_of_two_ceilings_the_lower_one_holds(owner: float, admin: float) -> None:
    governor, now = settled(Limits(ceiling=owner), Limits(ceiling=admin))
    value = governor.decide(Limits(ceiling=owner), Limits(ceiling=admin), NOON, FREE, now).value
    assert 0.0 < value <= min(owner, admin)


def test_an_admin_who_asks_for_less_is_named() -> None:
    governor, now = settled(Limits(ceiling=0.85), Limits(ceiling=0.4))
    reason = governor.decide(Limits(ceiling=0.85), Limits(ceiling=0.4), NOON, FREE, now).reason
    assert reason.endswith("admin asks for no more than 40%")


def test_the_owners_pause_comes_before_everything_and_says_so() -> None:
    governor, now = settled(Limits())
    decision = governor.decide(Limits(paused=True), ALL, NOON, FREE, now)
    assert (decision.value, decision.reason) == (0.0, "paused by the owner")


def test_outside_the_schedule_nothing_runs() -> None:
    governor, now = settled(Limits())
    decision = governor.decide(Limits(schedule="22:00-07:00"), ALL, NOON, FREE, now)
    assert (decision.value, decision.reason) == (0.0, "outside the schedule 22:00-07:00")


signals = st.builds(
    Signals,
    idle_s=st.none() | st.floats(0, 1e6),
    load=st.none() | st.builds(Load, total=st.floats(0, 1), own=st.floats(0, 1)),
    full_screen=st.booleans(),
    on_battery=st.booleans(),
    hot=st.booleans(),
    metered=st.booleans(),
)


@given(st.lists(signals, min_size=1, max_size=30), st.booleans())
def test_there_is_always_a_reason(history: list[Signals], paused: bool) -> None:
    governor = Governor()
    for place, seen in enumerate(history):
        assert governor.decide(Limits(paused=paused), ALL, NOON, seen, place / 10).reason
