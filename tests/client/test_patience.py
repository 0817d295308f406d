"""How long the SDK waits for a coordinator, and what it asks of one that asks for time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.client import patience
from moregpu.client.patience import Patience
from moregpu.errors import TooManyRequests, Unavailable
from moregpu.wire.retry import retry_after_s

NOW = 1_800_000_000.0


def asking(seconds: float) -> Unavailable:
    error = Unavailable("not now")
    error.retry_after_s = seconds
    return error


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that sleeping moves, and each sleep."""
    pauses: list[float] = []
    monkeypatch.setattr(patience, "sleep", pauses.append)
    monkeypatch.setattr(patience, "monotonic", lambda: sum(pauses))
    return pauses


def test_a_coordinator_is_asked_again_no_sooner_than_it_said_and_by_nobody_at_the_same_moment(
    slept: list[float],
) -> None:
    waits = Patience(30.0)
    for _ in range(3):
        waits.pause(asking(2.0))
    assert all(2.0 < pause <= 4.0 for pause in slept)
    assert len(set(slept)) == 3


def test_who_asks_for_more_time_than_is_left_is_not_asked_again(slept: list[float]) -> None:
    for seconds in (10.0, 60.0, 1e18):
        with pytest.raises(Unavailable):
            Patience(10.0).pause(asking(seconds))
    assert slept == []


def test_without_a_word_about_time_tries_become_seldomer_until_the_patience_ends(slept: list[float]) -> None:
    waits = Patience(10.0)
    with pytest.raises(TooManyRequests):
        while True:
            waits.pause(TooManyRequests())
    assert slept[0] <= 0.05
    assert max(slept) <= 2.0
    assert sum(slept) == pytest.approx(10.0)


def test_that_nobody_answers_is_said_once_and_its_end_too(slept: list[float], caplog: pytest.LogCaptureFixture) -> None:
    waits = Patience(60.0)
    for _ in range(8):
        waits.pause(Unavailable("not now"))
    waits.over()
    waits.over()
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith("not now; jobs go on meanwhile, trying again for ")
    assert said[1] == "the coordinator is back"


def test_a_short_pause_is_worth_no_word(slept: list[float], caplog: pytest.LogCaptureFixture) -> None:
    waits = Patience(60.0)
    waits.pause(Unavailable("not now"))
    waits.over()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 30.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        (None, 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("9" * 400, 0.0),
        ("Fri, 99 Jan 2027 08:00:30 GMT", 0.0),
    ],
)
def test_a_number_or_a_date_says_how_long(value: str | None, seconds: float) -> None:
    assert retry_after_s(value, NOW) == seconds


@given(st.text())
def test_whatever_stands_there_is_a_time_of_at_least_none(value: str) -> None:
    assert 0.0 <= retry_after_s(value, NOW) < float("inf")
