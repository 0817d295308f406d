"""How much the pool has to do, counted at most once a second however many ask."""

from __future__ import annotations

import msgspec

from moregpu.coordinator.protocol import Clock, Desk
from moregpu.jobs import JobState

FRESH_S = 1.0
_MANY = 1_000_000


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one moment."""

    workers_online: int = 0
    workers_total: int = 0
    jobs_queued: int = 0
    jobs_running: int = 0


class PoolLoad:
    """The latest counts. `/health` is public, so asking must cost nothing."""

    def __init__(self, desk: Desk, clock: Clock):
        self._desk = desk
        self._clock = clock
        self._load = Load()
        self._until = float("-inf")

    async def now(self) -> Load:
        """Counts that are at most a second old."""
        if not self._clock.monotonic() < self._until:
            self._until = self._clock.monotonic() + FRESH_S
            workers = await self._desk.workers()
            self._load = Load(
                workers_online=sum(worker.state not in ("offline", "revoked") for worker in workers),
                workers_total=sum(worker.state != "revoked" for worker in workers),
                jobs_queued=len(await self._desk.store.jobs(states=[JobState.QUEUED], limit=_MANY)),
                jobs_running=len(await self._desk.store.jobs(states=[JobState.RUNNING], limit=_MANY)),
            )
        return self._load
