"""`check="agree"`: two workers of different owners must say the same, and nobody is punished when they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from moregpu.coordinator.store.protocol import JobRow
from moregpu.jobs import AttemptState, JobState
from moregpu.wire.messages import Assignment
from tests.coordinator.room.pool import ANN, Room, product, room
from tests.rogue.workers import HonestWorker, ReturnsScaled


class Random(HonestWorker):
    """Every time another answer: what a job with `random()` in it does."""

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        honest = super().outputs(assignment, arrays)
        return {name: np.random.default_rng().standard_normal(a.shape).astype(a.dtype) for name, a in honest.items()}


class AlsoScaled(ReturnsScaled):
    """Another liar with the same lie."""


async def of_owner(here: Room, owner: str, kind: type[HonestWorker] = HonestWorker, name: str = "") -> HonestWorker:
    """A worker whose machine is somebody's."""
    worker = await here.worker(kind, name or f"{owner}'s")
    row = await here.store.worker(worker.id)
    assert row is not None
    member = here.desk._fleet.get(worker.id)
    assert member is not None
    member.row = await here.store.save_worker(msgspec.structs.replace(row, owner=owner))
    here.desk._fleet.changed(fit=True)
    here.desk._dispatch.wake()
    return worker


async def trust_of(here: Room, worker: HonestWorker) -> Any:
    row = await here.store.worker(worker.id)
    assert row is not None
    return row.trust


async def agreed(here: Room, **fields: Any) -> tuple[JobRow, Any]:
    a, b = product(8, 8, 8)
    row = await here.submit(await here.spec("matmul", a, b, check="agree", **fields), wait_s=0.0)
    return row, a @ b


def test_two_owners_that_say_the_same_make_a_checked_result_that_both_signed(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            workers = [await of_owner(here, "ann"), await of_owner(here, "bob")]
            row, right = await agreed(here)
            row = await here.ended(row)
            assert row.state is JobState.DONE, row.error
            np.testing.assert_allclose(here.output(row), right, rtol=1e-5, atol=1e-5)
            view = await here.desk.view(ANN, row, detail=True)
            assert view.checked and view.evidence == {"agreed": view.tasks_total}
            for task in view.tasks or []:
                assert task.evidence is not None and set(task.evidence.workers) == {worker.id for worker in workers}
                assert [attempt.state for attempt in task.attempts] == [AttemptState.ACCEPTED] * 2
            signers = [entry.worker for entry, _ in await here.store.statements(row.id)]
            assert sorted(signers) == sorted([worker.id for worker in workers] * view.tasks_total)

    asyncio.run(run())


def test_the_partner_is_always_of_another_owner_and_the_job_says_that_it_waits_for_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            first = await of_owner(here, "mallory", ReturnsScaled)
            second = await of_owner(here, "mallory", AlsoScaled, "mallory's second")
            row, right = await agreed(here)
            await here.until(lambda: len(first.verdicts) + len(second.verdicts) >= 1)
            view = await here.desk.view(ANN, await here.desk.job(ANN, row.id))
            assert view.state is JobState.RUNNING
            assert view.waiting_reason == "a result must be made again by a worker of another owner than mallory"
            await of_owner(here, "ann")
            await of_owner(here, "bob")
            row = await here.ended(row)
            np.testing.assert_allclose(here.output(row), right, rtol=1e-5, atol=1e-5)
            (task,) = await here.store.tasks(row.id)
            assert [attempt.state for attempt in task.attempts] == [
                AttemptState.REJECTED,
                AttemptState.ACCEPTED,
                AttemptState.ACCEPTED,
            ]
            lied = first if first.verdicts else second
            trust = await trust_of(here, lied)
            assert trust.suspected == 1 and trust.wrong == 0 and trust.probation_left == 0

    asyncio.run(run())


def test_three_different_answers_end_the_job_as_not_reproducible_and_cost_nobody_anything(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            workers = [await of_owner(here, owner, Random) for owner in ("ann", "bob", "cid", "dan")]
            row, _ = await agreed(here)
            row = await here.ended(row)
            assert row.state is JobState.FAILED and row.error is not None
            assert row.error.type == "about:moregpu/not-reproducible"
            (task,) = await here.store.tasks(row.id)
            assert len(task.attempts) == 3, "the maximum is really the maximum"
            view = await here.desk.view(ANN, row)
            assert view.result is not None
            assert set(view.result.outputs) == {f"out of {attempt.worker}" for attempt in task.attempts}
            for worker in workers:
                trust = await trust_of(here, worker)
                assert (trust.wrong, trust.suspected, trust.probation_left) == (0, 0, 0)
                assert (await here.desk.find_worker(worker.id)).state == "online"

    asyncio.run(run())


def test_a_word_that_was_given_is_kept_over_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            first = await of_owner(here, "ann")
            row, right = await agreed(here)
            await here.until(lambda: bool(first.verdicts))
            assert first.verdicts[0].verdict == "accepted" and first.verdicts[0].ledger is not None
            disk, keys = here.store.crash(), here.keys
        async with room(tmp_path, disk, keys) as again:
            second = await of_owner(again, "bob")
            row = await again.ended(row)
            np.testing.assert_allclose(again.output(row), right, rtol=1e-5, atol=1e-5)
            assert len(second.assigned) == 1

    asyncio.run(run())


def test_a_vote_that_is_sent_twice_counts_once_and_has_one_receipt(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            first = await of_owner(here, "ann")
            row, _ = await agreed(here)
            await here.until(lambda: bool(first.verdicts))
            entry = first.compute(first.assigned[0])
            await first.send(first.result(entry))
            await here.until(lambda: len(first.verdicts) == 2)
            assert first.verdicts[0].ledger == first.verdicts[1].ledger
            (task,) = await here.store.tasks(row.id)
            assert len(task.votes) == 1 and len(await here.store.ledger()) == 1
            assert (await here.desk.job(ANN, row.id)).state is JobState.RUNNING

    asyncio.run(run())
