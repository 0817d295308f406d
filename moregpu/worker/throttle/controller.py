"""How much of a device the pool may use right now: pure, one controller a device.

The prime rule is that the owner must not feel it; the second, to harvest what is left. So duty goes down at once and
up slowly; what the others use is measured *without* our own work (a controller fed with total load oscillates 19 times
a minute: it mistakes itself for the owner); and what cannot be known counts as "the owner is here".

`decide` is called ten times a second for the idle counter; load samples come every 250 ms.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

ACTIVE_DUTY = 0.15
"""Most that is taken while the owner types, clicks or moves."""

ACTIVE_HOLD_S = 5.0
"""How long an input counts."""

MARGIN = 0.02
"""Kept free below the ceiling, for the noise of the load sensor."""

AWAY_S = 60.0
"""Without input for so long, nobody feels the first rise after the start: it takes no time."""

RISE_PER_S = 0.10
DEAD_BAND = 0.08
"""A climb starts only when at least this much is to be gained, and then goes all the way: no hunting around a noisy
target, and no stopping short of it either."""

SMALL_STEP = 0.02
"""A target this little below the duty is noise."""

CONFIRMED_RISE = 0.15
"""A load this far above its smoothed value is news; two samples in a row confirm it."""

SMOOTH_UP, SMOOTH_DOWN = 0.10, 0.30
"""Share of the difference taken at a sample; tuned on seeds 100–105 of the plant in `benchmarks/throttle_plant.py`."""
SOFT_CUT = 0.7
"""Factor on duty in the first, unconfirmed sample of an overload."""


class Reason(StrEnum):
    """Why duty is what it is, in the words shown to the owner."""

    FREE = "nobody is using this machine"
    SHARED = "leaving room for your programs"
    INPUT = "you are using this machine"
    UNKNOWN = "cannot tell whether you are here"
    CEILING = "at the ceiling you set"
    FULL_SCREEN = "paused: a program is full screen"
    BATTERY = "paused: on battery"
    HOT = "paused: the machine is hot"
    METERED = "paused: metered network"
    SCHEDULE = "paused: outside the schedule"
    PAUSED = "paused by you"


_TO_OTHERS: dict[str, str] = {
    Reason.FREE: "nobody is using it",
    Reason.SHARED: "leaving room for its owner's programs",
    Reason.INPUT: "its owner is using it",
    Reason.UNKNOWN: "cannot tell whether its owner is there",
    Reason.CEILING: "at the ceiling its owner set",
    Reason.PAUSED: "paused by the owner",
}


def to_others(words: str) -> str:
    """Words for the owner as the pool's people read them: "you" is not they."""
    reason, then, added = words.partition("; ")
    return f"{_TO_OTHERS.get(reason, reason)}{then}{added}"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a device over the last period: shares 0–1 of its whole capacity."""

    total: float
    own: float  # the pool's part of `total`


class Signals(msgspec.Struct, frozen=True, kw_only=True):
    """What the probes saw. `None` = could not be known."""

    idle_s: float | None = None  # since the owner's last input
    load: Load | None = None  # of the CPU; only when a new sample is there
    gpu: Load | None = None  # the same of the GPU that others use most
    full_screen: bool = False
    on_battery: bool = False
    hot: bool = False
    metered: bool = False
    outside_schedule: bool = False
    paused: bool = False


class Duty(msgspec.Struct, frozen=True, kw_only=True):
    """Share of wall time to compute in, and why."""

    value: float
    reason: Reason


class Controller:
    """Turns signals into duty. State: the present duty, the smoothed load of others, the last input."""

    def __init__(self, ceiling: float = 0.85, *, watches_input: bool = True) -> None:
        """`watches_input=False`: a machine without seat or screen, where nobody can be at the keyboard."""
        self.ceiling = ceiling
        self.watches_input = watches_input
        self.duty = 0.0
        self.others = 0.0
        self._surprises = 0  # samples in a row that were well above `others`
        self._input_at: float | None = None
        self._idle_s: float | None = None
        self._moved_at: float | None = None
        self._started = False
        self._climbing = False
        self._risen = False

    def decide(self, signals: Signals, now: float) -> Duty:
        """The duty from now on. `now` is monotonic seconds; call at 10 Hz, and at once when something is noticed."""
        stop = _stop_reason(signals)
        self._notice_input(signals.idle_s, now)
        overload = self._notice_load(signals.load)
        if stop is not None:
            self.duty, self._moved_at = 0.0, now
            return Duty(value=0.0, reason=stop)
        target, reason = self._target(signals, now)
        if overload:
            target = min(target, self.duty * SOFT_CUT)
        away = not self.watches_input or (signals.idle_s is not None and signals.idle_s >= AWAY_S)
        self._move(target, now, at_once=away and self._started and not self._risen)
        return Duty(value=self.duty, reason=reason)

    def _notice_input(self, idle_s: float | None, now: float) -> None:
        """An input is a counter that fell or is young; the counter may lag the event by its polling period."""
        if idle_s is not None:
            fell = self._idle_s is not None and idle_s < self._idle_s
            if fell or idle_s <= 0.15:
                self._input_at = now
            elif self._input_at is None and idle_s < ACTIVE_HOLD_S:
                self._input_at = now - idle_s
        self._idle_s = idle_s

    def _notice_load(self, load: Load | None) -> bool:
        """Update what others use; True while an overload is seen but not yet confirmed."""
        if load is None:
            return False
        others = min(max(load.total - load.own, 0.0), 1.0)
        if not self._started:
            self.others, self._started = others, True
            return False
        self._surprises = self._surprises + 1 if others > self.others + CONFIRMED_RISE else 0
        if self._surprises >= 2:
            self.others = others
        else:
            self.others += (SMOOTH_UP if others > self.others else SMOOTH_DOWN) * (others - self.others)
        return self._surprises == 1 and load.total > self.ceiling + 0.1

    def _target(self, signals: Signals, now: float) -> tuple[float, Reason]:
        free = max(self.ceiling - self.others - MARGIN, 0.0) if self._started else self.ceiling - MARGIN
        reason = Reason.SHARED if self.others > 0.10 else Reason.FREE if self.watches_input else Reason.CEILING
        if self.watches_input:
            if signals.idle_s is None:
                return min(free, ACTIVE_DUTY), Reason.UNKNOWN
            if self._input_at is not None and now - self._input_at < ACTIVE_HOLD_S:
                return min(free, ACTIVE_DUTY), Reason.INPUT
        return free, reason

    def _move(self, target: float, now: float, *, at_once: bool) -> None:
        elapsed = 0.0 if self._moved_at is None else min(max(now - self._moved_at, 0.0), 1.0)
        self._moved_at = now
        gap = target - self.duty
        if gap < -SMALL_STEP:
            self.duty, self._climbing = target, False
        elif gap > (DEAD_BAND if self.duty > ACTIVE_DUTY else SMALL_STEP / 2):
            self._climbing = True
        elif gap <= 0:
            self._climbing = False
        if self._climbing and gap > 0:
            self.duty = target if at_once else min(target, self.duty + RISE_PER_S * elapsed)
            self._risen = self._risen or at_once


def _stop_reason(signals: Signals) -> Reason | None:
    """Conditions under which nothing runs at all, the owner's own wish first."""
    if signals.paused:
        return Reason.PAUSED
    if signals.outside_schedule:
        return Reason.SCHEDULE
    if signals.on_battery:
        return Reason.BATTERY
    if signals.hot:
        return Reason.HOT
    if signals.full_screen:
        return Reason.FULL_SCREEN
    if signals.metered:
        return Reason.METERED
    return None
