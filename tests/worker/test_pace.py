"""How soon an agent that ended is started again."""

from __future__ import annotations

from moregpu.worker.supervisor import FIRST_APART_S, HEALTHY_S, MAX_APART_S, Pace


def test_agents_that_end_at_once_are_started_ever_more_rarely() -> None:
    pace = Pace()
    waits = [pace.after(0.0) for _ in range(12)]
    assert waits == sorted(waits)
    assert waits[0] == 2 * FIRST_APART_S and waits[-1] == MAX_APART_S


def test_however_long_they_live_starts_are_no_closer_than_that() -> None:
    pace = Pace()
    for _ in range(12):
        pace.after(5.0)
    assert pace.after(5.0) + 5.0 == MAX_APART_S


def test_an_agent_that_worked_for_a_while_is_started_again_at_once_for_the_first_times() -> None:
    pace = Pace()
    assert [pace.after(5.0) for _ in range(4)] == [0.0] * 4


def test_one_that_lived_long_is_started_again_at_once_and_the_others_are_forgotten() -> None:
    pace = Pace()
    for _ in range(12):
        pace.after(0.0)
    assert pace.after(HEALTHY_S + 1) == 0.0
    assert pace.after(0.0) == 2 * FIRST_APART_S
