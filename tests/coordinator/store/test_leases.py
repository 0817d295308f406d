"""Leases: fenced, renewed, lost, handed back, completed exactly once. Over every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from moregpu.coordinator.store.protocol import ASSIGN_LEASE_S, LEASE_S, MAX_LOSSES, Choice, Lease
from moregpu.jobs import AttemptState, JobState, TaskState
from moregpu.wire.messages import LeaseRef, TaskError
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import Pool

Tell = Callable[..., None]


async def one_lease(pool: Pool, worker: str = "w-1", **fields: object) -> Lease:
    await pool.store.add_job(rows.job(grains=1, **fields))
    (lease,) = await pool.lease(worker)
    return lease


async def again(pool: Pool, worker: str = "w-1") -> Lease:
    (lease,) = await pool.lease(worker)
    return lease


# ---- leasing


def test_a_worker_gets_at_most_its_slots_and_each_grain_goes_out_once(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=5))
        leases = await pool.lease("w-1", 2) + await pool.lease("w-2", 2) + await pool.lease("w-1", 0)
        leases += await pool.lease("w-3", 64)
        assert [lease.task.spec.grains for lease in leases] == [(n, n + 1) for n in range(5)]
        assert len({lease.token for lease in leases}) == 5
        assert all(len(lease.token) == 16 and lease.attempt == 1 for lease in leases)

    tell(story)


def test_higher_priority_and_then_age_decide_inside_one_submitter(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        old = await pool.store.add_job(rows.job(grains=1))
        young = await pool.store.add_job(rows.job(grains=1, at=pool.clock.epoch + 5))
        urgent = await pool.store.add_job(rows.job(grains=1, at=pool.clock.epoch + 9, priority=5))
        order: list[str] = []
        for _ in range(3):
            order += [lease.job.id for lease in await pool.lease(slots=1)]
        assert order == [urgent.id, old.id, young.id]

    tell(story)


def test_the_submitter_served_longest_ago_comes_first(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        for submitter in ("alice", "bob", "carol"):
            await pool.store.add_job(rows.job(submitter=submitter, grains=10))
        served: list[str] = []
        for _ in range(6):
            served += [lease.job.submitter for lease in await pool.lease(slots=1)]
        assert served == ["alice", "bob", "carol"] * 2

    tell(story)


def test_a_choice_that_does_not_fit_the_rows_changes_nothing(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=4))

        def skips(candidates, worker, slots, now):
            row = next(candidates.of("alice")).job
            return [
                Choice(job=row.id, cut=rows.task_spec(row, 0, 1)),
                Choice(job=row.id, cut=rows.task_spec(row, 2, 3)),
            ]

        with pytest.raises(ValueError, match="cursor"):
            await pool.store.lease(rows.worker(), 2, skips, 0.0, 0.0)
        row = await pool.store.job(job.id)
        assert row == job
        assert await pool.store.tasks(job.id) == []
        await pool.store.settle()
        assert [event.type for event in pool.events] == ["job.queued"]
        assert len(await pool.lease()) == 4

    tell(story)


# ---- fencing


def test_only_task_attempt_token_and_worker_together_are_the_lease(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        for wrong in (
            LeaseRef(task="t-OTHER", attempt=1, token=lease.token),
            LeaseRef(task=lease.task.id, attempt=2, token=lease.token),
            LeaseRef(task=lease.task.id, attempt=0, token=lease.token),
            LeaseRef(task=lease.task.id, attempt=-1, token=lease.token),
            LeaseRef(task=lease.task.id, attempt=1, token=bytes(16)),
        ):
            (answer,) = await pool.store.complete(
                "w-1", [replace(rows.accepted(lease), ref=wrong)], rows.batch("w-1", lease), 0.0
            )
            assert answer.verdict == "fenced"
            assert await pool.store.renew("w-1", [wrong], pool.clock.now) == [wrong]
        assert await pool.verdicts("w-2", lease) == ["fenced"]
        assert await pool.store.renew("w-2", [lease.ref], pool.clock.now) == [lease.ref]
        assert await pool.verdicts("w-1", lease) == ["accepted"]

    tell(story)


def test_nobody_speaks_for_another_workers_attempt_whatever_became_of_it(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=3))
        done, wrong, back = await pool.lease("w-1")
        await pool.accept("w-1", done)
        await pool.fail("w-1", wrong)
        await pool.store.release("w-1", [], pool.clock.now, pool.clock.epoch)
        assert await pool.verdicts("w-2", done, wrong, back) == ["fenced"] * 3
        for lease in (done, wrong, back):
            assert await pool.store.renew("w-2", [lease.ref], pool.clock.now) == [lease.ref]
            forged = replace(lease, token=bytes(16))
            assert await pool.verdicts("w-1", forged) == ["fenced"]
        assert await pool.verdicts("w-1", done, wrong, back) == ["accepted", "rejected", "accepted"]

    tell(story)


def test_a_task_that_ends_before_the_restart_is_fenced_or_accepted_as_before(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        await pool.store.settle()
        await pool.restart()
        assert await pool.store.renew("w-1", [lease.ref], pool.clock.now) == []
        assert await pool.verdicts("w-1", lease) == ["accepted"]

    tell(story)


def test_after_a_restart_every_lease_has_its_full_time(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        await pool.store.settle()
        pool.clock.forward(3600)
        await pool.restart()
        assert await pool.store.reap(pool.clock.now + LEASE_S - 1, pool.clock.epoch) == []
        assert await pool.store.reap(pool.clock.now + LEASE_S, pool.clock.epoch) == [lease.ref]

    tell(story)


def test_a_late_result_counts_until_the_task_is_leased_again_and_not_after(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        early, late = await one_lease(pool), await one_lease(pool, submitter="bob")
        pool.clock.forward(ASSIGN_LEASE_S)
        assert len(await pool.store.reap(pool.clock.now, pool.clock.epoch)) == 2
        assert await pool.verdicts("w-1", early) == ["accepted"]
        new = await again(pool, "w-2")
        assert (new.task.id, new.attempt) == (late.task.id, 2)
        assert await pool.verdicts("w-1", late) == ["fenced"]
        assert await pool.verdicts("w-2", new) == ["accepted"]
        (task,) = await pool.store.tasks(new.job.id)
        assert [attempt.state for attempt in task.attempts] == [AttemptState.LOST, AttemptState.ACCEPTED]

    tell(story)


# ---- renewing


def test_an_assignment_that_is_not_confirmed_goes_back_after_ten_seconds_a_confirmed_one_after_sixty(
    tell: Tell,
) -> None:
    async def story(pool: Pool) -> None:
        silent, confirmed = await one_lease(pool, "w-1"), await one_lease(pool, "w-2")
        assert await pool.store.taken("w-2", [confirmed.ref], pool.clock.now) == []
        pool.clock.forward(ASSIGN_LEASE_S - 0.01)
        assert await pool.store.reap(pool.clock.now, pool.clock.epoch) == []
        pool.clock.forward(0.01)
        assert await pool.store.reap(pool.clock.now, pool.clock.epoch) == [silent.ref]
        pool.clock.forward(LEASE_S)
        assert await pool.store.reap(pool.clock.now, pool.clock.epoch) == [confirmed.ref]

    tell(story)


def test_a_long_task_with_heartbeats_runs_once(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        await pool.store.taken("w-1", [lease.ref], pool.clock.now)
        for _ in range(40):
            pool.clock.forward(15)
            assert await pool.store.renew("w-1", [lease.ref], pool.clock.now) == []
            assert await pool.store.reap(pool.clock.now, pool.clock.epoch) == []
        (answer,) = await pool.accept("w-1", lease)
        assert answer.verdict == "accepted"
        assert len((await pool.store.tasks(lease.job.id))[0].attempts) == 1

    tell(story)


def test_a_lag_extends_every_lease(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await one_lease(pool)
        pool.clock.forward(1000)
        await pool.store.extend_all(pool.clock.now)
        assert await pool.store.reap(pool.clock.now + LEASE_S - 1, pool.clock.epoch) == []
        assert len(await pool.store.reap(pool.clock.now + LEASE_S, pool.clock.epoch)) == 1

    tell(story)


def test_a_worker_that_comes_back_before_anyone_leased_its_task_holds_it_again(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        assert await pool.store.release("w-1", [], pool.clock.now, pool.clock.epoch) == [lease.ref]
        assert pool.store.has_ready_work()
        assert await pool.store.renew("w-1", [lease.ref], pool.clock.now) == []
        assert not pool.store.has_ready_work()
        assert await pool.lease("w-2") == []
        await pool.store.settle()
        await pool.restart()
        assert await pool.verdicts("w-1", lease) == ["accepted"]

    tell(story)


def test_an_accepted_lease_that_is_still_listed_as_held_is_not_called_lost(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        await pool.accept("w-1", lease)
        assert await pool.store.renew("w-1", [lease.ref], pool.clock.now) == []

    tell(story)


# ---- going back


def test_a_session_that_ends_gives_back_its_leases_but_those_kept(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=3))
        mine, other = await pool.lease("w-1", 2), await pool.lease("w-2", 1)
        back = await pool.store.release("w-1", [mine[1].ref], pool.clock.now, pool.clock.epoch)
        assert back == [mine[0].ref]
        assert (await again(pool, "w-3")).task.id == mine[0].task.id
        assert await pool.verdicts("w-1", mine[1]) == ["accepted"]
        assert await pool.verdicts("w-2", *other) == ["accepted"]

    tell(story)


def test_a_task_handed_back_is_nobodys_failure_and_its_old_token_is_worth_nothing(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        assert await pool.store.hand_back("w-2", [lease.ref], pool.clock.epoch, untouched=True) == []
        assert await pool.store.hand_back("w-1", [lease.ref], pool.clock.epoch, untouched=True) == [lease.ref]
        assert await pool.store.hand_back("w-1", [lease.ref], pool.clock.epoch, untouched=True) == []
        assert await pool.verdicts("w-1", lease) == ["fenced"]
        task = await pool.store.task(lease.task.id)
        assert task is not None
        assert (task.state, task.failures, task.failed_on) == (TaskState.WAITING, 0, ())

    tell(story)


def test_losses_do_not_count_until_the_twentieth(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=1))
        for loss in range(1, MAX_LOSSES + 1):
            await again(pool, f"w-{loss}")
            await pool.store.release(f"w-{loss}", [], pool.clock.now, pool.clock.epoch)
            row = await pool.store.job(job.id)
            assert row is not None
            assert row.state is (JobState.RUNNING if loss < MAX_LOSSES else JobState.FAILED)
        assert row.error is not None
        assert f"lost {MAX_LOSSES} times" in row.error.detail
        assert not pool.store.has_ready_work()

    tell(story)


# ---- results


def test_a_resend_is_answered_accepted_with_the_same_receipt_even_when_the_job_left_memory(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        (first,) = await pool.accept("w-1", lease)
        (second,) = await pool.accept("w-1", lease)
        assert (second.verdict, second.ledger) == ("accepted", first.ledger)
        await pool.finish(lease.job.id)
        (third,) = await pool.accept("w-1", lease)
        await pool.restart()
        (fourth,) = await pool.accept("w-1", lease)
        assert first.ledger is not None
        assert {first.ledger, third.ledger, fourth.ledger} == {first.ledger}
        assert fourth.job == lease.job.id
        assert len(await pool.store.ledger()) == 1
        row = await pool.store.job(lease.job.id)
        assert row is not None
        assert (row.tasks_done, row.grains_done) == (1, 1)

    tell(story, keep_ended=0)


def test_resends_of_several_jobs_that_left_memory_are_answered_in_one_list(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        leases, receipts = [], []
        for _ in range(3):
            lease = await one_lease(pool)
            receipts += [answer.ledger for answer in await pool.accept("w-1", lease)]
            await pool.finish(lease.job.id)
            leases.append(lease)
        assert pool.store._book.jobs.rows == {}
        busy = [asyncio.ensure_future(pool.store.set_setting("x", str(number))) for number in range(5)]
        assert [answer.ledger for answer in await pool.accept("w-1", *leases)] == receipts
        await asyncio.gather(*busy)

    tell(story, keep_ended=0)


def test_the_same_result_twice_in_one_list_counts_once(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        one, two = await pool.accept("w-1", lease, lease)
        assert one.ledger == two.ledger is not None
        row = await pool.store.job(lease.job.id)
        assert row is not None
        assert row.tasks_done == 1

    tell(story)


def test_a_stale_result_is_refused_alone(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=3))
        leases = await pool.lease()
        await pool.store.hand_back("w-1", [leases[1].ref], pool.clock.epoch, untouched=True)
        assert await pool.verdicts("w-1", *leases) == ["accepted", "fenced", "accepted"]

    tell(story)


@pytest.mark.parametrize("last", ["failed", "voted"])
def test_a_result_that_ends_the_job_ends_it_as_those_before_it_in_the_list_left_it(tell: Tell, last: str) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.add_job(rows.job(grains=4))
        leases = await pool.lease()
        end = rows.failed(leases[2].ref, final=True) if last == "failed" else rows.voted(leases[2], 2, last=True)
        ended = [rows.accepted(leases[0]), rows.accepted(leases[1], 1), end, rows.accepted(leases[3], 3)]
        answers = await pool.store.complete("w-1", ended, rows.batch("w-1", *leases), pool.clock.epoch)
        assert [answer.verdict for answer in answers][:2] == ["accepted", "accepted"]
        assert [answer.ended for answer in answers] == [False, False, True, False]
        assert answers[3].verdict == "fenced"
        assert [event.type for event in pool.events][-3:] == ["task.done", f"task.{last}", "job.failed"]
        for _ in range(2):
            row = await pool.store.job(leases[0].job.id)
            assert row is not None
            assert (row.state, row.grains_done, row.tasks_done) == (JobState.FAILED, 2, 2)
            await pool.restart()

    tell(story)


def test_results_of_several_jobs_in_one_list_count_for_each_of_them(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        for _ in range(2):
            await pool.store.add_job(rows.job(grains=3))
        leases = await pool.lease()
        mixed = [leases[place] for place in (0, 3, 1, 2, 4, 5)]
        answers = await pool.accept("w-1", *mixed)
        assert [answer.ready for answer in answers] == [False, False, False, True, False, True]
        for _ in range(2):
            for id in {lease.job.id for lease in leases}:
                row = await pool.store.job(id)
                assert row is not None
                assert (row.grains_done, row.tasks_done, row.evidence) == (3, 3, {"recomputed": 3})
            await pool.restart()

    tell(story)


def test_the_tasks_of_one_lease_are_numbered_on_in_each_of_its_jobs(tell: Tell) -> None:
    """Also where jobs take turns, and what came back goes among what is cut."""

    async def story(pool: Pool) -> None:
        jobs = [await pool.store.add_job(rows.job(grains=3)) for _ in range(2)]
        (back,) = await pool.lease("w-1", 1)
        await pool.store.hand_back("w-1", [back.ref], pool.clock.epoch, untouched=True)
        turns = [(0, 1), (1, 0), (0, None), (1, 1), (0, 2), (1, 2)]
        picks = [
            Choice(job=jobs[at].id, task=back.task.id)
            if grain is None
            else Choice(job=jobs[at].id, cut=rows.task_spec(jobs[at], grain, grain + 1))
            for at, grain in turns
        ]
        now, wall = pool.clock.now, pool.clock.epoch
        leases = await pool.store.lease(rows.worker("w-1"), 64, lambda *_: picks, now, wall)
        assert [lease.task.number for lease in leases] == [1, 0, 0, 1, 2, 2]
        await pool.store.settle()
        running = [event.id for event in pool.events if event.type == "job.running"]
        assert running == [job.id for job in jobs]
        for _ in range(2):
            for job in jobs:
                row = await pool.store.job(job.id)
                assert row is not None
                assert (row.state, row.cursor, row.tasks_total) == (JobState.RUNNING, 3, 3)
            await pool.restart()

    tell(story)


def test_an_output_is_accepted_only_under_its_workers_signature(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        for batch in (None, rows.batch("w-2", lease)):
            with pytest.raises(ValueError, match="signature"):
                await pool.store.complete("w-1", [rows.accepted(lease)], batch, 0.0)
        assert await pool.verdicts("w-1", lease) == ["accepted"]

    tell(story)


def test_failures_count_on_different_workers_up_to_the_jobs_retries(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=2, retries=3))
        other = (await pool.lease("w-9", 1))[0]
        for number in (1, 2, 3):
            (lease,) = await pool.lease(f"w-{number}")
            assert lease.attempt == number
            (answer,) = await pool.fail(f"w-{number}", lease)
            assert answer.verdict == "rejected"
            assert answer.ended == (number == 3)
        assert answer.out == (("w-9", other.ref),)
        row = await pool.store.job(job.id)
        assert row is not None
        assert row.state is JobState.FAILED
        assert row.error is not None
        assert "failed 3 times, the last time on w-3: engine-error: boom" in row.error.detail
        task = await pool.store.task(lease.task.id)
        assert task is not None
        assert (task.state, task.failed_on) == (TaskState.FAILED, ("w-1", "w-2", "w-3"))
        assert await pool.verdicts("w-9", other) == ["fenced"]
        assert [event.type for event in pool.events[-2:]] == ["task.failed", "job.failed"]

    tell(story)


def test_a_failure_sent_again_is_answered_rejected_and_counts_once(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        for _ in range(3):
            (answer,) = await pool.fail("w-1", lease)
            assert (answer.verdict, answer.detail) == ("rejected", "engine-error: boom")
        task = await pool.store.task(lease.task.id)
        assert task is not None
        assert task.failures == 1
        assert await pool.verdicts("w-1", lease) == ["rejected"]

    tell(story)


def test_what_is_the_submitters_own_fault_ends_the_job_at_the_first_attempt(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool)
        (answer,) = await pool.fail("w-1", lease, final=True)
        assert answer.ended
        row = await pool.store.job(lease.job.id)
        assert row is not None
        assert row.state is JobState.FAILED

    tell(story)


def test_what_is_the_workers_own_trouble_counts_as_a_loss_and_another_worker_tries(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        lease = await one_lease(pool, retries=1)
        error = TaskError(code="unavailable", message="going to sleep", fault="worker")
        (answer,) = await pool.fail("w-1", lease, error=error)
        assert not answer.ended
        task = await pool.store.task(lease.task.id)
        assert task is not None
        assert (task.failures, task.losses, task.failed_on) == (0, 1, ("w-1",))

    tell(story)


def test_a_revoked_worker_gets_nothing_and_nothing_of_it_is_accepted(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        await pool.store.save_worker(rows.worker_row("w-1"))
        lease = await one_lease(pool)
        await pool.store.save_worker(rows.worker_row("w-1", revoked=True))
        assert await pool.verdicts("w-1", lease) == ["fenced"]
        assert await pool.store.renew("w-1", [lease.ref], pool.clock.now) == [lease.ref]
        await pool.store.release("w-1", [], pool.clock.now, pool.clock.epoch)
        assert await pool.lease("w-1") == []
        assert (await again(pool, "w-2")).attempt == 2

    tell(story)


def test_a_workers_row_counts_what_it_did(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        stale = await pool.store.save_worker(rows.worker_row("w-1"))
        await pool.store.add_job(rows.job(grains=3))
        good, bad, _ = await pool.lease()
        await pool.accept("w-1", good)
        await pool.fail("w-1", bad)
        await pool.store.save_worker(replace(stale, paused=True))
        await pool.restart()
        row = await pool.store.worker("w-1")
        assert row is not None
        assert (row.tasks_done, row.tasks_failed, row.busy_s, row.paused) == (1, 1, 0.25, True)

    tell(story)
