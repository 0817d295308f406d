"""When a machine may compute: `always`, `22:00-07:00`, several windows, weekdays.

    schedule = "always" | item {("," | ";") item}
    item     = [days] window | days
    window   = HH:MM "-" HH:MM        may wrap midnight; then it belongs to the day on which it starts
    days     = day {"," day} | day "-" day        mon tue wed thu fri sat sun

Days before a window hold for that window; `;` ends their list; days without a window mean the whole day.
Times are what the machine's own clock on the wall shows: in the night when clocks go forward, a window inside the
skipped hour does not occur; when they go back, it occurs twice.
"""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from moregpu.errors import InvalidRequest

OUTSIDE = "outside the schedule"
"""Where a worker's reason to rest begins with this, its schedule says so."""

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60
_HINT = "write always, 22:00-07:00, or mon-fri 19:00-07:00; sat,sun"
_ITEM = re.compile(r"(?P<days>[a-z]{3}(?:-[a-z]{3})?)?\s*(?P<window>\d{1,2}:\d{2}\s*-\s*\d{1,2}:\d{2})?")


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Minutes [start, stop) of the days it starts on; `stop` beyond 1440 reaches into the next day."""

    days: frozenset[int]  # 0 = Monday
    start: int
    stop: int

    def holds(self, weekday: int, minute: int) -> bool:
        """Whether the minute of that day lies inside, counting what wrapped over from the day before."""
        if weekday in self.days and self.start <= minute < self.stop:
            return True
        return (weekday - 1) % 7 in self.days and minute + DAY_MINUTES < self.stop


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed schedule."""

    text: str
    windows: tuple[Window, ...]

    def allows(self, local: datetime) -> bool:
        """Whether computing is allowed when the clock on the wall shows `local`."""
        minute = local.hour * 60 + local.minute
        return any(window.holds(local.weekday(), minute) for window in self.windows)


ALL_DAYS = frozenset(range(7))
ALWAYS = Schedule(text="always", windows=(Window(days=ALL_DAYS, start=0, stop=DAY_MINUTES),))


def parse_schedule(text: str) -> Schedule:
    """Read a schedule; raises `InvalidRequest` that names the part it does not understand."""
    plain = text.strip().lower()
    if plain in ("always", ""):
        return ALWAYS
    windows: list[Window] = []
    for phrase in plain.split(";"):
        windows += _phrase(phrase, text)
    if not windows:
        raise InvalidRequest(f"the schedule {text!r} holds no window", _HINT)
    return Schedule(text=text.strip(), windows=tuple(windows))


def _phrase(phrase: str, whole: str) -> list[Window]:
    windows: list[Window] = []
    days: set[int] = set()
    for part in phrase.split(","):
        item = part.strip()
        if not item:
            continue
        match = _ITEM.fullmatch(item)
        if match is None:
            raise InvalidRequest(f"{item!r} in the schedule {whole!r} is not understood", _HINT)
        if match["days"]:
            days |= _days(match["days"])
        if match["window"]:
            start, stop = _window(match["window"])
            windows.append(Window(days=frozenset(days) or ALL_DAYS, start=start, stop=stop))
            days = set()
    if days:
        windows.append(Window(days=frozenset(days), start=0, stop=DAY_MINUTES))
    return windows


def _days(text: str) -> set[int]:
    first, _, last = text.partition("-")
    for name in (first, last or first):
        if name not in DAYS:
            raise InvalidRequest(f"{name!r} is not a day", f"days are {' '.join(DAYS)}")
    start, stop = DAYS.index(first), DAYS.index(last or first)
    return {day % 7 for day in range(start, stop + 1 if stop >= start else stop + 8)}


def _window(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    start, stop = _minute(first), _minute(last)
    if start == DAY_MINUTES:
        raise InvalidRequest("24:00 can end a window, not start one", _HINT)
    return start, stop if stop > start else stop + DAY_MINUTES


def _minute(text: str) -> int:
    hours, _, minutes = text.strip().partition(":")
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > DAY_MINUTES:
        raise InvalidRequest(f"{text.strip()!r} is not a time of day", _HINT)
    return minute
