"""Results that are not what they should be, and results when something else goes wrong."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu.blobs.format import seal
from moregpu.coordinator.store import memory as memory_store
from moregpu.errors import OutOfSpace
from moregpu.jobs import Blob, JobState, Tensor
from moregpu.wire.messages import Assignment, ResultEntry
from moregpu.wire.statement import batch_message, digest
from tests.coordinator.room.pool import ANN, Room, product, room
from tests.rogue.workers import HonestWorker


async def holding(here: Room, *, size: int = 8, retries: int = 4) -> tuple[HonestWorker, Assignment, Any, Any]:
    """A worker that holds one task and does nothing with it yet."""
    worker = await here.worker()
    worker.computes = False
    a, b = product(size, size, size)
    row = await here.submit(await here.spec("matmul", a, b, retries=retries), wait_s=0.0)
    await worker.until(lambda: bool(worker.assigned))
    return worker, worker.assigned[0], row, a @ b


async def verdict(worker: HonestWorker, entry: ResultEntry, signature: bytes | None = None) -> str:
    seen = len(worker.verdicts)
    await worker.send(worker.result(entry, signature))
    await worker.until(lambda: len(worker.verdicts) > seen)
    return worker.verdicts[seen].verdict


def changed(entry: ResultEntry, **fields: Any) -> ResultEntry:
    return msgspec.structs.replace(entry, **fields)


# ---- row 4 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["task", "attempt", "token"])
def test_a_result_for_another_task_attempt_or_token_is_fenced_and_the_job_unaffected(
    tmp_path: Path, field: str
) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker, assignment, row, right = await holding(here)
            entry = worker.compute(assignment)
            wrong = {"task": "t-" + "0" * 26, "attempt": 2, "token": os.urandom(16)}[field]
            assert await verdict(worker, changed(entry, **{field: wrong})) == "fenced"
            assert await verdict(worker, entry) == "accepted"
            row = await here.ended(row)
            np.testing.assert_allclose(here.output(row), right, rtol=1e-5, atol=1e-5)

    asyncio.run(run())


def test_a_result_for_a_lease_of_another_worker_is_fenced(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            owner, assignment, row, _ = await holding(here)
            thief = await here.worker(name="thief")
            assert await verdict(thief, thief.compute(assignment)) == "fenced"
            assert await verdict(owner, owner.compute(assignment)) == "accepted"
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_statement_about_other_inputs_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker, assignment, row, _ = await holding(here, retries=1)
            other = Tensor(dtype="float32", shape=(8, 8), data=np.ones((8, 8), "float32").tobytes())
            lie = worker.compute(msgspec.structs.replace(assignment, inputs={**assignment.inputs, "a": other}))
            assert await verdict(worker, lie) == "rejected"
            assert (await here.ended(row)).state is JobState.FAILED

    asyncio.run(run())


@pytest.mark.parametrize("signature", ["none", "stranger", "other batch"])
def test_a_result_without_its_workers_signature_over_it_is_refused(tmp_path: Path, signature: str) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker, assignment, row, _ = await holding(here, retries=1)
            entry = worker.compute(assignment)
            stranger = HonestWorker(here.keys, here.blobs)
            message = batch_message(here.keys.pool_id, worker.id, [digest(entry.statement)])
            bad = {
                "none": bytes(64),
                "stranger": stranger.keys.sign(message),
                "other batch": worker.keys.sign(batch_message(here.keys.pool_id, worker.id, [digest(b"other")])),
            }[signature]
            assert await verdict(worker, entry, bad) == "rejected"
            row = await here.ended(row)
            assert row.state is JobState.FAILED and "unsigned" in (row.error.detail if row.error else "")
            assert await here.store.statements(row.id) == []

    asyncio.run(run())


# ---- row 8 and 43: shapes, types, blobs that are not what they say -------------------------------------------------


@pytest.mark.parametrize("lie", ["dtype", "shape", "short", "missing", "extra", "region"])
def test_outputs_that_were_not_planned_are_refused(tmp_path: Path, lie: str) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker, assignment, row, _ = await holding(here, retries=1)
            entry = worker.compute(assignment)
            out = entry.outputs["out"]
            assert isinstance(out.data, bytes)
            outputs = {
                "dtype": {"out": msgspec.structs.replace(out, dtype="int32")},
                "shape": {"out": msgspec.structs.replace(out, shape=(64,))},
                "short": {"out": msgspec.structs.replace(out, data=out.data[:-4])},
                "missing": {},
                "extra": {"out": out, "more": out},
                "region": {"out": msgspec.structs.replace(out, region=((0, 8), (0, 8)))},
            }[lie]
            assert await verdict(worker, changed(entry, outputs=outputs)) == "rejected"
            assert (await here.ended(row)).state is JobState.FAILED

    asyncio.run(run())


@pytest.mark.parametrize("lie", ["absent", "other key", "cut", "other size"])
def test_an_output_blob_that_is_not_what_its_name_says_is_refused(tmp_path: Path, lie: str) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker, assignment, row, _ = await holding(here, size=200, retries=1)
            entry = worker.compute(assignment)
            out = entry.outputs["out"]
            blob = out.data
            assert isinstance(blob, Blob)
            if lie == "absent":
                here.blobs.delete(blob.digest)
            elif lie == "other key":
                blob = msgspec.structs.replace(blob, key=os.urandom(32))
            elif lie == "cut":
                path = here.blobs.path(blob.digest)
                path.write_bytes(path.read_bytes()[:-1])
            else:
                blob = msgspec.structs.replace(blob, size_bytes=blob.size_bytes - 4)
            lying = changed(entry, outputs={"out": msgspec.structs.replace(out, data=blob)})
            assert await verdict(worker, lying) == "rejected"
            assert (await here.ended(row)).state is JobState.FAILED

    asyncio.run(run())


def test_a_refused_result_deletes_only_what_its_own_worker_uploaded_and_no_job_names(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            honest, assignment, row, right = await holding(here, size=200)
            entry = honest.compute(assignment)
            for name, length in honest.uploads:
                await honest.record(name, length)  # type: ignore[misc]
            stolen = entry.outputs["out"].data
            assert isinstance(stolen, Blob)
            thief = await here.worker(name="thief")
            thief.computes = False
            await here.submit(await here.spec("matmul", *product(200, 200, 200, seed=2), retries=1), wait_s=0.0)
            await thief.until(lambda: bool(thief.assigned))
            theirs = thief.compute(thief.assigned[0])
            # Uploaded by somebody else, and named by nobody yet.
            assert await verdict(thief, changed(theirs, outputs=entry.outputs)) == "rejected"
            assert here.blobs.size(stolen.digest) is not None
            assert await verdict(honest, entry) == "accepted"
            np.testing.assert_allclose(here.output(await here.ended(row)), right, rtol=1e-4, atol=1e-4)

    asyncio.run(run())


def test_not_a_number_where_a_number_belongs_is_never_checked(tmp_path: Path) -> None:
    class Nan(HonestWorker):
        def outputs(self, assignment: Assignment, arrays: Any) -> dict[str, Any]:
            honest = super().outputs(assignment, arrays)
            honest["out"].reshape(-1)[-1] = np.nan
            return honest

    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker(Nan)
            row = await here.ended(await here.submit(await here.spec("matmul", *product(9, 9, 9), retries=1)))
            assert row.state is JobState.FAILED and not (await here.desk.view(ANN, row)).checked

    asyncio.run(run())


@pytest.mark.parametrize("check", ["spot", "agree"])
def test_what_was_accepted_and_comes_again_as_nonsense_is_answered_as_before(tmp_path: Path, check: Any) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            worker.computes = False
            spec = await here.spec("matmul", *product(8, 8, 8), check=check)
            row = await here.submit(spec, wait_s=0.0)
            await worker.until(lambda: bool(worker.assigned))
            entry = worker.compute(worker.assigned[0])
            assert await verdict(worker, entry) == "accepted"
            nonsense = changed(entry, statement=b"nonsense")
            assert await verdict(worker, nonsense) == "accepted"
            assert len(await here.store.statements(row.id)) == 1

    asyncio.run(run())


# ---- row 42 ----------------------------------------------------------------------------------------------------------


def test_two_attempts_seal_under_two_keys(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker, assignment, _, _ = await holding(here, size=200)
            first, second = worker.compute(assignment).outputs["out"], worker.compute(assignment).outputs["out"]
            assert isinstance(first.data, Blob) and isinstance(second.data, Blob)
            assert first.data.key != second.data.key and first.data.digest != second.data.digest

    asyncio.run(run())


# ---- engines that fail, inputs that vanish -------------------------------------------------------------------------


def test_a_task_that_fails_on_one_worker_is_done_by_another(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            broken, assignment, row, right = await holding(here)
            from moregpu.wire.messages import TaskError

            error = TaskError(code="engine-error", message="device lost")
            entry = ResultEntry(task=assignment.task, attempt=assignment.attempt, token=assignment.token, error=error)
            good = await here.worker(name="good")
            assert await verdict(broken, entry) == "rejected"
            row = await here.ended(row)
            np.testing.assert_allclose(here.output(row), right, rtol=1e-5, atol=1e-5)
            view = await here.desk.view(ANN, row, detail=True)
            assert view.workers == [good.id] and view.tasks is not None
            assert "device lost" in view.tasks[0].attempts[0].error

    asyncio.run(run())


def test_a_worker_cannot_end_a_job_by_blaming_its_submitter(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liar, assignment, row, _ = await holding(here)
            from moregpu.wire.messages import TaskError

            error = TaskError(code="task-error", message="your data", fault="task")
            await here.worker(name="good")
            entry = ResultEntry(task=assignment.task, attempt=assignment.attempt, token=assignment.token, error=error)
            assert await verdict(liar, entry) == "rejected"
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_job_whose_input_vanished_fails_and_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            a = np.ones((100, 100), "float32")
            spec = await here.spec("relu", a.reshape(-1))
            worker = await here.worker()
            worker.computes = False
            row = await here.submit(spec, wait_s=0.0)
            await worker.until(lambda: bool(worker.assigned))
            entries = [worker.compute(assignment) for assignment in worker.assigned]
            blob = spec.inputs["a"].data
            assert isinstance(blob, Blob)
            here.blobs.delete(blob.digest)
            await worker.report(entries)
            row = await here.ended(row)
            assert row.state is JobState.FAILED and row.error is not None and "input" in row.error.detail

    asyncio.run(run())


# ---- rows 16 and 24: the disk is full, the coordinator dies ------------------------------------------------------


def test_a_result_that_cannot_be_kept_is_not_acknowledged_and_accepted_when_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker, assignment, row, right = await holding(here)
            entry = worker.compute(assignment)
            await here.store.settle()
            here.store.disk.full = True
            await worker.report([entry])
            await here.until(lambda: "results could not be kept" in caplog.text)
            assert worker.verdicts == []
            here.store.disk.full = False
            assert await verdict(worker, entry) == "accepted"
            np.testing.assert_allclose(here.output(await here.ended(row)), right, rtol=1e-5, atol=1e-5)

    asyncio.run(run())


@pytest.mark.parametrize("wait_s", [0.0, 5.0])
def test_a_job_that_cannot_be_kept_is_refused_and_nobody_waits_for_it(tmp_path: Path, wait_s: float) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            here.store.disk.full = True
            spec = await here.spec("matmul", *product(4, 4, 4))
            with pytest.raises(OutOfSpace):
                await here.submit(spec, wait_s=wait_s)
            here.store.disk.full = False
            assert await here.store.jobs() == []
            await here.worker()
            assert (await here.submit(spec)).state is JobState.DONE

    asyncio.run(run())


def test_on_a_full_disk_nobody_is_given_the_same_work_again_and_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            worker.computes = False
            await worker.heartbeat([], duty=0.0)
            await here.until(lambda: here.desk._fleet.get(worker.id).session.resting)
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await here.store.settle()
            here.store.disk.full = True
            await worker.heartbeat([])
            await here.until(lambda: worker.cancelled)
            for _ in range(300):
                here.desk._dispatch.wake()
                await asyncio.sleep(0.001)
            assert len(worker.assigned) <= 10, "about one attempt a second, not one a commit"
            here.store.disk.full = False
            worker.computes = True
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_coordinator_killed_between_the_last_result_and_the_combining_finishes_the_job(tmp_path: Path) -> None:
    async def run() -> None:
        a, b = product(500, 200, 400)
        async with room(tmp_path) as here:
            here.desk._finisher.finish = never  # type: ignore[method-assign]
            await here.worker()
            await here.worker(name="second")
            row = await here.submit(await here.spec("matmul", a, b), wait_s=0.0)
            async with asyncio.timeout(20.0):
                while row.id not in await here.store.ready_jobs():  # noqa: ASYNC110 — a store has no such event
                    await asyncio.sleep(0.01)
            await here.store.settle()
            disk, keys = here.store.crash(), here.keys
        async with room(tmp_path, disk, keys) as again:
            row = await again.ended(row)
            np.testing.assert_allclose(again.output(row), a @ b, rtol=1e-4, atol=1e-4)
            assert (await again.desk.view(ANN, row)).checked

    asyncio.run(run())


async def never(job: str) -> None:
    """The kill comes before this."""


def test_a_waiting_submitter_is_told_nothing_before_it_is_durable(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            here.store._auto_commit = False
            waiting = asyncio.create_task(here.submit(await here.spec("matmul", *product(4, 4, 4))))
            await here.until(lambda: any(job.state is JobState.DONE for job in here.store._book.jobs.rows.values()))
            (job,) = await here.store.jobs()
            late = asyncio.create_task(here.desk.wait(job.id, 5.0))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done() and not late.done() and here.store.disk.job(job.id) is None
            here.store.commit()
            assert (await waiting).state is (await late).state is JobState.DONE
            here.store._auto_commit = True

    asyncio.run(run())


def test_a_tiny_job_costs_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store, "COMMIT_WITHIN_S", 10.0)  # a busy machine takes longer than that for the job

    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            spec = await here.spec("matmul", *product(4, 4, 4))
            await here.submit(spec)
            await here.store.settle()
            commits = 0
            apply = here.store.disk.apply

            def counted(*args: Any) -> None:
                nonlocal commits
                commits += 1
                apply(*args)

            here.store.disk.apply = counted  # type: ignore[method-assign]
            assert (await here.submit(spec)).state is JobState.DONE
            assert commits == 1

    asyncio.run(run())


def test_parts_of_a_result_that_no_one_refers_to_are_collected_but_the_result_stays(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            await here.worker()
            a, b = product(700, 300, 500)
            row = await here.submit(await here.spec("matmul", a, b))
            assert row.result is not None
            blob = row.result.outputs["out"].data
            assert isinstance(blob, Blob) and here.blobs.size(blob.digest) == len(seal(bytes(700 * 500 * 4))[1])

    asyncio.run(run())
