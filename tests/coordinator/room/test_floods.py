"""Those who take more than their share: flooders, boasters, liars with patience or with many names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from moregpu.coordinator.cases import Ruling
from moregpu.coordinator.fleet import GROWTH, MAX_SPEED
from moregpu.coordinator.store.protocol import Completed, FleetWorker
from moregpu.jobs import JobState
from moregpu.wire.messages import Assignment, LeaseRef
from tests.coordinator.room.pool import ANN, BOB, product, room
from tests.rogue.workers import HonestWorker, ReturnsScaled


def test_a_single_task_starts_within_two_rounds_of_a_flood_of_ten_thousand_jobs(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            here.store._auto_commit = False  # the disk is not what is tested
            spec = await here.spec("relu", product(1, 2, 2)[1])
            flood = [asyncio.create_task(here.submit(spec, wait_s=60.0, who=ANN)) for _ in range(10_000)]
            await here.until(lambda: here.store.jobs_alive(ANN.id) == 10_000, within_s=60.0)
            worker = await _committing(here, here.worker())
            worker.computes = False
            await worker.until(lambda: len(worker.assigned) >= 1)
            single = asyncio.create_task(here.submit(spec, wait_s=60.0, who=BOB))
            await here.until(lambda: here.store.jobs_alive(BOB.id) == 1)
            before = len(worker.assigned)
            worker.computes = True
            await worker.work(list(worker.assigned))
            await here.until(lambda: _has(here, worker, BOB.id))
            at = next(
                n for n, each in enumerate(worker.assigned) if here.store._book.jobs.rows[each.job].submitter == BOB.id
            )
            assert at - before <= 2
            for task in (*flood, single):
                task.cancel()
            await asyncio.gather(*flood, single, return_exceptions=True)

    asyncio.run(run())


async def _committing(here: Any, work: Any) -> Any:
    """Wait for something that is told only once it is durable."""
    task = asyncio.create_task(work)
    while not task.done():
        here.store.commit()
        await asyncio.sleep(0.001)
    here.store._auto_commit = True
    return await task


def _has(here: Any, worker: HonestWorker, submitter: str) -> bool:
    rows = here.store._book.jobs.rows
    return any(each.job in rows and rows[each.job].submitter == submitter for each in worker.assigned)


def test_a_worker_that_answers_at_once_becomes_no_more_than_twice_as_fast_a_result(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            member = here.desk._fleet.get(worker.id)
            assert member is not None
            ref = LeaseRef(task="t-1", attempt=1, token=bytes(16))
            instant = Ruling(
                ref=ref, completed=Completed(ref=ref, verdict="accepted"), amount=1e12, speed_key="k", seconds=1e-6
            )  # fmt: skip
            member.speeds["k"] = before = 1e9
            for _ in range(5):
                here.desk._fleet.learn(member, instant)
                assert before < member.speeds["k"] <= GROWTH * before
                before = member.speeds["k"]
            here.desk._fleet.learn(member, msgspec.structs.replace(instant, speed_key="new", amount=1e30, seconds=1.0))
            assert member.speeds["new"] <= MAX_SPEED

    asyncio.run(run())


def test_idle_workers_are_not_asked_again_about_jobs_that_fit_none_of_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            for number in range(3):
                await here.worker(name=f"idle {number}")
            asked: list[str] = []
            lease = here.store.lease

            async def counted(worker: FleetWorker, *rest: Any) -> Any:
                asked.append(worker.id)
                return await lease(worker, *rest)

            here.store.lease = counted  # type: ignore[method-assign]
            await here.submit(await here.spec("relu", product(1, 2, 2)[1], group="elsewhere"), wait_s=0.0)
            await here.until(lambda: len(asked) >= 3)
            for _ in range(20):
                here.desk._dispatch.wake()
                await asyncio.sleep(0.002)
            assert sorted(asked) == sorted(set(asked)), "each was asked once"
            await here.submit(await here.spec("relu", product(1, 2, 2)[1]), wait_s=5.0)
            assert len(asked) > 3

    asyncio.run(run())


def test_a_liar_that_paces_itself_never_has_a_wrong_result_accepted_and_is_out_at_the_second(tmp_path: Path) -> None:
    class Patient(HonestWorker):
        """Lies at every tenth task."""

        count = 0

        def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
            self.count += 1
            honest = super().outputs(assignment, arrays)
            if self.count % 10 == 0:
                honest["out"].reshape(-1)[-1] += 1.0
            return honest

    async def run() -> None:
        async with room(tmp_path) as here:
            liar = await here.worker(Patient)
            await here.worker(name="honest")
            rng = np.random.default_rng(1)
            for number in range(60):
                a = rng.standard_normal((8, 8)).astype("float32")
                row = await here.submit(await here.spec("relu", a))
                np.testing.assert_array_equal(here.output(row), np.maximum(a, 0), err_msg=str(number))
            view = await here.desk.find_worker(liar.id)
            assert view.state == "quarantined" and liar.count <= 20

    asyncio.run(run())


def test_a_liar_with_fresh_names_gets_one_task_at_a_time_until_one_was_right_and_nothing_wrong_in(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            a, b = product(8, 8, 8)
            wrong = 0
            for number in range(6):
                liar = await here.worker(ReturnsScaled, name=f"liar {number}")
                rows = [await here.submit(await here.spec("matmul", a, b, retries=20), wait_s=0.0) for _ in range(3)]
                await here.until(
                    lambda liar=liar: here.desk._fleet.get(liar.id).session.quarantined  # type: ignore[union-attr]
                )
                assert len(liar.assigned) <= 3, "two that were wrong, and one that was out"
                wrong += len(liar.assigned)
                for row in rows:
                    assert (await here.desk.job(ANN, row.id)).state is not JobState.DONE
            await here.worker(name="honest")
            for row in await here.store.jobs():
                row = await here.ended(row)
                np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-5, atol=1e-5)

    asyncio.run(run())
