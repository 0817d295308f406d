"""A task that takes too long at the end of a job is tried by somebody else; the first good result wins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np

from moregpu.coordinator import speculation
from moregpu.jobs import AttemptState, JobState
from moregpu.wire.messages import Assignment
from tests.coordinator.room.pool import ANN, Room, product, room
from tests.rogue.workers import HonestWorker, ref_of


class StopsAt(HonestWorker):
    """Computes until it is told to stop; what it has then it keeps, and its heartbeats go on."""

    stuck = False
    kept_back: list[Assignment]

    async def work(self, assignments: list[Assignment]) -> None:
        if not self.stuck:
            await super().work(assignments)
            return
        self.kept_back = [*getattr(self, "kept_back", []), *assignments]


class Hesitates(HonestWorker):
    """Computes what nobody else has; a second attempt waits for a word."""

    second: list[Assignment]

    async def work(self, assignments: list[Assignment]) -> None:
        self.second = [*getattr(self, "second", []), *(each for each in assignments if each.attempt > 1)]
        await super().work([each for each in assignments if each.attempt == 1])


async def with_a_late_task(here: Room, kind: type[HonestWorker] = HonestWorker) -> tuple[StopsAt, HonestWorker, str]:
    """A job whose last task is stuck on one worker while another has nothing to do."""
    slow = await here.worker(StopsAt)
    assert isinstance(slow, StopsAt)
    slow.stuck = True
    member = here.desk._fleet.get(slow.id)
    assert member is not None
    member.speeds["matmul.float32"] = 1e9  # so slow that the job is cut into tasks
    a, b = product(1024, 256, 1024)
    row = await here.submit(await here.spec("matmul", a, b), wait_s=0.0)
    await here.until(lambda: bool(getattr(slow, "kept_back", [])))
    quick = await here.worker(kind, name="quick")
    return slow, quick, row.id


def test_a_late_task_runs_again_elsewhere_and_the_slow_one_is_told_to_stop(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            slow, quick, job = await with_a_late_task(here)
            row = await here.ended(await here.desk.job(ANN, job))
            assert row.state is JobState.DONE
            tasks = await here.store.tasks(job)
            late = [task for task in tasks if len(task.attempts) > 1]
            assert late, "a task was tried twice"
            for task in late:
                states = {attempt.worker: attempt.state for attempt in task.attempts}
                assert states == {slow.id: AttemptState.LOST, quick.id: AttemptState.ACCEPTED}
                assert task.losses == task.failures == 0
            cancelled = {ref.task for ref in slow.cancelled}
            await slow.until(lambda: {task.id for task in late} <= {ref.task for ref in slow.cancelled})
            a, b = product(1024, 256, 1024)
            np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-4, atol=1e-4)
            assert cancelled <= {task.id for task in tasks}
            # What the slow one sends after that is too late, and harmless.
            (mine,) = [each for each in slow.kept_back if each.task == late[0].id]
            seen = len(slow.verdicts)
            await slow.send(slow.result(slow.compute(mine)))
            await slow.until(lambda: len(slow.verdicts) > seen)
            assert slow.verdicts[-1].verdict == "fenced"

    asyncio.run(run())


def test_where_the_slow_one_is_first_after_all_the_other_stops(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            slow, quick, job = await with_a_late_task(here, Hesitates)
            assert isinstance(quick, Hesitates)
            await here.until(lambda: bool(getattr(quick, "second", [])))
            for mine in slow.kept_back:
                await slow.send(slow.result(slow.compute(mine)))
            await quick.until(lambda: ref_of(quick.second[0]) in quick.cancelled)
            row = await here.ended(await here.desk.job(ANN, job))
            assert row.state is JobState.DONE
            late = await here.store.task(quick.second[0].task)
            assert late is not None and late.worker == slow.id and late.losses == 0

    asyncio.run(run())


def test_where_the_slow_one_disappears_the_second_attempt_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=0.01) as here:
            slow, quick, job = await with_a_late_task(here, Hesitates)
            assert isinstance(quick, Hesitates)
            await here.until(lambda: bool(getattr(quick, "second", [])))
            await here.hang_up(slow)
            await here.until(lambda: slow.id not in here.store._book.index.leased_by)
            late = await here.store.task(quick.second[0].task)
            assert late is not None and (late.worker, late.rival, late.losses) == (quick.id, None, 0)
            await HonestWorker.work(quick, quick.second)
            row = await here.ended(await here.desk.job(ANN, job))
            assert row.state is JobState.DONE

    asyncio.run(run())


def test_a_job_that_needs_two_owners_is_not_tried_a_third_time_for_being_late(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            a, b = product(8, 8, 8)
            row = await here.submit(await here.spec("matmul", a, b, check="agree"), wait_s=0.0)
            job = msgspec.structs.replace(row, grains_done=3, cursor=4)
            assert here.store._book.index._is_tail(job) is False
            assert here.store.tails() == []
            assert speculation.median_s(await here.store.tasks(row.id)) is None

    asyncio.run(run())
