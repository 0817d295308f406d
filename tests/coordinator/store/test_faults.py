"""Full disks, crashes, foreign and newer databases: nothing told is lost, nothing half-written is seen."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from moregpu.coordinator.store.book import Book
from moregpu.coordinator.store.durable import BookStore
from moregpu.coordinator.store.memory import MemoryDisk, MemoryStore
from moregpu.coordinator.store.sqlite import SqliteStore
from moregpu.errors import OutOfSpace, StateRefused, Unavailable, VersionMismatch
from moregpu.jobs import JobState, TaskState, Tensor
from moregpu.workloads.kernel.spec import KernelSpec
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import WRAP_KEY, Pool

Tell = Callable[..., None]


def memory_of(book: Book) -> dict[str, object]:
    """All that a book knows, without the times of leases (a restart gives those anew)."""
    from msgspec.structs import replace

    tasks = {id: replace(task, expires=0.0) for id, task in book.tasks.rows.items()}
    registry = {table.name: table.rows for table in book.registry.tables()}
    alive = {id: job for id, job in book.jobs.rows.items() if id not in book.ended}
    return {
        "jobs": alive,
        "tasks": {id: task for id, task in tasks.items() if task.job in alive},
        "receipts": {id: book.receipts[id] for id in book.receipts if book.tasks.rows[id].job in alive},
        "registry": registry,
        "head": book.head,
        "next_batch": book.next_batch,
        "seq": book.journal.seq,
    }


def bulky() -> KernelSpec:
    """A spec that needs new pages."""
    return KernelSpec(operation="relu", inputs={"a": Tensor(dtype="uint8", shape=(200_000,), data=os.urandom(200_000))})


# ---- full disk


def test_a_full_disk_refuses_typed_undoes_everything_and_recovers(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        kept = await pool.store.add_job(rows.job(grains=2))
        lease = (await pool.lease(slots=1))[0]
        await pool.store.settle()
        before = memory_of(pool.store._book)
        facts = repr(pool.store._book.index.facts())
        told = len(pool.events)
        pool.fill_disk(full=True)

        quiet = await pool.store.add_job(rows.job(submitter="bob", spec=bulky()), told=False)
        assigned = await pool.lease("w-2", 1)
        waiting = await asyncio.gather(
            pool.store.add_job(rows.job(submitter="bob", spec=bulky())),
            pool.accept("w-1", lease),
            pool.store.settle(),
            return_exceptions=True,
        )
        assert [type(each) for each in waiting] == [OutOfSpace] * 3
        assert "full" in str(waiting[0])

        assert memory_of(pool.store._book) == before
        assert repr(pool.store._book.index.facts()) == facts
        assert len(pool.events) == told
        assert await pool.store.job(quiet.id) is None
        (undone,) = pool.undone
        assert quiet.id in undone.jobs
        assert [ref for _, ref in undone.leases] == [assigned[0].ref]

        pool.fill_disk(full=False)
        assert await pool.verdicts("w-2", assigned[0]) == ["fenced"]
        assert await pool.verdicts("w-1", lease) == ["accepted"]
        await pool.store.add_job(rows.job(submitter="bob", spec=bulky()))
        await pool.restart()
        assert {job.submitter for job in await pool.store.jobs()} == {"alice", "bob"}
        task = await pool.store.task(lease.task.id)
        assert task is not None
        assert task.state is TaskState.DONE
        assert [row.row for row in await pool.store.ledger()] == [1]
        row = await pool.store.job(kept.id)
        assert row is not None
        assert row.grains_done == 1

    tell(story)


@pytest.mark.parametrize("times", [1, 3])
def test_a_lease_that_could_not_go_back_while_the_disk_was_full_runs_out_once(tell: Tell, times: int) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=1))
        lease = (await pool.lease(slots=1))[0]
        await pool.store.settle()
        pool.fill_disk(full=True)
        for _ in range(times):
            assert await pool.store.release("w-1", [], 0.0, 0.0) == [lease.ref]
            with pytest.raises(OutOfSpace):  # in one commit with what does not fit
                await pool.store.add_job(rows.job(submitter="bob", spec=bulky()))
        pool.fill_disk(full=False)
        assert await pool.store.reap(1e9, 0.0) == [lease.ref]
        assert await pool.store.reap(1e9, 0.0) == []
        await pool.store.settle()
        task = await pool.store.task(lease.task.id)
        assert task is not None
        assert (task.state, task.losses) == (TaskState.WAITING, 1)

    tell(story)


def test_a_memory_after_an_undone_commit_equals_one_loaded_from_the_disk(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        for number in range(4):
            await pool.store.add_job(rows.job(grains=2, submitter=f"s{number % 2}", inputs=(rows.blob(number),)))
        leases = await pool.lease(slots=5)
        await pool.accept("w-1", *leases[:2])
        await pool.store.add_invite(rows.invite("i-1", uses_left=2))
        pool.fill_disk(full=True)
        await pool.store.enrol(rows.worker_row("w-3"), "i-1", b"x", 0.0)
        results = await asyncio.gather(
            pool.store.enrol(rows.worker_row("w-3"), "i-1", b"s" * 32, pool.clock.epoch),
            pool.accept("w-1", *leases[2:]),
            pool.store.cancel(leases[-1].job.id, pool.clock.epoch),
            pool.store.add_job(rows.job(spec=bulky())),
            return_exceptions=True,
        )
        assert [type(each) for each in results] == [OutOfSpace] * 4
        pool.fill_disk(full=False)
        undone, facts = memory_of(pool.store._book), pool.store._book.index.facts()
        await pool.restart()
        assert memory_of(pool.store._book) == undone
        loaded = pool.store._book.index.facts()
        ended = ("tasks_of", "by_key")  # of ended jobs that are still in memory
        assert {name: facts[name] for name in facts if name not in ended} == {
            name: loaded[name] for name in loaded if name not in ended
        }

    tell(story)


def test_what_was_read_before_a_failed_commit_is_not_taken_for_true(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        pool.fill_disk(full=True)
        job = await pool.store.add_job(rows.job(spec=bulky()), told=False)
        assert await pool.store.job(job.id) == job  # inside, the newest is seen
        with pytest.raises(OutOfSpace):
            await pool.store.settle()  # outside, nobody may be told
        await pool.store.settle()
        assert await pool.store.job(job.id) is None

    tell(story)


def test_a_caller_that_gives_up_waiting_harms_nobody_else(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        first = asyncio.ensure_future(pool.store.add_job(rows.job()))
        second = asyncio.ensure_future(pool.store.add_job(rows.job()))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert len(await pool.store.jobs()) == 2

    tell(story)


def test_a_closed_store_says_so() -> None:
    async def story() -> None:
        store = MemoryStore(rows.TestClock())
        with pytest.raises(Unavailable):
            await store.add_job(rows.job())
        await store.close()

    asyncio.run(story())


# ---- crashes of the memory store


def test_what_was_not_committed_is_lost_by_a_crash_and_nobody_was_told() -> None:
    async def story() -> None:
        clock, entropy = rows.TestClock(), rows.counting_entropy()
        store = MemoryStore(clock, entropy, auto_commit=False)
        await store.open(clock.now)
        kept = asyncio.ensure_future(store.add_job(rows.job()))
        await asyncio.sleep(0)
        assert not kept.done()
        assert store.uncommitted
        store.commit()
        await kept
        lost = asyncio.ensure_future(store.add_job(rows.job()))
        await asyncio.sleep(0)
        disk = store.crash()
        with pytest.raises(asyncio.CancelledError):
            await lost
        store.commit()
        again = MemoryStore(clock, entropy, disk=disk)
        await again.open(clock.now)
        assert [job.id for job in await again.jobs()] == [kept.result().id]

    asyncio.run(story())


def test_a_memory_disk_can_be_full_for_a_while() -> None:
    async def story() -> None:
        disk = MemoryDisk()
        store = MemoryStore(rows.TestClock(), disk=disk)
        await store.open(0.0)
        disk.full = True
        with pytest.raises(OutOfSpace):
            await store.set_setting("name", "x")
        disk.full = False
        assert await store.setting("name") is None

    asyncio.run(story())


# ---- memory stays bounded


def test_ended_jobs_leave_memory_and_are_read_back(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        ended = [await pool.run(rows.job(grains=3)) for _ in range(20)]
        book = pool.store._book
        assert len(book.jobs.rows) == 4
        assert len(book.tasks.rows) == len(book.receipts) == 12
        assert book.ledger.rows == book.batches.rows == {}
        for job in ended:
            assert await pool.store.job(job.id) == job
            assert len(await pool.store.tasks(job.id)) == 3
            assert await pool.store.task((await pool.store.tasks(job.id))[0].id) is not None
        assert len(book.jobs.rows) == 4

    tell(story, keep_ended=4)


# ---- the database file


def sqlite_store(path: Path, key: bytes = WRAP_KEY) -> SqliteStore:
    return SqliteStore(path, key, rows.TestClock())


async def opened(path: Path, key: bytes = WRAP_KEY) -> BookStore:
    store = sqlite_store(path, key)
    try:
        await store.open(0.0)
    except BaseException:
        await store.close()
        raise
    return store


def with_one_job(path: Path) -> None:
    async def story() -> None:
        store = await opened(path)
        await store.add_job(rows.job(inputs=(rows.blob(0x77),)))
        await store.close()

    asyncio.run(story())


def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    with_one_job(tmp_path / "pool.db")
    assert stat.S_IMODE((tmp_path / "pool.db").stat().st_mode) == 0o600


def test_keys_and_inline_data_do_not_lie_open_in_the_database(tmp_path: Path) -> None:
    async def story() -> None:
        store = await opened(tmp_path / "pool.db")
        inline = Tensor(dtype="uint8", shape=(26,), data=b"abcdefghijklmnopqrstuvwxyz")
        named = Tensor(dtype="float32", shape=(250,), data=rows.blob(0x77))
        await store.add_job(rows.job(spec=KernelSpec(operation="relu", inputs={"a": inline, "b": named})))
        for name in ("pool.db", "pool.db-wal"):
            data = (tmp_path / name).read_bytes()
            assert inline.data not in data
            assert bytes([0x77]) * 32 not in data
            assert bytes(range(32)) not in data  # the job's digest key
        await store.close()

    asyncio.run(story())


def test_a_database_of_a_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "pool.db"
    with_one_job(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(VersionMismatch, match="version 99"):
        asyncio.run(opened(path))
    assert path.read_bytes() == before


def test_another_programs_database_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StateRefused, match="another program"):
        asyncio.run(opened(path))
    noise = tmp_path / "noise.db"
    noise.write_bytes(b"not a database at all, and long enough to be taken for one" * 20)
    with pytest.raises(StateRefused, match="not a database"):
        asyncio.run(opened(noise))


def test_a_wrong_wrap_key_is_refused_at_once(tmp_path: Path) -> None:
    with_one_job(tmp_path / "pool.db")
    with pytest.raises(StateRefused, match="another key"):
        asyncio.run(opened(tmp_path / "pool.db", bytes(32)))


def test_a_row_moved_to_another_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.db"
    with_one_job(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE job SET body = progress")
    connection.commit()
    connection.close()
    with pytest.raises(StateRefused, match="damaged"):
        asyncio.run(opened(path))


def test_a_commit_that_the_database_refuses_is_undone_and_named(tmp_path: Path) -> None:
    async def story() -> None:
        store = sqlite_store(tmp_path / "pool.db")
        await store.open(0.0)
        kept = await store.add_job(rows.job())
        store._sqlite._write.execute("PRAGMA query_only = ON")
        with pytest.raises(Unavailable, match="cannot be written"):
            await store.cancel(kept.id, 0.0)
        row = await store.job(kept.id)
        assert row is not None
        assert row.state is JobState.QUEUED
        store._sqlite._write.execute("PRAGMA query_only = OFF")
        await store.cancel(kept.id, 0.0)
        await store.close()

    asyncio.run(story())


def test_many_callers_share_commits(tmp_path: Path) -> None:
    async def story() -> None:
        store = sqlite_store(tmp_path / "pool.db")
        await store.open(0.0)
        await asyncio.gather(*(store.add_job(rows.job()) for _ in range(200)))
        assert store.commits <= 5
        assert len(await store.jobs(limit=500)) == 200
        await store.close()

    asyncio.run(story())


class GatedClock(rows.TestClock):
    """Holds the writer thread just before it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def wall(self) -> float:
        if threading.current_thread().name == "moregpu-store-writer":
            assert self.gate.wait(30)
        return super().wall()


