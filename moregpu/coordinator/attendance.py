"""Jobs that end with their submitter: cancelled when no connection has followed them for a while.

A connection that dropped comes back within the grace and follows its jobs again; a program that died does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

from moregpu.coordinator.chores import Chores
from moregpu.coordinator.store.protocol import JobRow, Store
from moregpu.jobs import JOB_ENDED
from moregpu.workloads import FunctionSpec

GRACE_S = 30.0


class Attendance:
    """Who is there for each job that does not go on alone."""

    def __init__(self, chores: Chores, store: Store, cancel: Callable[[str], Awaitable[None]]):
        self.grace_s = GRACE_S
        self._chores = chores
        self._store = store
        self._cancel = cancel
        self._here: dict[str, int] = {}

    @contextmanager
    def submitting(self, submitter: str, idempotency_key: str) -> Generator[None]:
        """A job is submitted under that key; where its submitter goes meanwhile, it may be there all the same."""
        try:
            yield
        except asyncio.CancelledError:
            self._chores.spawn(self._look_for(submitter, idempotency_key), forever=True)
            raise

    @contextmanager
    def attending(self, row: JobRow) -> Generator[None]:
        """Somebody follows the job, as long as this lasts."""
        if not needs_attendance(row):
            yield
            return
        self._here[row.id] = self._here.get(row.id, 0) + 1
        try:
            yield
        finally:
            self._here[row.id] -= 1
            if self._here[row.id] <= 0:
                del self._here[row.id]
                self.missed(row.id)

    def missed(self, job: str) -> None:
        """Nobody follows it now: it ends unless somebody does soon."""
        self._chores.spawn(self._end_later(job), forever=True)

    async def _look_for(self, submitter: str, idempotency_key: str) -> None:
        row = await self._store.job_under_key(submitter, idempotency_key)
        if row is not None and needs_attendance(row):
            await self._end_later(row.id)

    async def _end_later(self, job: str) -> None:
        if not await self._goes_on(job):
            return
        await asyncio.sleep(self.grace_s)
        if job not in self._here and await self._goes_on(job):
            await self._cancel(job)

    async def _goes_on(self, job: str) -> bool:
        row = await self._store.job(job)
        return row is not None and row.state not in JOB_ENDED


def needs_attendance(row: JobRow) -> bool:
    """Whether the job ends with its submitter."""
    return isinstance(row.spec, FunctionSpec) and not row.spec.detach and row.state not in JOB_ENDED
