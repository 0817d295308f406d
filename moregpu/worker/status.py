"""What a worker shows of itself: for a terminal line, the tray and its menu alike."""

from __future__ import annotations

from typing import Literal

import msgspec

from moregpu.worker.throttle.controller import Reason

REMIND_S = 600.0
"""How often it is said that a pool is still away; each attempt is not."""

State = Literal["starting", "connecting", "online", "pending", "paused", "leaving"]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A worker at one moment."""

    state: State = "starting"
    reason: str = ""  # why it is paused, or cannot connect
    pool_name: str = ""
    fingerprint: str = ""
    worker: str = ""
    name: str = ""
    address: str = ""
    duty: float = 0.0
    ceiling: float = 0.0
    schedule: str = "always"
    running: int = 0
    kept: int = 0  # results without a last word
    done: int = 0
    failed: int = 0
    busy_s: float = 0.0
    retry_s: float | None = None  # until the next attempt to connect
    asked: float = 1.0  # the ceiling that the pool's admin asks for; the lower one holds
    others: float = 0.0  # share of the machine that other programs use
    computes_on: str = ""  # the devices, in words
    aside: str = ""  # which devices are put aside, and why
    functions_off: str = ""  # why functions stay off though the owner lets them in
    owner_paused: bool = False  # the owner said so, and neither took it back nor is the time over

    @property
    def line(self) -> str:
        """One line for people."""
        where = f"the pool {self.pool_name}" if self.pool_name else "the pool"
        match self.state:
            case "starting":
                return "starting"
            case "connecting":
                when = f"; next try in {self.retry_s:.0f} s" if self.retry_s is not None and self.retry_s >= 1 else ""
                return f"{where} does not answer ({self.reason}){when}" if self.reason else f"connecting to {where}"
            case "online":
                on = f", on {self.computes_on}" if self.computes_on else ""
                lost = f"; {self.aside}" if self.aside else ""
                off = f"; {self.functions_off}" if self.functions_off else ""
                who = f"{self.name} ({self.worker})"
                return f"online in {where} as {who}, up to {self.ceiling:.0%} of this machine{on}{lost}{off}"
            case "pending":
                return f"{where} knows this worker; its admin must approve it first"
            case "paused":
                if self.reason in (Reason.FREE, Reason.CEILING):
                    return f"online in {where}, about to begin"  # its share has yet to rise from nothing
                instead = (
                    " (--no-yield or MOREGPU_YIELD=off: to its ceiling alone)" if self.reason == Reason.SHARED else ""
                )
                return f"online in {where}, but {self.reason}{instead}"
            case "leaving":
                return "handing back what is not done"


class Lines:
    """What of all this is worth a line: what is new, but not every attempt to reach a pool that is away."""

    def __init__(self) -> None:
        self._said = ""
        self._away = ("", 0.0)  # why the pool does not answer, and when that was said

    def next(self, status: Status, now: float) -> str | None:
        """The line to print now, if any. `now`: seconds that never jump."""
        if status.state != "connecting":
            self._away = ("", 0.0)
        elif status.reason:
            why, at = self._away
            if status.reason == why and now - at < REMIND_S:
                return None
            self._away, self._said = (status.reason, now), ""
        elif self._said:
            return None
        if status.line == self._said:
            return None
        self._said = status.line
        return status.line
