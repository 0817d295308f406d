"""The share of wall time that a device may compute, and the meter that keeps to it between slices."""

from __future__ import annotations

from datetime import datetime

import msgspec

from moregpu.wire.messages import Limits
from moregpu.wire.schedule import OUTSIDE, parse_schedule

REST_S = 0.002
"""Rests shorter than this are saved up: a sleep costs 60 µs beyond what was asked (measured, Linux 6.18)."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision: `value` 0–1 (0 = paused) and why, in words for the owner."""

    value: float
    reason: str


def fixed_duty(owner: Limits, admin: Limits, local: datetime) -> Decision:
    """Decide from limits and clock alone. The admin can lower what the owner allows, never raise it.

    Raises `InvalidRequest` for a schedule that cannot be read; both are parsed where they come in.
    """
    if owner.paused:
        return Decision(value=0.0, reason="paused by the owner")
    if admin.paused:
        return Decision(value=0.0, reason="paused by the admin")
    for limits in (owner, admin):
        if not parse_schedule(limits.schedule).allows(local):
            return Decision(value=0.0, reason=f"{OUTSIDE} {limits.schedule}")
    return Decision(value=min(owner.ceiling, admin.ceiling), reason="")


class DutyMeter:
    """Counts work and rest, and tells how long to rest before the next slice.

    After `s` seconds of work at duty `d`, `s · (1/d − 1)` seconds of rest are owed; idle time pays them too, so that
    a lone tiny task never waits. Rest is never banked: a long idle does not buy a burst.
    """

    def __init__(self, duty: float = 1.0):
        self._duty = 1.0
        self._rest_per_work = 0.0
        self.owed_s = 0.0
        self.worked_s = 0.0  # in all
        self.duty = duty

    @property
    def duty(self) -> float:
        """The share; 0 = paused: nothing may run, nothing is owed. What is owed from before follows a change."""
        return self._duty

    @duty.setter
    def duty(self, duty: float) -> None:
        self._duty = duty
        if duty > 0.0:
            before, self._rest_per_work = self._rest_per_work, 1.0 / duty - 1.0
            self.owed_s = self.owed_s * self._rest_per_work / before if before > 0.0 else 0.0

    def worked(self, seconds: float) -> None:
        """Add a slice's work."""
        self.worked_s += seconds
        if self._duty > 0.0:
            self.owed_s += seconds * self._rest_per_work

    def rested(self, seconds: float) -> None:
        """Add rest, whatever its reason."""
        self.owed_s = max(0.0, self.owed_s - seconds)

    @property
    def rest_s(self) -> float:
        """Seconds to rest before the next slice; 0 when too little is owed to be worth a sleep."""
        return self.owed_s if self.owed_s >= REST_S else 0.0