def test_what_gathered_behind_a_commit_that_fails_is_undone_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        clock = GatedClock()
        store = SqliteStore(tmp_path / "pool.db", WRAP_KEY, clock)
        await store.open(0.0)
        kept = await store.add_job(rows.job(grains=2))
        store._sqlite._write.execute("PRAGMA query_only = ON")
        clock.gate.clear()
        on_its_way = asyncio.ensure_future(store.add_job(rows.job(grains=2)))
        while store._inflight is None:  # noqa: ASYNC110 — it turns so within one round of the loop
            await asyncio.sleep(0)
        leases = await store.lease(rows.worker(), 4, rows.one_by_one, 0.0, 0.0)
        behind = asyncio.ensure_future(
            store.complete("w-1", [rows.accepted(leases[0])], rows.batch("w-1", *leases), 0.0)
        )
        late = asyncio.ensure_future(store.settle())
        await asyncio.sleep(0)
        clock.gate.set()
        for waiting in (on_its_way, behind, late):
            with pytest.raises(Unavailable):
                await waiting
        assert await store.jobs() == [kept]
        assert await store.tasks(kept.id) == []
        assert store._book.head[0] == 0
        store._sqlite._write.execute("PRAGMA query_only = OFF")
        again = await store.lease(rows.worker(), 4, rows.one_by_one, 0.0, 0.0)
        assert [lease.task.spec.grains for lease in again] == [(0, 1), (1, 2)]
        assert {lease.job.id for lease in leases} > {kept.id}
        await store.complete("w-1", [rows.accepted(again[0])], rows.batch("w-1", again[0]), 0.0)
        assert [row.row for row in await store.ledger()] == [1]
        await store.close()

    asyncio.run(story())


def test_a_job_never_takes_the_place_of_another_that_left_memory(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore(tmp_path / "pool.db", WRAP_KEY, rows.TestClock(), keep_ended=0)
        await store.open(0.0)
        old = await store.add_job(rows.job(id="j-1"))
        await store.cancel(old.id, 0.0)
        with pytest.raises(Unavailable):
            await store.add_job(rows.job(id="j-1", submitter="bob"))
        row = await store.job("j-1")
        assert row is not None
        assert (row.state, row.submitter) == (JobState.CANCELLED, "alice")
        await store.close()

    asyncio.run(story())
