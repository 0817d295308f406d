"""A new worker is tried before it works, by a canary and by our own clock; its claims count for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from moregpu.blobs.format import sealed_size
from moregpu.coordinator.limits import MAX_MEMORY_CLAIM
from moregpu.coordinator.store.protocol import BlobRow
from moregpu.jobs import JobState
from moregpu.wire.messages import Assignment, Refused, ResultEntry, TaskError
from tests.coordinator.room.pool import ADMIN, ANN, BOB, Room, product, room
from tests.rogue.workers import CPU, HonestWorker, ReturnsScaled, ref_of


async def measured(here: Room, worker: HonestWorker) -> None:
    await here.until(lambda: not here.desk._fleet.get(worker.id).session.on_trial)  # type: ignore[union-attr]


def test_a_new_worker_is_measured_and_then_works(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, measure=True, measure_s=0.02) as here:
            worker = await here.worker()
            await measured(here, worker)
            view = await here.desk.find_worker(worker.id)
            assert {"matmul.float32", "vector_add.float32", "softmax.float32", "gelu.float32"} <= set(view.speeds)
            assert all(speed > 1e6 for speed in view.speeds.values()) and 0 <= view.score <= 100
            assert list(here.blobs.digests()) == [], "a trial's outputs are not kept"
            assert await here.store.jobs() == [] and (await here.store.ledger()) == []
            assert (await here.submit(await here.spec("matmul", *product(4, 4, 4)))).state is JobState.DONE

    asyncio.run(run())


def test_what_a_worker_takes_once_to_load_its_libraries_does_not_make_it_slow(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, measure=True, measure_s=20.0) as here:
            loaded: set[bytes] = set()

            class LoadsAtFirst(HonestWorker):
                def compute(self, assignment: Assignment) -> ResultEntry:
                    if not assignment.inputs and assignment.program not in loaded:
                        loaded.add(assignment.program)
                        here.clock.ahead_s += 5.0
                    return super().compute(assignment)

            worker = await here.worker(LoadsAtFirst)
            await measured(here, worker)
            speeds = (await here.desk.find_worker(worker.id)).speeds
            assert speeds["matmul.float32"] > 2 * 256**3 / 2.0
            assert speeds["vector_add.float32"] > 12 * (1 << 18) / 2.0

    asyncio.run(run())


def test_a_known_worker_is_not_measured_again_unless_its_driver_changed(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, measure=True, measure_s=0.02, grace_s=0.01) as here:
            worker = await here.worker()
            await measured(here, worker)
            seen = len(worker.assigned)
            for driver, again in (("1", False), ("2", True)):
                await here.hang_up(worker)
                worker.welcome, worker.devices = None, [msgspec.structs.replace(CPU, driver=driver)]
                here.connect(worker)
                await worker.welcomed()
                await measured(here, worker)
                assert (len(worker.assigned) > seen) is again
                seen = len(worker.assigned)

    asyncio.run(run())


def test_a_machine_too_small_for_any_measurement_is_not_tried_again_when_it_returns(tmp_path: Path) -> None:
    class Tiny(HonestWorker):
        def compute(self, assignment: Assignment) -> ResultEntry:
            if assignment.inputs:  # a canary
                return super().compute(assignment)
            too_large = TaskError(code="engine-error", message="too large")
            return ResultEntry(
                task=assignment.task, attempt=assignment.attempt, token=assignment.token, error=too_large
            )

    async def run() -> None:
        async with room(tmp_path, measure=True, grace_s=0.01) as here:
            worker = await here.worker(Tiny)
            await measured(here, worker)
            row = await here.store.worker(worker.id)
            assert row is not None and row.tried and not row.speeds
            seen = len(worker.assigned)
            await here.hang_up(worker)
            worker.welcome = None
            here.connect(worker)
            await worker.welcomed()
            await measured(here, worker)
            assert len(worker.assigned) == seen

    asyncio.run(run())


def test_a_machine_that_fails_the_canary_gets_no_work(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path, measure=True) as here:
            broken = await here.worker(ReturnsScaled)
            await measured(here, broken)
            assert (await here.desk.find_worker(broken.id)).state == "paused"
            seen = len(broken.assigned)
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)), wait_s=0.1)
            assert row.state is JobState.QUEUED and len(broken.assigned) == seen
            await here.worker(name="sound")
            assert (await here.ended(row)).state is JobState.DONE

    asyncio.run(run())


def test_a_canary_is_compared_bit_for_bit(tmp_path: Path) -> None:
    class OneBitOff(HonestWorker):
        def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
            honest = super().outputs(assignment, arrays)
            flat = honest["out"].reshape(-1).view("uint32")
            flat[0] ^= 1  # the last bit of one element: within every bound
            return honest

    async def run() -> None:
        async with room(tmp_path, measure=True) as here:
            worker = await here.worker(OneBitOff)
            await measured(here, worker)
            events = [event.type for event in await here.store.events_since(0) or []]
            assert "worker.canary_failed" in events
            assert (await here.desk.find_worker(worker.id)).state == "paused"

    asyncio.run(run())


def test_a_worker_that_hands_its_trial_back_works_at_nominal_speed(tmp_path: Path) -> None:
    class Busy(HonestWorker):
        async def work(self, assignments: list[Assignment]) -> None:
            if len(self.assigned) == 1:
                await self.send(Refused(leases=[ref_of(assignments[0])], reason="in use"))
            else:
                await super().work(assignments)

    async def run() -> None:
        async with room(tmp_path, measure=True) as here:
            worker = await here.worker(Busy)
            await measured(here, worker)
            assert not (await here.desk.find_worker(worker.id)).speeds
            assert (await here.submit(await here.spec("matmul", *product(4, 4, 4)))).state is JobState.DONE

    asyncio.run(run())


def test_absurd_claims_are_capped_and_speed_is_never_claimed(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = HonestWorker(here.keys, here.blobs, "boaster", invite=await here.invite())
            worker.devices = [msgspec.structs.replace(CPU, memory_bytes=(1 << 53) - 1, cores=10**9)]
            here.connect(worker)
            await worker.welcomed()
            view = await here.desk.find_worker("boaster")
            assert view.devices[0].memory_bytes == MAX_MEMORY_CLAIM and view.devices[0].cores <= 4096
            assert view.speeds == {}

    asyncio.run(run())


# ---- what a blob token may do --------------------------------------------------------------------------------------


def test_a_blob_token_reads_what_its_leases_name_and_writes_what_they_plan_while_it_lives(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            worker.computes = False
            token = (await worker.welcomed()).blob_token
            a, b = product(100, 100, 100)
            spec = await here.spec("matmul", a, b)
            digest = spec.inputs["a"].data.digest  # type: ignore[union-attr]
            assert await here.desk.blob_right(token, digest) is not None
            right = (await here.desk.blob_right(token, digest))[1]  # type: ignore[index]
            assert not right.read and right.write_bytes == 0, "it holds no lease"
            row = await here.submit(spec, wait_s=0.0)
            await worker.until(lambda: bool(worker.assigned))
            who, right = await here.desk.blob_right(token, digest)  # type: ignore[misc]
            planned = worker.assigned[0].outputs["out"].shape
            assert who == worker.id and right.read
            assert right.write_bytes == sealed_size(4 * planned[0] * planned[1])
            assert not (await here.desk.blob_right(token, "0" * 64))[1].read  # type: ignore[index]
            assert await here.desk.blob_right("mgw_other", digest) is None
            await here.desk.cancel(ANN, row.id)
            await worker.until(lambda: bool(worker.cancelled))
            assert not (await here.desk.blob_right(token, digest))[1].read  # type: ignore[index]
            await here.hang_up(worker)
            await here.until(lambda: here.desk._fleet.get(worker.id) is None)
            assert await here.desk.blob_right(token, digest) is None

    asyncio.run(run())


def test_what_a_worker_uploads_and_no_result_names_uses_up_what_its_leases_allow(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await here.worker()
            worker.computes = False
            token = (await worker.welcomed()).blob_token
            a, b = product(100, 100, 100)

            async def left() -> int | None:
                return (await here.desk.blob_right(token, ""))[1].left_bytes  # type: ignore[index]

            assert await left() == 0, "it holds no lease"
            row = await here.submit(await here.spec("matmul", a, b), wait_s=0.0)
            await worker.until(lambda: bool(worker.assigned))
            right = (await here.desk.blob_right(token, ""))[1]  # type: ignore[index]
            whole = await left()
            assert whole is not None and whole >= right.write_bytes > 0
            for number in range(3):
                uploaded = BlobRow(
                    digest=f"{number:064x}", sealed_bytes=right.write_bytes, principal=worker.id, created_at=0.0
                )
                await here.store.add_blob(uploaded)
                assert await left() == whole - (number + 1) * right.write_bytes
            await here.store.drop_blobs([f"{2:064x}"])
            assert await left() == whole - 2 * right.write_bytes
            await here.hang_up(worker)
            again = await here.worker(keys=worker.keys)
            token = (await again.welcomed()).blob_token
            await here.desk.cancel(ANN, row.id)
            await here.until(lambda: not here.desk._fleet.get(again.id).session.held)  # type: ignore[union-attr]
            assert await left() == -2 * right.write_bytes, "another connection does not begin anew"

    asyncio.run(run())


# ---- events --------------------------------------------------------------------------------------------------------


def test_events_come_as_a_snapshot_then_deltas_and_only_those_that_one_may_see(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            seen: dict[str, list[Any]] = {"ann": [], "bob": [], "admin": []}

            async def watch(who: Any, name: str) -> None:
                async for event in here.desk.events.subscribe(who, None):
                    seen[name].append(event)

            watchers = [
                asyncio.create_task(watch(who, name)) for who, name in ((ANN, "ann"), (BOB, "bob"), (ADMIN, "admin"))
            ]
            await here.until(lambda: all(events and events[0].type == "snapshot" for events in seen.values()))
            await here.worker()
            row = await here.submit(await here.spec("matmul", *product(4, 4, 4)))
            for name in ("ann", "admin"):
                await here.until(lambda name=name: "job.done" in [e.type for e in seen[name] if e.id == row.id])
                sequences = [event.seq for event in seen[name] if event.seq is not None]
                assert sequences == sorted(sequences)
            await here.until(lambda: any(event.type == "pool.stats" for event in seen["bob"]))
            assert not any(event.id == row.id for event in seen["bob"])
            after = next(event.seq for event in seen["ann"] if event.type == "job.queued")
            resumed = here.desk.events.subscribe(ANN, after)
            first = await anext(resumed)  # type: ignore[arg-type]
            assert first.seq is not None and after is not None and first.seq > after
            await here.desk.stop()
            await asyncio.gather(*watchers)

    asyncio.run(run())
