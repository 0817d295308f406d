"""Machines that fail or die at everything, hourly canaries, and how much of the pool one submitter may hold."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moregpu.coordinator.canaries import part_of
from moregpu.coordinator.quotas import Quotas, refuse_bytes
from moregpu.errors import OverQuota
from moregpu.jobs import JobState
from moregpu.wire.api import WorkerChange
from moregpu.wire.messages import Assignment, ResultEntry, TaskError
from tests.coordinator.room.pool import ADMIN, ANN, BOB, Room, product, room
from tests.rogue.workers import HonestWorker


class BlackHole(HonestWorker):
    """Fails everything at once."""

    def compute(self, assignment: Assignment) -> ResultEntry:
        error = TaskError(code="engine-error", message="no", fault=self.fault)
        return ResultEntry(task=assignment.task, attempt=assignment.attempt, token=assignment.token, error=error)

    fault: Any = "engine"


class BlamesItself(BlackHole):
    fault = "worker"


async def tiny(here: Room, **fields: Any) -> Any:
    return await here.spec("relu", product(1, 8, 8)[1], **fields)


async def session_of(here: Room, worker: HonestWorker) -> Any:
    await here.until(lambda: here.desk._fleet.get(worker.id) is not None)
    member = here.desk._fleet.get(worker.id)
    assert member is not None
    return member.session


@pytest.mark.parametrize("kind", [BlackHole, BlamesItself])
def test_a_black_hole_gets_at_most_eight_tasks_then_it_is_paused(tmp_path: Path, kind: type[HonestWorker]) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            hole = await here.worker(kind)
            jobs = [await here.submit(await tiny(here, retries=20), wait_s=0.0) for _ in range(40)]
            await here.until(lambda: here.desk._fleet.get(hole.id).session.paused)
            assert len(hole.assigned) <= 8
            await here.worker(name="honest")
            for job in jobs:
                assert (await here.ended(await here.desk.job(ANN, job.id))).state is JobState.DONE
            assert len(hole.assigned) <= 8

    asyncio.run(run())


def test_a_black_hole_that_reconnects_after_each_failure_gets_no_more_than_eight_either(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=0.001) as here:
            hole = await here.worker(BlackHole)
            await here.submit(await tiny(here, retries=20), wait_s=0.0)
            for _ in range(12):
                session = await session_of(here, hole)
                if session.paused:
                    break
                seen = len(hole.verdicts)
                await here.until(lambda seen=seen, session=session: len(hole.verdicts) > seen or session.paused)
                await here.hang_up(hole)
                await here.until(lambda: here.desk._fleet.get(hole.id) is None and not here.desk._presence._parted)
                hole.welcome = None
                here.connect(hole)
                await hole.welcomed()
                await hole.heartbeat([])
            assert (await session_of(here, hole)).paused and len(hole.assigned) <= 9
            view = await here.desk.find_worker(hole.id)
            assert view.state == "paused" and "of its tasks failed in a row; the last one: " in view.reason
            waits = await here.desk.submit(ANN, await here.spec("matmul", *product(4, 4, 4)), "", 0.0)
            said = (await here.desk.view(ANN, waits)).waiting_reason
            assert said.startswith(f"no worker takes work: {hole.name} is paused ("), said
            await here.desk.change_worker(ADMIN, hole.id, WorkerChange(action="resume"))
            assert (await here.desk.find_worker(hole.id)).reason != view.reason

    asyncio.run(run())


def test_a_machine_that_dies_at_every_task_is_paused_before_its_tasks_fail_for_good(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=0.001) as here:
            worker = await here.worker()
            worker.computes = False
            row = await here.submit(await tiny(here), wait_s=0.0)
            for number in range(1, 10):
                await worker.until(lambda number=number: len(worker.assigned) >= number)
                await here.hang_up(worker)
                await here.until(lambda: here.desk._fleet.get(worker.id) is None and not here.desk._presence._parted)
                await here.until(lambda: worker.id not in here.store._book.index.leased_by)
                worker.welcome, worker.boot = None, bytes([number]) * 16
                here.connect(worker)
                await worker.welcomed()
                await worker.heartbeat([])
                if (await session_of(here, worker)).paused:
                    break
            assert len(worker.assigned) <= 8
            await here.worker(name="honest")
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


# ---- canaries


class BreaksLater(HonestWorker):
    """Sound at first; then one bit is wrong."""

    broken = False

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        honest = super().outputs(assignment, arrays)
        if self.broken:
            honest["out"].reshape(-1).view("uint32")[0] ^= 1
        return honest


def test_every_working_machine_is_tried_once_a_period_and_one_that_broke_is_set_aside(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, measure=True, measure_s=0.02, canary_s=30.0, silence_s=1e6) as here:
            sound, breaks = await here.worker(), await here.worker(BreaksLater)
            for worker in (sound, breaks):
                session = await session_of(here, worker)
                await here.until(lambda session=session: not session.on_trial)
            canaries = here.desk._canaries
            canaries.look()
            seen = {worker: len(worker.assigned) for worker in (sound, breaks)}
            canaries.look()
            assert seen == {worker: len(worker.assigned) for worker in (sound, breaks)}, "none is due yet"
            here.clock.ahead_s += 31.0
            await here.store.extend_all(here.clock.monotonic())
            canaries.look()
            assert seen == {worker: len(worker.assigned) for worker in (sound, breaks)}, "who did nothing is left alone"
            for worker in (sound, breaks):
                (await session_of(here, worker)).ruled(failed=False, succeeded=True)
            breaks.broken = True
            canaries.look()
            assert seen == {worker: len(worker.assigned) for worker in (sound, breaks)}, "and not due when it gets work"
            here.clock.ahead_s += 31.0
            await here.store.extend_all(here.clock.monotonic())
            canaries.look()
            await here.until(lambda: all(len(worker.assigned) == seen[worker] + 1 for worker in seen))
            await here.until(lambda: here.desk._fleet.get(breaks.id).session.paused)
            assert (await here.desk.find_worker(breaks.id)).state == "paused"
            assert (await here.desk.find_worker(sound.id)).state == "online"
            row = await here.store.worker(breaks.id)
            assert row is not None and row.trust.wrong == 1
            (await session_of(here, sound)).ruled(failed=False, succeeded=True)
            canaries.look()
            assert len(sound.assigned) == seen[sound] + 1, "the next one is due in half a minute"

    asyncio.run(run())


def test_canaries_of_many_workers_are_spread_over_the_hour() -> None:
    parts = sorted(part_of(f"w-{number}") for number in range(1000))
    gaps = [later - earlier for earlier, later in itertools.pairwise(parts)]
    assert parts[0] >= 0.0 and parts[-1] < 1.0 and max(gaps) < 0.02


# ---- quotas


def test_a_submitter_has_so_many_jobs_at_once_and_others_are_not_concerned(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, quotas=Quotas(jobs=3)) as here:
            rows = [await here.submit(await tiny(here), wait_s=0.0) for _ in range(3)]
            with pytest.raises(OverQuota, match="3 of your jobs have not ended"):
                await here.submit(await tiny(here), wait_s=0.0)
            await here.submit(await tiny(here), wait_s=0.0, who=BOB)
            await here.submit(await tiny(here), wait_s=0.0, who=ADMIN)
            await here.desk.cancel(ANN, rows[0].id)
            await here.submit(await tiny(here), wait_s=0.0)

    asyncio.run(run())


def test_a_submitter_keeps_so_many_bytes(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, quotas=Quotas(stored_bytes=100_000)) as here:
            assert here.desk.bytes_left(ANN) == 100_000
            await here.upload(ANN, product(100, 100, 1)[0])
            left = here.desk.bytes_left(ANN)
            assert left is not None and 50_000 < left < 60_000
            refuse_bytes(left, left)
            with pytest.raises(OverQuota, match="more than the"):
                refuse_bytes(left + 1, left)
            assert here.desk.bytes_left(BOB) == 100_000 and here.desk.bytes_left(ADMIN) is None
            await here.upload(ANN, product(200, 100, 1)[0])
            with pytest.raises(OverQuota, match="bytes"):
                await here.submit(await tiny(here), wait_s=0.0)

    asyncio.run(run())


def test_somebody_whose_jobs_all_need_something_else_is_stopped_before_leasing_is_slow_for_all(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, quotas=Quotas(needs=5)) as here:
            for number in range(5):
                await here.submit(await tiny(here, group=f"g{number}"), wait_s=0.0)
            with pytest.raises(OverQuota, match="5 different groups"):
                await here.submit(await tiny(here, group="another"), wait_s=0.0)
            await here.submit(await tiny(here, group="another"), wait_s=0.0, who=BOB)

    asyncio.run(run())


def test_a_request_that_is_repeated_under_its_key_is_answered_though_the_quota_is_used_up(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, quotas=Quotas(jobs=1)) as here:
            spec = await tiny(here)
            row = await here.submit(spec, wait_s=0.0, key="again")
            assert (await here.submit(spec, wait_s=0.0, key="again")).id == row.id

    asyncio.run(run())
