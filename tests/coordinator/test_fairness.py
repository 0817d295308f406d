"""Turns of submitters: shares, usage that fades, age. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.fairness import (
    CATCH_UP_S,
    HALF_LIFE_S,
    LEAST_SHARE,
    PRIORITY_S,
    Turns,
    faded,
    moved_on,
    rank_s,
    shares,
)

seconds = st.floats(1e-3, 2.0)


def serve(turns: Turns, share: dict[str, float], costs: dict[str, list[float]], rounds: int) -> dict[str, float]:
    """Everybody always has work: `rounds` tasks are handed out; who was served how many seconds."""
    served = dict.fromkeys(costs, 0.0)
    for number in range(rounds):
        order = turns.in_order()
        who = min(order, key=lambda name: (turns.at(name), order.index(name)))
        cost = costs[who][number % len(costs[who])]
        turns.served(who, cost, share[who])
        served[who] += cost
    return served


@given(
    costs=st.lists(st.lists(seconds, min_size=1, max_size=5), min_size=2, max_size=5),
    weights=st.lists(st.floats(0.25, 4.0), min_size=5, max_size=5),
)
def test_who_always_has_work_gets_seconds_in_proportion_to_their_share_within_one_task(
    costs: list[list[float]], weights: list[float]
) -> None:
    turns, share = Turns(), {f"s{n}": weights[n] for n in range(len(costs))}
    for name in share:
        turns.enter(name)
    served = serve(turns, share, {f"s{n}": each for n, each in enumerate(costs)}, 200)
    levels = {name: amount / share[name] for name, amount in served.items()}
    largest = {name: max(costs[n]) / share[name] for n, name in enumerate(share)}
    assert max(levels.values()) - min(levels.values()) <= max(largest.values()) + 1e-6


@given(st.integers(1, 500), st.lists(seconds, min_size=1, max_size=5))
def test_a_newcomer_is_served_within_two_turns_however_long_the_others_have_worked(
    rounds: int, cost: list[float]
) -> None:
    turns, share = Turns(), {"old": 1.0, "older": 1.0, "new": 1.0}
    turns.enter("old")
    turns.enter("older")
    serve(turns, share, {"old": cost, "older": cost}, rounds)
    turns.enter("new")
    assert serve(turns, share, dict.fromkeys(share, cost), 3)["new"] > 0.0


def test_idleness_earns_nothing() -> None:
    turns, share = Turns(), {"busy": 1.0, "lazy": 1.0}
    for name in share:
        turns.enter(name)
    turns.leave("lazy")
    serve(turns, share, {"busy": [1.0]}, 100)
    turns.enter("lazy")
    served = serve(turns, share, {"busy": [1.0], "lazy": [1.0]}, 20)
    assert abs(served["busy"] - served["lazy"]) <= 1.0


def test_who_was_ahead_when_they_left_is_still_ahead_when_they_come_back() -> None:
    turns, share = Turns(), {"a": 1.0, "b": 1.0}
    for name in share:
        turns.enter(name)
    turns.served("a", 50.0, 1.0)
    turns.leave("a")
    turns.enter("a")
    assert serve(turns, share, {"a": [1.0], "b": [1.0]}, 40)["a"] == 0.0


def test_whom_no_worker_fitted_for_long_catches_up_for_a_minute_not_for_as_long() -> None:
    turns, share = Turns(), {"stuck": 1.0, "busy": 1.0}
    turns.enter("stuck")
    turns.enter("busy")
    for _ in range(1000):
        turns.served("busy", 1.0, 1.0)
    assert turns.at("busy") - turns.at("stuck") <= CATCH_UP_S + 1.0
    served = serve(turns, share, {"stuck": [1.0], "busy": [1.0]}, 100)
    assert served["busy"] >= 19.0


def test_usage_counts_half_after_a_day_and_a_clock_that_went_back_changes_nothing() -> None:
    assert faded(8.0, HALF_LIFE_S) == 4.0
    assert faded(8.0, 3 * HALF_LIFE_S) == 1.0
    assert faded(8.0, -HALF_LIFE_S) == 8.0


@given(
    st.dictionaries(st.text(max_size=3), st.floats(0.1, 10.0), min_size=1, max_size=8),
    st.lists(st.floats(0.0, 1e9), min_size=8, max_size=8),
)
def test_usage_lowers_a_share_never_below_an_eighth_and_never_above_the_weight(
    weights: dict[str, float], amounts: list[float]
) -> None:
    used = dict(zip(weights, amounts, strict=False))
    for name, share in shares(weights, used).items():
        assert LEAST_SHARE * weights[name] <= share <= weights[name]


def test_who_used_more_gets_less_and_weight_makes_up_for_it() -> None:
    light, heavy = (shares({"l": 1.0, "h": 1.0}, {"l": 10.0, "h": 1000.0})[name] for name in "lh")
    assert light > 3 * heavy
    equal = shares({"a": 1.0, "b": 3.0}, {"a": 100.0, "b": 300.0})
    assert equal["b"] == 3 * equal["a"]
    assert shares({"a": 2.0}, {"a": 1e9}) == {"a": 2.0}


@given(st.integers(-100, 100), st.integers(-100, 100), st.integers(0, 10**6))
def test_priority_goes_before_what_is_an_hour_older_a_point_and_before_nothing_else(
    high: int, low: int, later_s: int
) -> None:
    first = rank_s(0.0, low) < rank_s(later_s, high)
    assert first == (later_s > (high - low) * PRIORITY_S)


@given(st.floats(0.0, 1e12), st.floats(0.0, 1e3), st.floats(0.01, 10.0))
def test_a_turn_always_moves_on(at: float, cost: float, share: float) -> None:
    assert moved_on(at, cost, share) >= at
