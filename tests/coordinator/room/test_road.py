"""A job's road through the engine room: submit, lease, result, check, combine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from moregpu.errors import InvalidJob, NotFound, TooLarge
from moregpu.jobs import Blob, JobState, Tensor
from moregpu.workloads import KernelSpec
from tests.coordinator.room.pool import ADMIN, ANN, BOB, product, room
from tests.rogue.workers import ref_of


def test_a_tiny_product_comes_back_right_checked_and_signed(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            a, b = product(8, 8, 8)
            row = await here.submit(await here.spec("matmul", a, b))
            assert row.state is JobState.DONE
            np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-5, atol=1e-5)
            view = await here.desk.view(ANN, row, detail=True)
            assert view.checked and view.signed and view.workers == [worker.id]
            assert view.evidence == {"recomputed": 1}
            await worker.until(lambda: bool(worker.verdicts))
            assert [verdict.verdict for verdict in worker.verdicts] == ["accepted"]
            assert worker.verdicts[0].ledger is not None

    asyncio.run(run())


def test_for_a_job_that_is_alone_the_queue_is_looked_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            spec = await here.spec("relu", np.ones(4, "float32"))
            await here.submit(spec)  # by then its trials are over
            await worker.until(lambda: bool(worker.verdicts))
            await turns(20)
            dispatch, rounds = here.desk._dispatch, 0
            look = dispatch.round

            async def counted() -> None:
                nonlocal rounds
                rounds += 1
                await look()

            dispatch.round = counted
            await here.submit(spec)
            await worker.until(lambda: len(worker.verdicts) == 2)
            await turns(20)
            assert rounds == 1

    asyncio.run(run())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_large_product_is_shared_by_all_workers_and_combined(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            workers = [await here.worker(name=name) for name in ("first", "second")]
            a, b = product(700, 300, 500)
            row = await here.submit(await here.spec("matmul", a, b))
            np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-4, atol=1e-4)
            view = await here.desk.view(ANN, row, detail=True)
            assert view.checked and view.tasks_total > 1
            assert set(view.workers) == {worker.id for worker in workers}
            assert row.result is not None and isinstance(row.result.outputs["out"].data, Blob)
            assert len(row.result.digest) == 64

    asyncio.run(run())


@pytest.mark.parametrize("operation", ["vector_add", "vector_mul", "saxpy", "relu", "gelu", "scale"])
@pytest.mark.parametrize("size", [1, 3, 257, 100_000])
def test_elementwise_jobs_of_any_size(tmp_path: Path, operation: str, size: int) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            rng = np.random.default_rng(2)
            a, b = (rng.standard_normal(size).astype("float32") for _ in range(2))
            arrays = (a, b) if operation in ("vector_add", "vector_mul", "saxpy") else (a,)
            row = await here.submit(await here.spec(operation, *arrays, scalar=2.0))
            out = here.output(row)
            assert out.shape == a.shape and (await here.desk.view(ANN, row)).checked
            if operation == "vector_add":
                np.testing.assert_array_equal(out, a + b)

    asyncio.run(run())


def test_an_empty_job_has_an_empty_result(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            empty = np.zeros((0,), "float32")
            row = await here.submit(await here.spec("vector_add", empty, empty))
            assert here.output(row).shape == (0,)
            assert (await here.desk.view(ANN, row)).checked

    asyncio.run(run())


def test_not_a_number_and_infinity_pass_through_and_are_checked(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            a, b = product(16, 16, 16)
            a[3, 4], a[5, 6], b[7, 8] = np.nan, np.inf, -np.inf
            row = await here.submit(await here.spec("matmul", a, b))
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(np.isnan(here.output(row)), np.isnan(a @ b))
            assert (await here.desk.view(ANN, row)).checked

    asyncio.run(run())


def test_a_benchmark_is_checked_and_its_output_dropped(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            row = await here.submit(KernelSpec(operation="matmul", size=300, seed=7))
            assert row.result is not None and row.result.dropped and not row.result.outputs
            assert (await here.desk.view(ANN, row)).checked
            await here.until(lambda: not list(here.blobs.digests()))

    asyncio.run(run())


def test_a_job_that_asks_for_no_check_is_not_called_checked(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            a, b = product(4, 4, 4)
            row = await here.submit(await here.spec("matmul", a, b, check="none"))
            view = await here.desk.view(ANN, row)
            assert row.state is JobState.DONE and not view.checked and view.evidence == {"unchecked": 1}

    asyncio.run(run())


def test_a_job_waits_for_a_worker_and_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            a, b = product(4, 4, 4)
            row = await here.submit(await here.spec("matmul", a, b), wait_s=0.0)
            assert row.state is JobState.QUEUED
            assert "no worker" in (await here.desk.view(ANN, row)).waiting_reason
            await here.worker()
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_job_whose_only_worker_rests_says_what_that_worker_waits_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker(name="anna")
            await worker.heartbeat([], duty=0.0, reason="leaving room for its owner's programs")
            await here.until(lambda: here.desk._fleet.get(worker.id).session.resting)
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            reason = (await here.desk.view(ANN, row)).waiting_reason
            assert reason == "anna gives nothing now: leaving room for its owner's programs"
            await worker.heartbeat([])
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_job_whose_task_lies_with_a_worker_that_rests_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker(name="anna")
            await here.submit(await here.spec("matmul", *product(4, 4, 4)))
            worker.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await here.until(lambda: len(worker.assigned) > 1)
            assert (await here.desk.view(ANN, await here.desk.job(ANN, row.id))).waiting_reason == ""
            held = [ref_of(worker.assigned[-1])]
            await worker.heartbeat(held, duty=0.0, reason="on battery")
            await here.until(lambda: here.desk._fleet.get(worker.id).session.resting)
            view = await here.desk.view(ANN, await here.desk.job(ANN, row.id))
            assert view.waiting_reason == "anna gives nothing now: on battery"

    asyncio.run(run())


def test_the_same_idempotency_key_is_the_same_job(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            spec = await here.spec("matmul", *product(4, 4, 4))
            first = await here.submit(spec, key="once")
            again = await here.submit(spec, key="once")
            assert again.id == first.id and again.state is JobState.DONE
            assert (await here.submit(spec, who=BOB, key="once")).id != first.id

    asyncio.run(run())


def test_many_small_jobs_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            for name in ("first", "second"):
                await here.worker(name=name)
            pairs = [product(8, 8, 8, seed) for seed in range(200)]
            specs = [await here.spec("matmul", a, b) for a, b in pairs]
            rows = await asyncio.gather(*(here.submit(spec) for spec in specs))
            for (a, b), row in zip(pairs, rows, strict=True):
                np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-4, atol=1e-5)

    asyncio.run(run())


def test_inline_data_that_an_assignment_cannot_hold_is_sealed(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            a, b = product(128, 128, 128)
            spec = KernelSpec(
                operation="matmul",
                inputs={
                    "a": Tensor(dtype="float32", shape=a.shape, data=a.tobytes()),
                    "b": Tensor(dtype="float32", shape=b.shape, data=b.tobytes()),
                },
            )
            row = await here.submit(spec)
            np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-4, atol=1e-4)
            inline = [
                sum(len(t.data) for t in entry.inputs.values() if isinstance(t.data, bytes))
                for entry in worker.assigned
            ]
            assert max(inline) <= 48 * 1024

    asyncio.run(run())


def test_what_cannot_run_is_refused_with_a_reason_and_nothing_is_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            a, b = product(4, 4, 4)
            with pytest.raises(InvalidJob):
                await here.submit(await here.spec("matmul", a, b[:3]))
            foreign = await here.upload(BOB, np.ones(10_000, "float32"))
            with pytest.raises(InvalidJob, match="'a'"):
                await here.submit(KernelSpec(operation="relu", inputs={"a": foreign}))
            absent = Tensor(dtype="float32", shape=(10,), data=Blob(digest="0" * 64, key=bytes(32), size_bytes=40))
            with pytest.raises(InvalidJob, match="'a'"):
                await here.submit(KernelSpec(operation="relu", inputs={"a": absent}))
            large = Tensor(dtype="float32", shape=(100_000,), data=bytes(400_000))
            with pytest.raises(TooLarge):
                await here.submit(KernelSpec(operation="relu", inputs={"a": large}))
            assert await here.store.jobs() == []

    asyncio.run(run())


def test_a_job_runs_after_the_jobs_it_waits_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            spec = await here.spec("matmul", *product(4, 4, 4))
            first = await here.submit(spec, wait_s=0.0)
            then = await here.spec("matmul", *product(4, 4, 4), after=(first.id,))
            second = await here.submit(then, wait_s=0.0)
            await here.worker()
            second = await here.ended(second)
            first = await here.ended(first)
            assert second.state is JobState.DONE
            assert second.started_at is not None and first.ended_at is not None
            assert second.started_at >= first.ended_at

    asyncio.run(run())


def test_a_cancelled_job_stops_its_worker_and_stays_cancelled(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            worker.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await worker.until(lambda: bool(worker.assigned))
            cancelled = await here.desk.cancel(ANN, row.id)
            assert cancelled.state is JobState.CANCELLED
            await worker.until(lambda: bool(worker.cancelled))
            await worker.work(worker.assigned)
            await worker.until(lambda: bool(worker.verdicts))
            assert worker.verdicts[0].verdict == "fenced"
            assert (await here.desk.job(ANN, row.id)).state is JobState.CANCELLED
            worker.computes = True
            assert (await here.submit(await here.spec("matmul", *product(4, 4, 4)))).state is JobState.DONE

    asyncio.run(run())


def test_what_is_not_yours_is_not_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)))
            for call in (here.desk.job, here.desk.cancel, here.desk.retry):
                with pytest.raises(NotFound):
                    await call(BOB, row.id)
            assert (await here.desk.job(ADMIN, row.id)).id == row.id
            assert (await here.desk.view(ADMIN, row)).result is None, "the result holds keys: its owner's alone"
            assert (await here.desk.job(ANN, row.id[:14].lower())).id == row.id
            again = await here.ended(await here.desk.retry(ANN, row.id))
            assert again.id != row.id and again.state is JobState.DONE

    asyncio.run(run())


def test_a_plan_is_told_without_keeping_anything(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            plan = await here.desk.plan(ANN, KernelSpec(operation="matmul", size=2048))
            assert plan.flops == 2 * 2048**3 and plan.fitting_workers == 0 and plan.waiting_reason
            await here.worker()
            plan = await here.desk.plan(ANN, KernelSpec(operation="matmul", size=2048))
            assert plan.fitting_workers == 1 and plan.estimate_s is not None and not plan.waiting_reason
            assert await here.store.jobs() == []

    asyncio.run(run())
