"""No lie becomes a checked result, at any size: zeros, scaled, half of it, yesterday's, unsigned."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu.jobs import JOB_ENDED, JobState
from moregpu.workloads import KernelSpec
from tests.coordinator.room.pool import ANN, Room, product, room
from tests.rogue.workers import ROGUES, HonestWorker, ReturnsYesterdays, YesterdaysStatement

SIZES = [1, 257, 700]


async def yesterday(here: Room, rogue: HonestWorker, spec: KernelSpec) -> None:
    """Give the one who hands in old results a day to take them from: honest work on data of the same shape."""
    if isinstance(rogue, ReturnsYesterdays):
        row = await here.submit(spec)
        assert row.state is JobState.DONE, "that day it was honest"
        rogue.day_over = True


async def never_checked(here: Room, spec: KernelSpec) -> None:
    """The job fails; or its only worker is quarantined before, and it waits for another."""
    row = await here.submit(spec, wait_s=0.0)
    async with asyncio.timeout(20.0):
        while row.state not in JOB_ENDED and not any(each.trust.quarantined for each in await here.store.workers()):
            row = await here.desk.wait(row.id, 0.05)
    view = await here.desk.view(ANN, row)
    assert not view.checked
    assert row.state is not JobState.DONE and row.result is None
    tasks = await here.store.tasks(row.id)
    assert all(task.evidence is None for task in tasks)
    assert await here.store.statements(row.id) == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(ROGUES))
def test_a_pool_of_one_rogue_never_yields_a_checked_product(tmp_path: Path, name: str, size: int) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            rogue = await here.worker(ROGUES[name])
            await yesterday(here, rogue, await here.spec("matmul", *product(size, size, size, seed=1)))
            await never_checked(here, await here.spec("matmul", *product(size, size, size, seed=2), retries=2))

    asyncio.run(run())


@pytest.mark.parametrize(("operation", "size"), [("vector_add", 3), ("softmax", 300), ("relu", 100_000)])
@pytest.mark.parametrize("name", sorted(ROGUES))
def test_nor_any_other_kernel(tmp_path: Path, name: str, operation: str, size: int) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            rogue = await here.worker(ROGUES[name])
            shape = (size // 3, 3) if operation == "softmax" else (size,)
            rng = np.random.default_rng(3)

            def arrays() -> list[Any]:
                count = 2 if operation == "vector_add" else 1
                return [rng.uniform(0.5, 2.0, shape).astype("float32") for _ in range(count)]

            await yesterday(here, rogue, await here.spec(operation, *arrays()))
            await never_checked(here, await here.spec(operation, *arrays(), retries=2))

    asyncio.run(run())


@pytest.mark.parametrize("name", sorted(ROGUES))
def test_nor_a_benchmark(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            rogue = await here.worker(ROGUES[name])
            await yesterday(here, rogue, KernelSpec(operation="matmul", size=200, seed=1))
            await never_checked(here, KernelSpec(operation="matmul", size=200, seed=2, retries=2))

    asyncio.run(run())


def test_nor_yesterdays_statement_word_for_word(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker(YesterdaysStatement)
            spec = await here.spec("matmul", *product(8, 8, 8))
            assert (await here.submit(spec)).state is JobState.DONE
            await never_checked(here, msgspec.structs.replace(spec, retries=2))

    asyncio.run(run())


@pytest.mark.parametrize("name", sorted(ROGUES))
def test_an_honest_worker_beside_a_rogue_still_gets_the_job_done_right(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            rogue = await here.worker(ROGUES[name])
            await yesterday(here, rogue, await here.spec("matmul", *product(8, 8, 8)))
            honest = await here.worker()
            a, b = product(300, 100, 300, seed=4)
            for _ in range(3):
                row = await here.submit(await here.spec("matmul", a, b))
                assert row.state is JobState.DONE, row.error
                np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-4, atol=1e-4)
                view = await here.desk.view(ANN, row, detail=True)
                assert view.checked and view.workers == [honest.id]

    asyncio.run(run())


@pytest.mark.parametrize("name", sorted(ROGUES))
def test_a_rogue_that_fails_everything_is_set_aside_within_eight_tasks(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            rogue = await here.worker(ROGUES[name])
            spec = await here.spec("matmul", *product(8, 8, 8), retries=1)
            await yesterday(here, rogue, spec)
            before = len(rogue.assigned)
            other = await here.spec("matmul", *product(8, 8, 8, seed=9), retries=1)
            rows = [await here.submit(other, wait_s=0.0) for _ in range(30)]

            member = here.desk._fleet.get(rogue.id)
            assert member is not None
            await here.until(lambda: member.session.paused or member.row.trust.quarantined)
            assert len(rogue.assigned) - before <= 8 + 2, "after honest work it may hold two when it begins to fail"
            if name != "unsigned":
                assert (await here.desk.find_worker(rogue.id)).state == "quarantined", "proven wrong twice"
            for row in rows:
                assert not (await here.desk.view(ANN, await here.desk.job(ANN, row.id))).checked

    asyncio.run(run())
