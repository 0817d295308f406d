"""What the tray shows, at one moment: what icon, menu, notifications and `status` are all made from."""

from __future__ import annotations

import time
from enum import StrEnum

import msgspec

from moregpu.worker.status import Status
from moregpu.worker.throttle.controller import ACTIVE_DUTY


class Mood(StrEnum):
    """What a glance at the icon tells."""

    NO_POOL = "no pool"
    OFFLINE = "offline"
    WAITING = "waiting"  # for the admin's approval, for a keyring
    IDLE = "idle"  # ready, nothing to do
    WORKING = "working"
    YIELDING = "yielding"  # working with the least duty, since somebody is here
    PAUSED = "paused"
    TROUBLE = "trouble"  # somebody has to do something


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The worker, as its owner sees it."""

    status: Status = Status()
    joined: bool = False
    secrets: str = ""
    """Where the worker's keys lie, in a sentence."""
    trouble: str = ""
    """What stops the worker until somebody mends it; may be shown as it is."""
    paused: bool = False
    paused_until: float | None = None
    """Wall time at which the owner's pause ends by itself."""
    until_restart: bool = False
    """The owner's pause ends with this process."""

    @property
    def mood(self) -> Mood:
        """For the icon."""
        if self.trouble:
            return Mood.TROUBLE
        if not self.joined:
            return Mood.NO_POOL
        match self.status.state:
            case "online":
                if not self.status.running:
                    return Mood.IDLE
                return Mood.YIELDING if self.status.duty <= ACTIVE_DUTY < self.status.ceiling else Mood.WORKING
            case "paused":
                return Mood.PAUSED
            case "pending":
                return Mood.WAITING
            case "starting" if self.status.reason:  # a keyring that is locked
                return Mood.WAITING
            case _:
                return Mood.OFFLINE

    @property
    def line(self) -> str:
        """One line for people, with the reason."""
        if self.trouble:
            return self.trouble
        if not self.joined:
            return "this machine belongs to no pool yet"
        status = self.status
        if status.state == "online":
            what = f"computing with up to {status.duty:.0%}" if status.running else f"ready, up to {status.duty:.0%}"
            return f"{what}: {status.reason}" if status.reason else what
        if status.state == "paused":
            line = status.reason if status.reason.startswith("paused") else f"paused: {status.reason}"
            return f"{line}{self._end}" if status.owner_paused else line
        if status.state == "starting" and status.reason:
            return status.reason
        return status.line

    @property
    def _end(self) -> str:
        """When the owner's pause ends by itself."""
        if self.until_restart:
            return " until it is started again"
        if self.paused_until is None:
            return ""
        end = time.localtime(self.paused_until)
        is_today = end[:3] == time.localtime()[:3]
        return time.strftime(" until %H:%M" if is_today else " until %Y-%m-%d %H:%M", end)

    @property
    def title(self) -> str:
        """The icon's name: the program and its pool."""
        pool = self.status.pool_name
        return f"MoreGPU — {pool}" if pool else "MoreGPU"
