"""One device's throttle: limits and clock first, then the controller within them."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from moregpu.wire.messages import Limits
from moregpu.worker.throttle.controller import Controller, Reason, Signals
from moregpu.worker.throttle.duty import Decision, fixed_duty

LEAST = 0.01
"""A duty below this is none: a slice would be followed by seconds of rest."""

_AT_THE_CEILING = (Reason.FREE, Reason.CEILING)


class Governor:
    """Turns limits and signals into what a device may do. The lower ceiling holds: no admin raises the owner's."""

    def __init__(self):
        self._controller = Controller()

    def decide(self, owner: Limits, admin: Limits, local: datetime, signals: Signals, now: float) -> Decision:
        """The duty from now on, and why in words for the owner.

        `local` is the clock on the wall, for schedules; `now` monotonic seconds. Raises `InvalidRequest` as
        `fixed_duty` does.
        """
        allowed = fixed_duty(owner, admin, local)
        self._controller.ceiling = allowed.value
        if allowed.value == 0.0:
            self._controller.decide(replace(signals, paused=True), now)  # it goes on learning the load of others
            return allowed
        duty = self._controller.decide(signals, now)
        if duty.value < LEAST:
            return Decision(value=0.0, reason=words(duty.reason, owner, admin))
        return Decision(value=duty.value, reason=words(duty.reason, owner, admin))


def words(reason: Reason, owner: Limits, admin: Limits) -> str:
    """A reason in words for the owner, with the admin's part in it."""
    if reason in _AT_THE_CEILING and admin.ceiling < owner.ceiling:
        return f"{reason}; the pool's admin asks for no more than {admin.ceiling:.0%}"
    return str(reason)
