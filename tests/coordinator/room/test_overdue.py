"""A worker that keeps a task past its time limit and only says that it has it loses it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from moregpu.coordinator.session import OVERDUE_S
from moregpu.jobs import AttemptState, JobState
from moregpu.wire.messages import Refused, Started
from tests.coordinator.room.pool import ANN, product, room
from tests.coordinator.room.test_agreement import of_owner
from tests.coordinator.room.test_functions import Calls, job
from tests.rogue.workers import ref_of


def test_a_task_with_a_time_limit_is_taken_back_from_who_only_holds_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            keeps = await here.worker()
            keeps.computes = False
            spec = await here.spec("matmul", *product(8, 8, 8), time_limit_s=1.0)
            row = await here.submit(spec, wait_s=0.0)
            await keeps.until(lambda: bool(keeps.assigned))
            lease = ref_of(keeps.assigned[0])
            await keeps.heartbeat([lease])
            await keeps.until(lambda: len(keeps.pulses) > 1)
            here.clock.ahead_s += OVERDUE_S / 2
            await keeps.heartbeat([lease])
            await keeps.until(lambda: len(keeps.pulses) > 2)
            assert lease not in keeps.cancelled, "not yet"
            here.clock.ahead_s += OVERDUE_S
            await keeps.heartbeat([lease])
            await keeps.until(lambda: lease in keeps.cancelled)
            await here.worker(name="honest")
            row = await here.ended(row)
            assert row.state is JobState.DONE
            (task,) = await here.store.tasks(row.id)
            assert task.attempts[0].state is AttemptState.LOST
            assert task.attempts[0].error == "not ended within its time limit"

    asyncio.run(run())


def test_a_call_that_may_run_only_once_is_lost_then_and_not_made_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            keeps = await of_owner(here, "ann", Calls)
            keeps.computes = False
            row = await here.desk.submit(ANN, job(idempotent=False, time_limit_s=1.0), "", 0.0)
            await keeps.until(lambda: bool(keeps.assigned))
            assert keeps.assigned[0].once
            await of_owner(here, "bob", Calls)
            lease = ref_of(keeps.assigned[0])
            await keeps.heartbeat([lease])
            await keeps.until(lambda: len(keeps.pulses) > 1)
            here.clock.ahead_s += 2.0 * OVERDUE_S
            await keeps.heartbeat([lease])
            row = await here.ended(row)
            assert row.state is JobState.FAILED and row.error is not None and row.error.type.endswith("task-lost")

    asyncio.run(run())


def test_no_time_runs_while_the_machines_owner_needs_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=1e9) as here:
            keeps = await of_owner(here, "ann", Calls)
            keeps.computes = False
            row = await here.desk.submit(ANN, job(idempotent=False, time_limit_s=1.0), "", 0.0)
            await keeps.until(lambda: bool(keeps.assigned))
            lease = ref_of(keeps.assigned[0])
            for duty in (0.0, 0.0, 0.0, 1.0, 1.0):
                seen = len(keeps.pulses)
                await keeps.heartbeat([lease], duty=duty)
                await keeps.until(lambda seen=seen: len(keeps.pulses) > seen)
                assert lease not in keeps.cancelled
                here.clock.ahead_s += 2.0 * OVERDUE_S if duty == 0.0 else OVERDUE_S / 3
            here.clock.ahead_s += OVERDUE_S
            await keeps.heartbeat([lease])
            row = await here.ended(row)
            assert row.state is JobState.FAILED

    asyncio.run(run())


def test_what_is_handed_back_after_its_worker_said_that_it_began_is_not_untouched(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            older = await of_owner(here, "ann", Calls)
            older.computes = False
            row = await here.desk.submit(ANN, job(idempotent=False), "", 0.0)
            await older.until(lambda: bool(older.assigned))
            lease = ref_of(older.assigned[0])
            await of_owner(here, "bob", Calls)
            await older.send(Started(leases=[lease]))
            await older.send(Refused(leases=[lease], reason="paused"))
            row = await here.ended(row)
            assert row.state is JobState.FAILED and row.error is not None and row.error.type.endswith("task-lost")

    asyncio.run(run())


def test_a_task_without_one_may_take_as_long_as_it_takes(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            slow = await here.worker()
            slow.computes = False
            row = await here.submit(await here.spec("matmul", *product(8, 8, 8)), wait_s=0.0)
            await slow.until(lambda: bool(slow.assigned))
            for _ in range(5):
                seen = len(slow.pulses)
                await slow.heartbeat([ref_of(slow.assigned[0])])
                await slow.until(lambda seen=seen: len(slow.pulses) > seen)
                here.clock.ahead_s += 45.0
            await slow.work(slow.assigned[:1])
            assert (await here.ended(row)).state is JobState.DONE
            assert len(slow.assigned) == 1

    asyncio.run(run())
