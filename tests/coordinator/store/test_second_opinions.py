"""Second leases, votes, usage and trust: the store's part of them, over both stores and restarts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moregpu.coordinator.store.protocol import Trust
from moregpu.jobs import AttemptState, Evidence, JobState, TaskState
from moregpu.workloads.kernel.spec import KernelSpec
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import Pool

Tell = Callable[..., None]


def test_a_task_that_is_out_may_be_leased_to_one_other_worker(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=1))
        (first,) = await pool.lease("w-1")
        assert await pool.lease_again("w-1", first.task.id) is None
        second = await pool.lease_again("w-2", first.task.id)
        assert second is not None and second.attempt == 2 and second.token != first.token
        assert await pool.lease_again("w-3", first.task.id) is None
        for worker, lease in (("w-1", first), ("w-2", second)):
            assert await pool.store.renew(worker, [lease.ref], pool.clock.now) == []
        (won,) = await pool.accept("w-2", second)
        assert won.verdict == "accepted" and won.out == (("w-1", first.ref),)
        assert await pool.verdicts("w-1", first) == ["fenced"]
        assert await pool.store.renew("w-1", [first.ref], pool.clock.now) == [first.ref]
        assert await pool.lease_again("w-3", first.task.id) is None

    tell(story)


@pytest.mark.parametrize("gone", [0, 1])
def test_where_one_of_two_leases_runs_out_the_other_goes_on(tell: Tell, gone: int) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=1))
        (first,) = await pool.lease("w-1")
        second = await pool.lease_again("w-2", first.task.id)
        assert second is not None
        leases = [("w-1", first), ("w-2", second)]
        worker, kept = leases[1 - gone]
        await pool.store.taken(worker, [kept.ref], pool.clock.now)
        pool.clock.forward(11.0)
        assert await pool.store.reap(pool.clock.now, pool.clock.epoch) == [leases[gone][1].ref]
        task = await pool.store.task(first.task.id)
        assert task is not None and (task.state, task.worker, task.losses) == (TaskState.LEASED, worker, 0)
        assert await pool.verdicts(worker, kept) == ["accepted"]

    tell(story)


def test_both_leases_outlive_a_restart_and_get_their_full_time(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=1))
        (first,) = await pool.lease("w-1")
        second = await pool.lease_again("w-2", first.task.id)
        assert second is not None
        await pool.restart()
        pool.clock.forward(59.0)
        assert await pool.store.reap(pool.clock.now, pool.clock.epoch) == []
        pool.clock.forward(2.0)
        assert set(await pool.store.reap(pool.clock.now, pool.clock.epoch)) == {first.ref, second.ref}
        task = await pool.store.task(first.task.id)
        assert task is not None and task.state is TaskState.WAITING and task.losses == 1

    tell(story)


def test_jobs_that_are_nearly_done_with_nothing_left_to_hand_out_are_in_their_tail(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=8))
        leases = await pool.lease("w-1", slots=8)
        await pool.accept("w-1", *leases[:5])
        assert pool.store.tails() == []
        await pool.accept("w-1", leases[5])
        assert pool.store.tails() == [job.id]
        await pool.store.hand_back("w-1", [leases[6].ref], pool.clock.epoch, untouched=True)
        assert pool.store.tails() == []
        (again,) = await pool.lease("w-2")
        assert pool.store.tails() == [job.id]
        await pool.accept("w-2", again)
        await pool.accept("w-1", leases[7])
        assert pool.store.tails() == []

    tell(story)


def test_a_vote_is_durable_has_its_own_receipt_and_waits_for_another(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=1, spec=KernelSpec(operation="relu", check="agree")))
        (first,) = await pool.lease("w-1")
        (kept,) = await pool.vote("w-1", first)
        assert kept.verdict == "accepted" and not kept.ready
        await pool.restart()
        assert [answer.ledger for answer in await pool.vote("w-1", first)] == [kept.ledger]
        (second,) = await pool.lease("w-2")
        agreed = Evidence(kind="agreed", workers=("w-1", "w-2"))
        (done,) = await pool.accept("w-2", second, evidence=agreed)
        assert done.ready
        task = await pool.store.task(first.task.id)
        assert task is not None and [each.state for each in task.attempts] == [AttemptState.ACCEPTED] * 2
        assert [answer.ledger for answer in await pool.vote("w-1", first)] == [kept.ledger]
        job = await pool.finish(first.job.id)
        assert job.evidence == {"agreed": 1}
        assert [row.worker for row, _ in await pool.store.statements(job.id)] == ["w-1", "w-2"]

    tell(story)


def test_the_last_vote_without_a_match_ends_the_job_with_every_output_attached(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=1, spec=KernelSpec(operation="relu", check="agree")))
        for worker in ("w-1", "w-2"):
            await pool.vote(worker, *await pool.lease(worker))
        (answer,) = await pool.vote("w-3", *await pool.lease("w-3"), last=True)
        assert answer.ended
        ended = await pool.store.job(job.id)
        assert ended is not None and ended.state is JobState.FAILED
        assert ended.error is not None and ended.error.type == "about:moregpu/not-reproducible"
        assert ended.result is not None and list(ended.result.outputs) == ["c of w-1", "c of w-2", "c of w-3"]

    tell(story)


def test_usage_and_trust_are_kept_over_a_restart_and_a_quarantined_worker_gets_nothing(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.save_worker(rows.worker_row("w-1"))
        await pool.store.add_job(rows.job(grains=3, retries=9))
        for number in range(2):
            await pool.fail("w-1", *await pool.lease("w-1", slots=1), proven_wrong=True, seconds=2.0)
            row = await pool.store.worker("w-1")
            assert row is not None and row.trust.quarantined == (number == 1)
        await pool.restart()
        row = await pool.store.worker("w-1")
        assert row is not None and row.trust.wrong == 2 and row.trust.quarantined
        assert pool.store._book.registry.usage.rows["alice"].seconds == 4.0
        assert await pool.lease("w-1") == []
        assert len(await pool.lease("w-2", slots=1)) == 1
        await pool.store.save_worker(rows.worker_row("w-1", trust=Trust()))
        row = await pool.store.worker("w-1")
        assert row is not None and row.trust.quarantined, "an older reading takes nothing back"

    tell(story)


def test_a_workers_uploads_are_loose_until_a_job_names_them(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        first, second = rows.blob(1), rows.blob(2)
        for blob in (first, second):
            await pool.store.add_blob(rows.blob_row(blob, principal="w-1"))
        assert [row.digest for row in pool.store.loose_blobs("w-1")] == [first.digest, second.digest], "oldest first"
        assert pool.store.loose_blobs("w-2") == []
        await pool.store.add_job(rows.job(grains=1, inputs=(first,)))
        assert [row.digest for row in pool.store.loose_blobs("w-1")] == [second.digest]
        await pool.store.drop_blobs([first.digest, second.digest])
        assert pool.store.loose_blobs("w-1") == []

    tell(story)


def test_what_a_job_has_named_is_never_loose_again_nor_is_what_an_earlier_coordinator_left(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        named, left = rows.blob(1), rows.blob(2)
        await pool.store.add_blob(rows.blob_row(named, principal="w-1"))
        job = await pool.store.add_job(rows.job(grains=1, inputs=(named,)))
        await pool.store.cancel(job.id, 1.0)
        await pool.store.purge(job.id)
        assert not await pool.store.blob_readable(named.digest, "alice")
        assert pool.store.loose_blobs("w-1") == []
        await pool.store.add_blob(rows.blob_row(left, principal="w-1"))
        assert pool.store.loose_blobs("w-1")
        await pool.restart()
        assert pool.store.loose_blobs("w-1") == []

    tell(story)


def test_jobs_and_bytes_of_a_submitter_are_counted(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        blob = rows.blob(1)
        await pool.store.add_blob(rows.blob_row(blob, principal="alice"))
        await pool.store.add_blob(rows.blob_row(rows.blob(2), principal="bob"))
        job = await pool.store.add_job(rows.job(grains=1, inputs=(blob, rows.blob(2))))
        assert pool.store.jobs_alive("alice") == 1
        assert pool.store.bytes_of("alice") == 2 * rows.blob_row(blob).sealed_bytes
        assert pool.store.bytes_of("bob") == rows.blob_row(blob).sealed_bytes
        await pool.store.cancel(job.id, pool.clock.epoch)
        assert pool.store.jobs_alive("alice") == 0

    tell(story)
