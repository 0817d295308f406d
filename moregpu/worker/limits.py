"""What the owner allows and the admin asks, and what follows from both now: the throttle as the agent holds it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from moregpu.errors import InvalidRequest
from moregpu.wire.messages import Limits
from moregpu.wire.schedule import parse_schedule
from moregpu.worker.throttle.duty import Decision, fixed_duty

_log = logging.getLogger(__name__)

Decide = Callable[[Limits, Limits, datetime], Decision]
"""The throttle: from the owner's limits, the admin's, and the time of day."""


class WorkerLimits:
    """Limits in force. Lives on the event loop; `changed` is called after each change of a limit."""

    def __init__(self, owner: Limits, changed: Callable[[], None], decide: Decide = fixed_duty):
        self.owner = owner
        self.admin = Limits(ceiling=1.0)
        self.decision = Decision(value=owner.ceiling, reason="")
        self._changed = changed
        self._decide = decide
        self._resume: asyncio.TimerHandle | None = None

    @property
    def ceiling(self) -> float:
        """The lower of the two."""
        return min(self.owner.ceiling, self.admin.ceiling)

    def look(self) -> bool:
        """Decide anew; returns whether the decision is another than before."""
        decision = self._decide(self.owner, self.admin, datetime.now().astimezone())
        differs, self.decision = decision != self.decision, decision
        return differs

    def pause(self, for_s: float | None = None) -> None:
        """The owner wants nothing to be computed; `for_s`: for so long."""
        self._set_owner(replace(self.owner, paused=True))
        if for_s is not None:
            self._resume = asyncio.get_running_loop().call_later(for_s, self.resume)

    def resume(self) -> None:
        """The owner's pause is over."""
        self._set_owner(replace(self.owner, paused=False))

    def set_owner(self, owner: Limits) -> None:
        """The owner's ceiling and schedule."""
        self._set_owner(owner)

    def set_admin(self, admin: Limits) -> None:
        """What the admin asks; a schedule that this version cannot read leaves the one before."""
        try:
            parse_schedule(admin.schedule)
        except InvalidRequest as error:
            _log.warning("the admin's schedule is not followed: %s", error)
            admin = replace(admin, schedule=self.admin.schedule)
        self.admin = admin
        self._changed()

    def close(self) -> None:
        """Forget a pending resume."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None

    def _set_owner(self, owner: Limits) -> None:
        self.close()
        self.owner = owner
        self._changed()
