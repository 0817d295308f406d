"""Probation and quarantine: what proven wrong results cost a worker. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.store.protocol import Trust
from moregpu.coordinator.trust import PROBATION, SECOND_WITHIN_S, after, is_on_probation, newer, pardoned

DAY_S = 86_400.0


def test_one_proven_wrong_result_means_probation_for_the_next_hundred_right_ones() -> None:
    trust = after(Trust(), right=500, wall=0.0)
    assert not is_on_probation(trust)
    trust = after(trust, wrong=1, wall=1.0)
    assert trust.probation_left == PROBATION and not trust.quarantined
    trust = after(trust, right=PROBATION - 1, wall=2.0)
    assert is_on_probation(trust)
    assert not is_on_probation(after(trust, right=1, wall=3.0))


def test_a_second_within_thirty_days_means_quarantine() -> None:
    once = after(Trust(), wrong=1, wall=0.0)
    assert after(once, wrong=1, wall=29 * DAY_S).quarantined
    assert after(Trust(), wrong=2, wall=0.0).quarantined


def test_a_second_after_thirty_days_means_quarantine_only_where_wrong_ones_are_more_than_one_in_a_thousand() -> None:
    once = after(Trust(), wrong=1, wall=0.0)
    later = SECOND_WITHIN_S + 1.0
    assert not after(after(once, right=2000, wall=1.0), wrong=1, wall=later).quarantined
    assert after(after(once, right=1500, wall=1.0), wrong=1, wall=later).quarantined


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.floats(0, 1e7)), max_size=30))
def test_suspicion_and_right_results_alone_never_cost_anything(steps: list[tuple[int, int, float]]) -> None:
    trust = Trust()
    for right, suspected, wall in steps:
        trust = after(trust, right=right, suspected=suspected, wall=wall)
    assert not is_on_probation(trust) and trust.wrong == 0


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2), st.floats(0, 1e8)), max_size=30))
def test_quarantine_ends_by_pardon_alone_and_what_is_remembered_stays_small(
    steps: list[tuple[int, int, float]],
) -> None:
    trust = Trust()
    for right, wrong, wall in steps:
        before = trust
        trust = after(trust, right=right, wrong=wrong, wall=wall)
        assert trust.quarantined or not before.quarantined
        assert len(trust.wrong_at) <= 2
        assert newer(before, trust) == trust
    free = pardoned(trust)
    assert not free.quarantined
    assert free is trust or (free.probation_left == PROBATION and free.wrong == trust.wrong)


def test_nothing_judged_changes_nothing() -> None:
    trust = Trust(version=3, right=7)
    assert after(trust, wall=1.0) is trust
