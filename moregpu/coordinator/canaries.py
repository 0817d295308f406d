"""Who works multiplies small integers once an hour: broken hardware shows itself before its results are missed.

The canary is one assignment more, beside the worker's work and just like it; nothing waits for it. Who did nothing
since the last one is left alone: an engine would be loaded for it, and stay for ten minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from blake3 import blake3

from moregpu.coordinator.chores import Chores
from moregpu.coordinator.fleet import Fleet, Member
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.scheduler import MAX_SLOTS

LOOK_S = 60.0
"""How often it is looked who is due."""


class Canaries:
    """Knows when each worker was last tried; through reconnects, not through restarts."""

    def __init__(
        self,
        fleet: Fleet,
        chores: Chores,
        clock: Clock,
        period_s: float,
        give: Callable[[Member], Coroutine[Any, Any, None]],
    ) -> None:
        """`give`: send one canary and do what follows from it."""
        self._fleet = fleet
        self._chores = chores
        self._clock = clock
        self._period_s = period_s
        self._give = give
        self._next: dict[str, float] = {}

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_S, self._period_s))
            self.look()

    def look(self) -> None:
        """Send a canary to everyone that is due and can take one."""
        now = self._clock.monotonic()
        here = {member.row.id: member for member in self._fleet}
        self._next = {worker: at for worker, at in self._next.items() if worker in here or at > now}
        for worker, member in here.items():
            due = self._next.setdefault(worker, now + self._period_s * part_of(worker))
            if due > now:
                continue
            if not member.session.worked:
                # Its turn is over, and the next one is where it would have been: an idle fleet that gets a job is not
                # due all at once.
                self._next[worker] = due + self._period_s * (1 + (now - due) // self._period_s)
            elif can_be_tried(member):
                self._next[worker] = now + self._period_s
                member.session.worked = False
                self._chores.spawn(self._give(member))


def part_of(worker: str) -> float:
    """Where in the hour a worker's canary falls, 0–1: after a restart they do not all come at once."""
    return int.from_bytes(blake3(worker.encode()).digest(4), "big") / (1 << 32)


def can_be_tried(member: Member) -> bool:
    """Whether a worker takes work now, so that a canary would tell something and be in nobody's way."""
    session = member.session
    resting = bool(session.duty) and not any(share > 0.0 for share in session.duty.values())
    return member.takes_work and not session.on_trial and not resting and len(session.held) < MAX_SLOTS
