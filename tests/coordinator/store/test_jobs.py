"""Jobs: kept, found, ordered, waited for, ended, forgotten. Over every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from moregpu.coordinator.store.protocol import JobRow
from moregpu.coordinator.store.references import NO_KEY
from moregpu.errors import Conflict, InvalidJob, NotFound
from moregpu.jobs import Blob, JobState, Tensor
from moregpu.wire.api import Event, Problem
from moregpu.workloads.kernel.spec import KernelSpec
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import Pool

Tell = Callable[..., None]
PROBLEM = Problem(type="about:moregpu/job-failed", title="failed", status=200, detail="no combine")


def test_a_job_is_kept_and_given_back_as_it_was(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = rows.job(inputs=(rows.blob(1),), key="k1")
        assert await pool.store.add_job(job) == job
        await pool.restart()
        assert await pool.store.job(job.id) == job
        assert await pool.store.job("j-NONE") is None

    tell(story)


def test_the_same_idempotency_key_gives_back_the_earlier_job_even_after_it_ended_and_left_memory(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        first = rows.job(key="same")
        await pool.store.add_job(first)
        assert (await pool.store.add_job(rows.job(key="same"))).id == first.id
        assert (await pool.store.add_job(rows.job(key="same", submitter="bob"))).id != first.id
        assert (await pool.store.add_job(rows.job(key=""))).id != (await pool.store.add_job(rows.job(key=""))).id
        await pool.store.cancel(first.id, pool.clock.epoch)
        again = await pool.store.add_job(rows.job(key="same"))
        assert (again.id, again.state) == (first.id, JobState.CANCELLED)

    tell(story, keep_ended=0)


def test_two_submits_that_race_under_one_key_make_one_job(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        added = await asyncio.gather(*(pool.store.add_job(rows.job(key="k")) for _ in range(8)))
        assert len({job.id for job in added}) == 1
        assert len(await pool.store.jobs()) == 1

    tell(story)


def test_jobs_are_listed_newest_first_in_pages_whether_in_memory_or_not(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        added = [await pool.run(rows.job(grains=1)) for _ in range(5)]
        added += [await pool.store.add_job(rows.job()) for _ in range(3)]
        newest = [job.id for job in reversed(added)]
        first = await pool.store.jobs(limit=3)
        second = await pool.store.jobs(limit=3, before=first[-1].id)
        third = await pool.store.jobs(limit=3, before=second[-1].id)
        assert [job.id for job in first + second + third] == newest
        done = await pool.store.jobs(states=[JobState.DONE])
        assert [job.id for job in done] == newest[3:]
        assert len(await pool.store.jobs(states=[JobState.QUEUED], submitter="alice")) == 3
        assert await pool.store.jobs(submitter="bob") == []
        assert await pool.store.jobs(kind="function") == []

    tell(story, keep_ended=2)


def test_a_prefix_finds_jobs(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        ended = await pool.run(rows.job(grains=1))
        alive = await pool.store.add_job(rows.job())
        assert await pool.store.find_jobs(ended.id[:-2]) == [ended.id]
        assert await pool.store.find_jobs("j-") == sorted([ended.id, alive.id])
        assert await pool.store.find_jobs("j-Z") == []
        for _ in range(12):
            await pool.store.add_job(rows.job())
        assert len(await pool.store.find_jobs("j-")) == 10
        bobs = await pool.store.add_job(rows.job(submitter="bob"))
        bobs_ended = await pool.store.add_job(rows.job(submitter="bob"))
        await pool.store.cancel(bobs_ended.id, pool.clock.epoch)
        assert await pool.store.find_jobs("j-", "bob") == sorted([bobs.id, bobs_ended.id])
        assert await pool.store.find_jobs("j-", "nobody") == []

    tell(story, keep_ended=0)


def test_whoever_is_told_of_an_end_finds_the_job_in_memory(tell: Tell) -> None:
    """Also where it ended while the commit before was on its way, at whose landing ended jobs are let go."""

    async def story(pool: Pool) -> None:
        seen: list[JobState | None] = []

        def told(events: list[Event]) -> None:
            for event in events:
                if event.type == "job.cancelled":
                    row = pool.store.job_in_memory(event.id)
                    seen.append(None if row is None else row.state)

        async def end(job: JobRow, turns: int) -> None:
            for _ in range(turns):  # the first commit is on its way by then
                await asyncio.sleep(0)
            await pool.store.cancel(job.id, pool.clock.epoch)

        pool.store.subscribe(told)
        first, second = [await pool.store.add_job(rows.job()) for _ in range(2)]
        await asyncio.gather(end(first, 0), end(second, 2))
        assert seen == [JobState.CANCELLED, JobState.CANCELLED]
        assert pool.store.job_in_memory(first.id) is pool.store.job_in_memory(second.id) is None

    tell(story, keep_ended=0)


def test_the_whole_road_of_a_job(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=3))
        assert pool.store.has_ready_work()
        leases = await pool.lease()
        assert not pool.store.has_ready_work()
        running = await pool.store.job(job.id)
        assert running is not None
        assert (running.state, running.cursor, running.tasks_total) == (JobState.RUNNING, 3, 3)
        answers = await pool.accept("w-1", *leases, failed_calls=2)
        assert [(each.verdict, each.ready) for each in answers] == [
            ("accepted", False), ("accepted", False), ("accepted", True),
        ]  # fmt: skip
        assert await pool.store.ready_jobs() == [job.id]
        done = await pool.finish(job.id)
        assert (done.state, done.grains_done, done.tasks_done) == (JobState.DONE, 3, 3)
        assert done.evidence == {"recomputed": 3}
        assert done.failed_calls == 6
        assert done.checking_s == pytest.approx(0.03)
        assert done.combining_s == 0.5
        assert await pool.store.ready_jobs() == []
        await pool.restart()
        assert await pool.store.job(job.id) == done
        assert [task.evidence is not None for task in await pool.store.tasks(job.id)] == [True] * 3

    tell(story)


def test_a_job_whose_one_output_is_its_result_is_done_in_the_same_transaction(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=1), told=False)
        (lease,) = await pool.lease()
        (answer,) = await pool.accept("w-1", lease, result=rows.manifest())
        assert (answer.verdict, answer.ready, answer.ended) == ("accepted", False, True)
        row = await pool.store.job(job.id)
        assert row is not None
        assert row.state is JobState.DONE
        assert row.result == rows.manifest()
        assert [event.type for event in pool.events] == [
            "job.queued", "job.running", "task.leased", "task.done", "job.done",
        ]  # fmt: skip

    tell(story)


def test_a_result_that_comes_before_the_other_grains_does_not_end_the_job(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=2))
        leases = await pool.lease()
        (answer,) = await pool.accept("w-1", leases[0], result=rows.manifest())
        assert (answer.ready, answer.ended) == (False, False)
        row = await pool.store.job(job.id)
        assert row is not None
        assert row.state is JobState.RUNNING

    tell(story)


def test_ready_jobs_survive_a_restart_to_be_combined(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=2))
        await pool.accept("w-1", *await pool.lease())
        await pool.restart()
        assert await pool.store.ready_jobs() == [job.id]

    tell(story)


def test_a_job_that_ended_never_leaves_its_end_state(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        done = await pool.run(rows.job(grains=1))
        assert await pool.store.cancel(done.id, pool.clock.epoch) == []
        assert await pool.finish(done.id, result=None, error=PROBLEM) == done
        cancelled = await pool.store.add_job(rows.job())
        await pool.store.cancel(cancelled.id, pool.clock.epoch)
        assert (await pool.finish(cancelled.id, result=None, error=PROBLEM)).state is JobState.CANCELLED
        with pytest.raises(NotFound):
            await pool.finish("j-NONE")
        with pytest.raises(NotFound):
            await pool.store.cancel("j-NONE", pool.clock.epoch)

    tell(story, keep_ended=0)


def test_a_job_cannot_be_done_before_every_grain_is_accepted(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=2))
        leases = await pool.lease()
        await pool.accept("w-1", leases[0])
        with pytest.raises(ValueError, match="1 of 2 grains"):
            await pool.finish(job.id)
        row = await pool.store.job(job.id)
        assert row is not None
        assert row.state is JobState.RUNNING
        assert await pool.verdicts("w-1", leases[1]) == ["accepted"]

    tell(story)


def test_a_job_that_cannot_be_combined_fails_with_the_error(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=1))
        await pool.accept("w-1", *await pool.lease())
        failed = await pool.finish(job.id, result=None, error=PROBLEM)
        assert (failed.state, failed.error, failed.result) == (JobState.FAILED, PROBLEM, None)
        assert await pool.store.ready_jobs() == []

    tell(story)


def test_cancelling_names_the_leases_that_are_out_and_fences_them(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        job = await pool.store.add_job(rows.job(grains=3))
        one, two = (await pool.lease("w-1", 1))[0], (await pool.lease("w-2", 1))[0]
        out = await pool.store.cancel(job.id, pool.clock.epoch)
        assert sorted(out, key=lambda pair: pair[0]) == [("w-1", one.ref), ("w-2", two.ref)]
        assert await pool.verdicts("w-1", one) == ["fenced"]
        assert await pool.store.renew("w-2", [two.ref], pool.clock.now) == [two.ref]
        assert not pool.store.has_ready_work()
        assert await pool.lease("w-3") == []
        assert await pool.store.cancel(job.id, pool.clock.epoch) == []

    tell(story)


# ---- dependencies


def test_a_job_waits_until_those_it_comes_after_are_done(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        first = await pool.store.add_job(rows.job(grains=1))
        second = await pool.store.add_job(rows.job(grains=1, after=(first.id,)))
        third = await pool.store.add_job(rows.job(grains=1, after=(first.id, second.id)))
        assert pool.store.blocked_by(third) == [first.id, second.id]
        assert [lease.job.id for lease in await pool.lease()] == [first.id]
        await _finish_all(pool, first.id)
        await pool.restart()
        assert [lease.job.id for lease in await pool.lease()] == [second.id]
        await _finish_all(pool, second.id)
        assert pool.store.blocked_by(third) == []
        assert [lease.job.id for lease in await pool.lease()] == [third.id]

    async def _finish_all(pool: Pool, job: str) -> None:
        tasks = await pool.store.tasks(job)
        leases = [rows.lease_of(await pool.store.job(job), task) for task in tasks]
        await pool.accept("w-1", *leases)
        await pool.finish(job)

    tell(story, keep_ended=0)


def test_a_job_fails_when_one_it_comes_after_does_not_become_done(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        first = await pool.store.add_job(rows.job())
        second = await pool.store.add_job(rows.job(after=(first.id,)))
        third = await pool.store.add_job(rows.job(after=(second.id,)))
        await pool.store.cancel(first.id, pool.clock.epoch)
        for id, words in ((second.id, "was cancelled"), (third.id, "failed")):
            row = await pool.store.job(id)
            assert row is not None
            assert row.state is JobState.FAILED
            assert row.error is not None
            assert words in row.error.detail
        late = await pool.store.add_job(rows.job(after=(first.id,)))
        assert late.state is JobState.FAILED

    tell(story, keep_ended=0)


def test_a_job_after_one_that_is_done_already_is_ready_at_once(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        first = await pool.run(rows.job(grains=1))
        second = await pool.store.add_job(rows.job(grains=1, after=(first.id,)))
        assert [lease.job.id for lease in await pool.lease()] == [second.id]

    tell(story, keep_ended=0)


def test_a_job_can_only_come_after_jobs_of_its_own_submitter(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        other = await pool.store.add_job(rows.job(submitter="bob"))
        for id in (other.id, "j-NONE"):
            with pytest.raises(InvalidJob, match="no job"):
                await pool.store.add_job(rows.job(after=(id,)))
        assert len(await pool.store.jobs(submitter="alice")) == 0

    tell(story)


# ---- forgetting


def test_purging_forgets_outputs_and_keys_and_keeps_the_record(tell: Tell) -> None:
    async def story(pool: Pool) -> None:
        inline = Tensor(dtype="float32", shape=(1,), data=b"\1\2\3\4")
        spec = KernelSpec(
            operation="saxpy", inputs={"a": Tensor(dtype="float32", shape=(250,), data=rows.blob(1)), "b": inline}
        )
        job = await pool.store.add_job(rows.job(grains=1, spec=spec))
        with pytest.raises(Conflict):
            await pool.store.purge(job.id)
        (lease,) = await pool.lease()
        await pool.accept("w-1", lease)
        await pool.finish(job.id, result=rows.manifest(rows.blob(2)))
        before = await pool.store.statements(job.id)
        purged = await pool.store.purge(job.id)
        await pool.restart()
        row = await pool.store.job(job.id)
        assert row == purged
        assert row is not None
        assert (row.purged, row.result, row.digest_key) == (True, None, b"")
        kept = row.spec.inputs["a"].data
        assert isinstance(kept, Blob)
        assert kept == replace(rows.blob(1), key=NO_KEY)
        assert row.spec.inputs["b"].data == b""
        (task,) = await pool.store.tasks(job.id)
        assert task.outputs == {}
        assert row.evidence == {"recomputed": 1}
        assert await pool.store.statements(job.id) == before
        assert await pool.store.purge(job.id) == row

    tell(story, keep_ended=0)
