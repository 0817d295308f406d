"""When a machine may compute, by the clock on its wall."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.errors import InvalidRequest
from moregpu.wire.schedule import DAYS, parse_schedule

MONDAY = datetime(2026, 6, 1)


def at(day: str, clock: str) -> datetime:
    hours, minutes = clock.split(":")
    return MONDAY + timedelta(days=DAYS.index(day), hours=int(hours), minutes=int(minutes))


@pytest.mark.parametrize(
    ("text", "moment", "allowed"),
    [
        ("always", at("wed", "03:00"), True),
        ("", at("wed", "03:00"), True),
        ("22:00-07:00", at("mon", "21:59"), False),
        ("22:00-07:00", at("mon", "22:00"), True),
        ("22:00-07:00", at("tue", "06:59"), True),
        ("22:00-07:00", at("tue", "07:00"), False),
        ("00:00-24:00", at("sun", "23:59"), True),
        ("08:00-08:00", at("sun", "07:59"), True),  # a day long, from eight to eight
        ("09:00-12:00, 13:00-17:00", at("fri", "12:30"), False),
        ("09:00-12:00, 13:00-17:00", at("fri", "13:00"), True),
        ("mon-fri 19:00-07:00; sat,sun", at("mon", "12:00"), False),
        ("mon-fri 19:00-07:00; sat,sun", at("fri", "20:00"), True),
        ("mon-fri 19:00-07:00; sat,sun", at("sat", "12:00"), True),
        ("mon-fri 19:00-07:00; sat,sun", at("mon", "05:00"), False),  # sunday's window does not wrap: it is a whole day
        ("fri 22:00-07:00", at("sat", "06:00"), True),  # wrapped over from friday
        ("fri 22:00-07:00", at("fri", "06:00"), False),
        ("sun 22:00-07:00", at("mon", "06:00"), True),  # over the week's end
        ("sat-mon 10:00-11:00", at("sun", "10:30"), True),
        ("sat-mon 10:00-11:00", at("tue", "10:30"), False),
        ("MON,Wed 10:00-11:00", at("wed", "10:30"), True),
        ("mon,wed 10:00-11:00", at("tue", "10:30"), False),
        ("sun", at("sun", "00:00"), True),
        ("sun", at("mon", "00:00"), False),
    ],
)
def test_a_schedule_allows_what_it_says(text: str, moment: datetime, allowed: bool) -> None:
    assert parse_schedule(text).allows(moment) is allowed


@pytest.mark.parametrize(
    "text", ["sometimes", "25:00-26:00", "10:00", "10:60-11:00", "24:00-07:00", "foo-bar", "mon-xyz 10:00-11:00", ";"]
)
def test_what_is_not_understood_is_named(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_schedule(text)
    assert refused.value.hint


def test_the_skipped_hour_does_not_occur_and_the_doubled_one_occurs_twice() -> None:
    zone = ZoneInfo("Europe/Berlin")
    schedule = parse_schedule("02:15-02:45")

    def minutes_allowed(start: datetime) -> int:
        moments = [(start + timedelta(minutes=minute)).astimezone(zone) for minute in range(24 * 60)]
        return sum(schedule.allows(moment) for moment in moments)

    utc = ZoneInfo("UTC")
    assert minutes_allowed(datetime(2026, 3, 28, 23, tzinfo=utc)) == 0  # clocks go from 02:00 to 03:00
    assert minutes_allowed(datetime(2026, 10, 24, 22, tzinfo=utc)) == 60  # 02:00 to 03:00 comes twice
    assert minutes_allowed(datetime(2026, 6, 1, 22, tzinfo=utc)) == 30


clock_times = st.integers(0, 24 * 60 - 1)


@given(start=clock_times, stop=clock_times, minute=clock_times, day=st.integers(0, 6))
def test_one_daily_window_holds_exactly_between_its_ends(start: int, stop: int, minute: int, day: int) -> None:
    schedule = parse_schedule(f"{start // 60}:{start % 60:02}-{stop // 60:02}:{stop % 60:02}")
    inside = start <= minute < stop if start < stop else minute >= start or minute < stop
    assert schedule.allows(MONDAY + timedelta(days=day, minutes=minute)) is inside


@given(st.text(max_size=40))
def test_any_text_is_a_schedule_or_a_typed_error(text: str) -> None:
    try:
        parse_schedule(text)
    except InvalidRequest:
        pass
