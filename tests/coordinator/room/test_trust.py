"""Workers whose results are proven wrong: probation, quarantine, and what the admin can do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from moregpu.coordinator.trust import PROBATION
from moregpu.jobs import JobState
from moregpu.wire.api import WorkerChange
from tests.coordinator.room.pool import ADMIN, ANN, Room, product, room
from tests.rogue.workers import HonestWorker, ReturnsScaled, ReturnsYesterdays


async def spec_of(here: Room, **fields: object) -> object:
    return await here.spec("matmul", *product(8, 8, 8), **fields)


async def state_of(here: Room, worker: HonestWorker) -> str:
    return (await here.desk.find_worker(worker.id)).state


def test_a_liar_is_quarantined_at_its_second_wrong_result_and_everybody_is_served_by_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liar = await here.worker(ReturnsScaled)
            for _ in range(2):
                await here.submit(await spec_of(here, retries=1), wait_s=5.0)
            await here.until(lambda: here.desk._fleet.get(liar.id).session.quarantined)
            assert await state_of(here, liar) == "quarantined"
            seen = len(liar.assigned)
            row = await here.submit(await spec_of(here), wait_s=0.1)
            assert row.state is JobState.QUEUED and len(liar.assigned) == seen
            await here.worker(name="honest")
            assert (await here.ended(row)).state is JobState.DONE
            types = [event.type for event in await here.store.events_since(0) or []]
            assert types.count("worker.probation") == types.count("worker.quarantined") == 1

    asyncio.run(run())


def test_one_that_was_honest_and_then_lies_is_caught_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker(ReturnsYesterdays)
            assert (await here.submit(await spec_of(here))).state is JobState.DONE
            worker.day_over = True
            a, b = product(8, 8, 8, seed=2)
            row = await here.submit(await here.spec("matmul", a, b, retries=1), wait_s=5.0)
            assert row.state is JobState.FAILED
            row_ = await here.store.worker(worker.id)
            assert row_ is not None and (row_.trust.right, row_.trust.wrong) == (1, 1)

    asyncio.run(run())


def test_on_probation_even_results_that_nobody_wants_checked_are_checked(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker(ReturnsScaled)
            row = await here.submit(await spec_of(here, check="none"))
            assert row.state is JobState.DONE and row.evidence == {"unchecked": 1}
            await here.submit(await spec_of(here, retries=1), wait_s=5.0)  # caught
            await here.until(lambda: here.desk._fleet.get(worker.id).row.trust.probation_left == PROBATION)
            row = await here.submit(await spec_of(here, check="none", retries=1), wait_s=5.0)
            assert row.state is JobState.FAILED
            assert await state_of(here, worker) == "quarantined"

    asyncio.run(run())


def test_quarantine_outlives_a_reconnect_and_a_restart_until_the_admin_resumes(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=0.01) as here:
            liar = await here.worker(ReturnsScaled)
            for _ in range(2):
                await here.submit(await spec_of(here, retries=1), wait_s=5.0)
            await here.hang_up(liar)
            await here.until(lambda: here.desk._fleet.get(liar.id) is None)
            await here.store.settle()
            disk, keys = here.store.crash(), here.keys
        async with room(tmp_path, disk, keys) as again:
            same = HonestWorker(again.keys, again.blobs, "mended", keys=liar.keys)
            again.connect(same)
            await same.welcomed()
            await same.heartbeat([])
            assert await state_of(again, same) == "quarantined"
            row = await again.submit(await spec_of(again), wait_s=0.1)
            assert row.state is JobState.QUEUED
            await again.desk.change_worker(ADMIN, same.id, WorkerChange(action="resume"))
            assert (await again.ended(row)).state is JobState.DONE
            view = await again.desk.find_worker(same.id)
            assert view.state == "online" and view.reason.startswith("on probation: 99 more results")

    asyncio.run(run())


def test_what_a_quarantined_worker_still_had_goes_to_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liar = await here.worker(ReturnsScaled)
            liar.computes = False
            jobs = [await here.submit(await spec_of(here), wait_s=0.0) for _ in range(3)]
            await liar.until(lambda: bool(liar.assigned))
            first = liar.assigned[0]
            row = await here.store.worker(liar.id)
            assert row is not None
            await liar.send(liar.result(liar.compute(first)))
            await here.until(lambda: bool(liar.verdicts))
            await liar.until(lambda: len(liar.assigned) > 1)
            second = liar.assigned[1]
            await liar.send(liar.result(liar.compute(second)))
            await here.until(lambda: here.desk._fleet.get(liar.id).session.quarantined)
            await here.until(lambda: liar.id not in here.store._book.index.leased_by)
            await here.worker(name="honest")
            for job in jobs:
                assert (await here.ended(await here.desk.job(ANN, job.id))).state is JobState.DONE

    asyncio.run(run())


def test_trust_is_kept_by_the_store_and_no_stale_reading_takes_it_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liar = await here.worker(ReturnsScaled)
            stale = await here.store.worker(liar.id)
            assert stale is not None
            await here.submit(await spec_of(here, retries=1), wait_s=5.0)
            await here.store.save_worker(stale)
            row = await here.store.worker(liar.id)
            assert row is not None and row.trust.wrong == 1 and row.trust.probation_left == PROBATION

    asyncio.run(run())
