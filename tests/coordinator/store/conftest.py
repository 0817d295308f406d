"""One store of each kind, and a way to tell a story with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moregpu.coordinator.store.durable import BookStore
from moregpu.coordinator.store.memory import MemoryDisk, MemoryStore
from moregpu.coordinator.store.protocol import FleetWorker, JobRow, Lease
from moregpu.coordinator.store.sqlite import SqliteStore
from tests.coordinator.store import rows

WRAP_KEY = bytes(range(32))


class Pool:
    """A pool's memory on one disk, through restarts and full disks."""

    def __init__(self, kind: str, folder: Path):
        self.kind = kind
        self.path = folder / "pool.db"
        self.clock = rows.TestClock()
        self.entropy = rows.counting_entropy()
        self.memory = MemoryDisk()
        self.store: BookStore
        self.events: list[Any] = []
        self.undone: list[Any] = []
        self.opened = 0

    async def open(self, **options: Any) -> BookStore:
        events = {name: options.pop(name) for name in ("keep_events", "keep_events_s") if name in options}
        if self.kind == "memory":
            if events:
                self.memory = MemoryDisk(**events)
            self.store = MemoryStore(self.clock, self.entropy, disk=self.memory, **options)
        else:
            self.store = SqliteStore(self.path, WRAP_KEY, self.clock, self.entropy, **events, **options)
        self.opened += 1
        self.entropy.drawn = self.opened * 1_000_000  # from here on alike for every kind of store
        await self.store.open(self.clock.now)
        self.store.subscribe(self.events.extend)
        self.store.watch_undone(self.undone.append)
        return self.store

    async def restart(self, **options: Any) -> BookStore:
        await self.store.close()
        return await self.open(**options)

    def fill_disk(self, *, full: bool) -> None:
        """Make every write that needs room fail, or let them pass again."""
        if isinstance(self.store, SqliteStore):
            connection = self.store._sqlite._write
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages if full else 1 << 30}")
        else:
            self.memory.full = full

    # ---- steps that most stories have

    async def lease(self, worker: str = "w-1", slots: int = 64, **fields: Any) -> list[Lease]:
        asking: FleetWorker = rows.worker(worker, **fields)
        return await self.store.lease(asking, slots, rows.one_by_one, self.clock.now, self.clock.epoch)

    async def lease_again(self, worker: str, task: str) -> Lease | None:
        asking: FleetWorker = rows.worker(worker)
        return await self.store.lease_again(asking, task, "cpu", self.clock.now, self.clock.epoch)

    async def vote(self, worker: str, *leases: Lease, last: bool = False):
        ended = [rows.voted(lease, index, last=last) for index, lease in enumerate(leases)]
        return await self.store.complete(worker, ended, rows.batch(worker, *leases), self.clock.epoch)

    async def accept(self, worker: str, *leases: Lease, **fields: Any):
        ended = [rows.accepted(lease, index, **fields) for index, lease in enumerate(leases)]
        return await self.store.complete(worker, ended, rows.batch(worker, *leases), self.clock.epoch)

    async def fail(self, worker: str, *leases: Lease, **fields: Any):
        ended = [rows.failed(lease.ref, **fields) for lease in leases]
        return await self.store.complete(worker, ended, None, self.clock.epoch)

    async def run(self, job: JobRow, worker: str = "w-1") -> JobRow:
        """Take a job down the whole road."""
        await self.store.add_job(job)
        await self.accept(worker, *await self.lease(worker))
        return await self.finish(job.id)

    async def finish(self, job: str, **fields: Any) -> JobRow:
        given = {"result": rows.manifest(), "error": None, "combining_s": 0.5, "wall": self.clock.epoch}
        return await self.store.finish(job, **{**given, **fields})

    async def verdicts(self, worker: str, *leases: Lease) -> list[str]:
        return [answer.verdict for answer in await self.accept(worker, *leases)]


Story = Callable[[Pool], Awaitable[None]]


@pytest.fixture(params=["memory", "sqlite"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Pool:
    """Each test that asks for it runs over both stores."""
    return Pool(request.param, tmp_path)


@pytest.fixture
def tell(pool: Pool) -> Callable[..., None]:
    """Run a story over an open store, and close it after."""

    def run(story: Story, **options: Any) -> None:
        async def whole() -> None:
            await pool.open(**options)
            try:
                await story(pool)
            finally:
                pool.fill_disk(full=False)
                await pool.store.close()

        asyncio.run(whole())

    return run
