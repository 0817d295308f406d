"""Workers that go silent, lose their link or come back: their leases, and the results they kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import numpy as np

from moregpu.jobs import JobState
from moregpu.wire.messages import Heartbeat, Hello, Taken
from tests.coordinator.room.pool import ANN, product, room
from tests.rogue.workers import HonestWorker, ref_of


def test_the_same_process_coming_back_goes_on_with_its_leases(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=5.0) as here:
            worker = await here.worker()
            worker.computes = False
            other = await here.worker(name="other")
            other.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await here.until(lambda: worker.assigned or other.assigned)
            holder = worker if worker.assigned else other
            await here.hang_up(holder)
            holder.welcome = None
            here.connect(holder)
            await holder.welcomed()
            await holder.heartbeat([ref_of(entry) for entry in holder.assigned])
            await holder.work(holder.assigned)
            row = await here.ended(row)
            tasks = await here.store.tasks(row.id)
            assert [len(task.attempts) for task in tasks] == [1], "it ran once"

    asyncio.run(run())


def test_a_worker_that_died_loses_its_leases_after_the_grace(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=0.05) as here:
            dead = await here.worker(name="dead")
            dead.computes = False
            a, b = product(4, 4, 4)
            row = await here.submit(await here.spec("matmul", a, b), wait_s=0.0)
            await dead.until(lambda: bool(dead.assigned))
            await here.hang_up(dead)
            alive = await here.worker(name="alive")
            row = await here.ended(row)
            np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-5, atol=1e-5)
            assert (await here.desk.view(ANN, row, detail=True)).workers == [alive.id]

    asyncio.run(run())


def test_a_worker_that_says_bye_gives_its_leases_back_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, grace_s=1000.0) as here:
            leaver = await here.worker(name="leaver")
            leaver.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await leaver.until(lambda: bool(leaver.assigned))
            await here.worker(name="stayer")
            await leaver.bye()
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_silent_worker_loses_its_lease_when_it_runs_out_and_its_late_result_is_fenced(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=1e9) as here:
            silent = await here.worker(name="silent")
            silent.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await silent.until(lambda: bool(silent.assigned))
            await here.worker(name="quick")
            here.clock.ahead_s += 11.0  # it never confirmed: the assign lease is 10 s
            row = await here.ended(row)
            await silent.work(silent.assigned)
            await silent.until(lambda: bool(silent.verdicts))
            assert silent.verdicts[0].verdict == "fenced"
            await silent.heartbeat([ref_of(entry) for entry in silent.assigned])
            await silent.until(lambda: any(pulse.lost for pulse in silent.pulses))

    asyncio.run(run())


def test_a_worker_that_says_nothing_for_a_minute_is_let_go(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=1e9) as here:
            worker = await here.worker()
            await worker.until(lambda: bool(worker.pulses))
            await here.until(lambda: not here.desk._hub._stirred)
            here.clock.ahead_s += 61.0
            await here.until(lambda: here.sockets[worker.name].closed == (1001, "silence"))
            await here.until(lambda: not here.desk._hub._links)
            assert not here.desk._hub._stirred

    asyncio.run(run())


def test_a_silence_counts_from_what_was_said_last_though_a_longer_one_was_agreed_on_before(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=1e9, idle_beats=0.001) as here:
            worker = await here.worker()
            await worker.send(Heartbeat(sent=0.0, duty={"cpu": 1.0}, round_trip_s=0.01))
            await worker.until(lambda: len(worker.pulses) == 2 and worker.pulses[-1].idle_s == 120.0)
            await here.until(lambda: not here.desk._hub._stirred)
            here.clock.ahead_s += 70.0
            await worker.send(Taken(leases=[]))
            (link,) = here.desk._hub._links
            await here.until(lambda: link.wakes <= here.clock.monotonic() + 62.0)
            here.clock.ahead_s += 63.0
            await here.until(lambda: here.sockets[worker.name].closed == (1001, "silence"))
            await here.until(lambda: not any(here.desk._hub._asleep.values()))

    asyncio.run(run())


def test_an_idle_worker_that_is_gone_without_a_word_loses_its_lease_within_seconds(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=1e9, idle_beats=0.001) as here:
            gone = await here.worker(name="gone")
            gone.computes = False
            await gone.send(Heartbeat(sent=0.0, duty={"cpu": 1.0}, round_trip_s=0.01))
            await gone.until(lambda: len(gone.pulses) == 2 and gone.pulses[-1].idle_s == 120.0)
            await here.until(lambda: not here.desk._hub._stirred)
            here.clock.ahead_s += 100.0  # as was agreed on: it is there, as far as anybody knows
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await gone.until(lambda: bool(gone.assigned))
            quick = await here.worker(name="quick")
            here.clock.ahead_s += 4.0
            row = await here.ended(row)
            view = await here.desk.view(ANN, row, detail=True)
            assert view.workers == [quick.id]
            assert [attempt.error for attempt in (view.tasks or [])[0].attempts] == ["its worker did not answer", ""]
            await gone.work(gone.assigned)
            await gone.until(lambda: bool(gone.verdicts))
            assert gone.verdicts[0].verdict == "fenced"

    asyncio.run(run())


def test_a_worker_behind_a_tunnel_is_not_told_to_be_silent(tmp_path: Path) -> None:
    class Tunnelled(HonestWorker):
        def hello(self, h: bytes) -> Hello:
            return msgspec.structs.replace(super().hello(h), leaf=bytes(32))

    async def run() -> None:
        async with room(tmp_path, idle_beats=0.001, leaves=(bytes([1] * 32),)) as here:
            for kind, idle_s in ((Tunnelled, 0.0), (HonestWorker, 120.0)):
                worker = await here.worker(kind)
                await worker.send(Heartbeat(sent=0.0, duty={"cpu": 1.0}, round_trip_s=0.01))
                await worker.until(lambda worker=worker: len(worker.pulses) == 2)
                assert worker.pulses[-1].idle_s == idle_s

    asyncio.run(run())


def test_heartbeats_keep_a_long_task_past_every_timeout(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=1e9, silence_s=1e9) as here:
            slow = await here.worker(name="slow")
            slow.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await slow.until(lambda: bool(slow.assigned))
            await here.worker(name="idle")
            for _ in range(5):
                await slow.heartbeat([ref_of(entry) for entry in slow.assigned])
                pulses = len(slow.pulses)
                await slow.until(lambda pulses=pulses: len(slow.pulses) > pulses - 1 and bool(slow.pulses))
                here.clock.ahead_s += 50.0
            await slow.work(slow.assigned)
            row = await here.ended(row)
            assert [len(task.attempts) for task in await here.store.tasks(row.id)] == [1]

    asyncio.run(run())


def test_leases_are_extended_when_the_loop_lagged(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, lag_s=5.0, silence_s=1e9) as here:
            worker = await here.worker()
            worker.computes = False
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.0)
            await worker.until(lambda: bool(worker.assigned))
            here.clock.ahead_s += 30.0  # as if nothing had run for 30 s: more than the assign lease
            await asyncio.sleep(0.2)
            await worker.work(worker.assigned)
            row = await here.ended(row)
            assert [len(task.attempts) for task in await here.store.tasks(row.id)] == [1]
            assert "task.lost" not in [event.type for event in await here.store.events_since(0) or []]

    asyncio.run(run())


def test_a_kept_result_is_accepted_by_a_restarted_coordinator(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            worker.computes = False
            a, b = product(4, 4, 4)
            row = await here.submit(await here.spec("matmul", a, b), wait_s=0.0)
            await worker.until(lambda: bool(worker.assigned))
            await here.store.settle()
            disk, keys = here.store.crash(), here.keys
        async with room(tmp_path, disk, keys) as again:
            again.connect(worker)
            worker.welcome = None
            await worker.welcomed()
            entry = worker.compute(worker.assigned[0])
            await worker.heartbeat([ref_of(entry)])
            await worker.report([entry])
            row = await again.ended(row)
            np.testing.assert_allclose(again.output(row), a @ b, rtol=1e-5, atol=1e-5)
            assert [len(task.attempts) for task in await again.store.tasks(row.id)] == [1]

    asyncio.run(run())


def test_a_resent_result_is_acknowledged_again_with_the_same_receipt(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            await here.submit(await here.spec("matmul", *product(4, 4, 4)))
            await worker.until(lambda: bool(worker.verdicts))
            await worker.report([worker.compute(worker.assigned[0])])
            await worker.until(lambda: len(worker.verdicts) == 2)
            first, second = worker.verdicts
            assert first.verdict == second.verdict == "accepted" and first.ledger == second.ledger

    asyncio.run(run())
