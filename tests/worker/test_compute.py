"""The compute child with the real engine: it survives what tasks, the owner and the system do to it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop
from moregpu_kernels.reference import expect

from moregpu.jobs import size_bytes
from moregpu.wire.messages import TaskError
from moregpu.worker.compute import Compute
from moregpu.worker.frames import Done, Place, RunTask
from moregpu.worker.memory import Region, RegionPool, offsets
from moregpu.workloads.kernel.data import make

DEADLINE_S = 30.0


class Owner:
    """Notes what becomes of tasks."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.shares: list[float] = []
        self.ended: dict[int, Done | TaskError | None] = {}
        self.raw: dict[int, bytes] = {}
        self.changed = asyncio.Event()

    def begun(self, number: int) -> None:
        self.began.append(number)
        self.changed.set()

    def progressed(self, number: int, share: float) -> None:
        self.shares.append(share)
        self.changed.set()

    def done(self, number: int, done: Done, raw: bytes) -> None:
        self.raw[number] = raw
        self._end(number, done)

    def failed(self, number: int, error: TaskError) -> None:
        self._end(number, error)

    def stopped(self, number: int) -> None:
        self._end(number, None)

    def put_aside(self, device: str, reason: str) -> None:
        raise AssertionError(f"{device} was put aside: {reason}")

    def taken_back(self, device: str) -> None:
        raise AssertionError(f"{device} was taken back")

    def _end(self, number: int, answer: Done | TaskError | None) -> None:
        assert number not in self.ended, "a task ends once"
        self.ended[number] = answer
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.changed.clear()
                try:
                    async with asyncio.timeout(0.05):  # the system's view (a process, its state) makes no event
                        await self.changed.wait()
                except TimeoutError:
                    pass

    async def answer(self, number: int) -> Done | TaskError | None:
        await self.until(lambda: number in self.ended)
        return self.ended[number]


def with_compute(story: Callable[[Compute, Owner], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        owner = Owner()
        compute = Compute(owner, device="cpu", cores=1, **settings)
        try:
            await story(compute, owner)
        finally:
            await compute.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as the agent's own process does
        runner.run(run())


def add(number: int, a: np.ndarray, b: np.ndarray) -> tuple[RunTask, bytes]:
    """a + b with the values in the frame."""
    place = Place(dtype="float32", shape=a.shape, start=0, size_bytes=a.nbytes, whole_shape=a.shape)
    second = msgspec.structs.replace(place, start=a.nbytes)
    return task(number, "vector_add", {"a": place, "b": second}, {"out": place}), a.tobytes() + b.tobytes()


def benchmark(number: int, size: int, region: int | None = None, **changes: Any) -> RunTask:
    """A product of `size` × `size` matrices that the task makes itself: as long as a test needs it."""
    shape = (size, size)
    out = Place(dtype="float32", shape=shape, start=0, size_bytes=size_bytes("float32", shape))
    parameters = {"rows": [0, size], "columns": [0, size], "inner": size}
    made = task(number, "matmul", {}, {"out": out}, parameters)
    return msgspec.structs.replace(made, memory=region, **changes)


def task(
    number: int, operation: str, inputs: dict[str, Place], outputs: dict[str, Place], parameters: Any = None
) -> RunTask:
    return RunTask(
        number=number, kind="kernel", program=operation.encode(), parameters=msgspec.msgpack.encode(parameters or {}),
        precision="float32", seed=7, time_limit_s=None, inputs=inputs, outputs=outputs,
    )  # fmt: skip


def long_task(compute: Compute, regions: RegionPool, number: int, size: int = 6000, **changes: Any) -> Region:
    """Give a task of many seconds."""
    region = regions.take(size_bytes("float32", (size, size)))
    compute.give(benchmark(number, size, region.number, **changes), region=region)
    return region


VECTOR = np.arange(1000, dtype=np.float32)


def test_a_tiny_task_comes_back_in_one_frame() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        compute.give(*add(1, VECTOR, VECTOR))
        answer = await owner.answer(1)
        assert isinstance(answer, Done)
        assert np.array_equal(np.frombuffer(owner.raw[1], "<f4"), VECTOR + VECTOR)
        assert owner.began == [1]
        assert compute.driver == f"numpy {np.__version__}"

    with_compute(story)


@pytest.mark.parametrize("size", [0, 1, 3, 257])
def test_small_sizes_pass_through(size: int) -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        values = np.arange(size, dtype=np.float32)
        compute.give(*add(1, values, values))
        assert isinstance(await owner.answer(1), Done)
        assert owner.raw[1] == (values + values).tobytes()

    with_compute(story)


def test_large_values_lie_in_shared_memory_both_ways_and_regions_are_used_again() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        rng = np.random.default_rng(1)
        numbers: set[int] = set()
        for number in (1, 2, 3):
            a, b = rng.standard_normal((2, 300_000), dtype=np.float32)
            starts, size = offsets([a.nbytes, b.nbytes, a.nbytes])
            region = regions.take(size)
            numbers.add(region.number)
            places = [
                Place(dtype="float32", shape=a.shape, start=start, size_bytes=a.nbytes, whole_shape=a.shape)
                for start in starts
            ]
            region.view(starts[0], a.nbytes)[:] = a.tobytes()
            region.view(starts[1], b.nbytes)[:] = b.tobytes()
            made = task(number, "vector_add", {"a": places[0], "b": places[1]}, {"out": places[2]})
            compute.give(msgspec.structs.replace(made, memory=region.number), region=region)
            assert isinstance(await owner.answer(number), Done)
            assert owner.raw[number] == b""
            assert bytes(region.view(starts[2], a.nbytes)) == (a + b).tobytes()
            compute.forget(regions.give(region))
        assert len(numbers) == 1

    with_compute(story)


def test_a_region_beyond_the_limit_is_closed_and_the_child_forgets_it() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool(kept_bytes=0)
        for number in (1, 2):
            region = regions.take(4 << 20)
            compute.give(benchmark(number, 300, region.number), region=region)
            assert isinstance(await owner.answer(number), Done)
            closed = regions.give(region)
            assert closed == [region]
            compute.forget(closed)

    with_compute(story)


def test_what_the_task_got_wrong_and_what_the_engine_cannot_are_told_apart() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        place = Place(dtype="float32", shape=(2,), start=0, size_bytes=8, whole_shape=(2,))
        compute.give(task(1, "nonsense", {"a": place}, {"out": place}), bytes(8))
        wrong = await owner.answer(1)
        assert isinstance(wrong, TaskError)
        assert wrong.fault == "task"
        strange = msgspec.structs.replace(place, dtype="bfloat16", size_bytes=4)
        compute.give(task(2, "relu", {"a": strange}, {"out": place}), bytes(4))
        unable = await owner.answer(2)
        assert isinstance(unable, TaskError)
        assert unable.fault == "engine"
        compute.give(*add(3, VECTOR, VECTOR))
        assert isinstance(await owner.answer(3), Done), "the child goes on"
        assert compute.replaced == 0

    with_compute(story)


def test_a_killed_child_is_replaced_and_only_the_task_it_ran_is_blamed() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        long_task(compute, regions, 1)
        compute.give(*add(2, VECTOR, VECTOR))
        await owner.until(lambda: 1 in owner.began)
        first = compute.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        blamed = await owner.answer(1)
        assert isinstance(blamed, TaskError)
        assert (blamed.code, blamed.fault) == ("engine-error", "engine")
        assert "SIGKILL" in blamed.message
        assert isinstance(await owner.answer(2), Done), "what waited is computed by the next child"
        assert compute.pid != first

    with_compute(story)


def test_a_hung_child_is_replaced() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        long_task(compute, regions, 1)
        compute.give(*add(2, VECTOR, VECTOR))
        await owner.until(lambda: 1 in owner.began)
        first = compute.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        blamed = await owner.answer(1)
        assert isinstance(blamed, TaskError)
        assert blamed.fault == "engine"
        assert "no sign of life" in blamed.message
        assert isinstance(await owner.answer(2), Done)
        assert not alive(first), "a stopped process is killed, not left behind"

    with_compute(story, hang_s=2.5)


def test_a_child_that_is_busy_for_long_is_not_called_hung() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        long_task(compute, regions, 1)
        await owner.until(lambda: len(owner.shares) >= 3)  # three beats: longer than `hang_s`
        assert compute.replaced == 0
        assert owner.shares == sorted(owner.shares)
        compute.stop(1)
        assert await owner.answer(1) is None

    with_compute(story, hang_s=2.0)


def crowd_of(count: int, core: int) -> list[subprocess.Popen[bytes]]:
    """Programs that want this core all the time."""
    made = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    for each in made:
        os.sched_setaffinity(each.pid, {core})
    return made


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not count waits for a core")
def test_a_child_that_gets_no_core_is_not_called_hung() -> None:
    hang_s = 1.5  # one that has cores says something each second

    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        long_task(compute, regions, 1)
        await owner.until(lambda: 1 in owner.began)
        (core, *_) = os.sched_getaffinity(0)
        assert compute.pid is not None
        for thread in Path(f"/proc/{compute.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})
        crowd = crowd_of(8, core)
        try:
            silence: list[float] = []

            def has_been_silent() -> bool:
                child = compute._child  # pyright: ignore[reportPrivateUsage]
                silence.append(time.monotonic() - child.heard_at if child is not None else 0.0)
                return compute.replaced > 0 or max(silence) > 2 * hang_s

            await owner.until(has_been_silent)
        finally:
            for each in crowd:
                each.kill()
                each.wait()
        assert compute.replaced == 0, "others had the core"
        told = len(owner.shares)
        await owner.until(lambda: len(owner.shares) > told)
        compute.stop(1)
        assert await owner.answer(1) is None

    with_compute(story, hang_s=hang_s)


def test_a_stopped_task_ends_at_its_next_pause_point_and_a_queued_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moregpu.worker.compute.STOP_S", DEADLINE_S)  # a slice takes long where others have the cores

    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        long_task(compute, regions, 1)
        compute.give(*add(2, VECTOR, VECTOR))
        compute.give(*add(3, VECTOR, VECTOR))
        await owner.until(lambda: 1 in owner.began)
        compute.stop(2)
        assert await owner.answer(2) is None
        assert 1 not in owner.ended, "the running task goes on"
        compute.stop(1)
        assert await owner.answer(1) is None
        assert isinstance(await owner.answer(3), Done)
        assert compute.replaced == 0, "it was stopped between slices, not killed"

    with_compute(story)


def test_a_pause_loses_nothing_and_computes_nothing() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        region = long_task(compute, regions, 1, size=1500)
        await owner.until(lambda: 1 in owner.began)
        compute.set_duty(0.0)
        assert compute.pid is not None
        await owner.until(lambda: cpu_stands_still(compute.pid))
        assert 1 not in owner.ended
        compute.set_duty(1.0)
        assert isinstance(await owner.answer(1), Done)
        product = np.frombuffer(region.view(0, 1500 * 1500 * 4), "<f4").reshape(1500, 1500)
        # Not another run's bits: slices of another height are other calls of BLAS, which sum in another order.
        a, b = (make(name, ((0, 1500), (0, 1500)), 7, "float32") for name in ("a", "b"))
        assert np.all(expect("matmul", {"a": a, "b": b}, {}, "float32").ratio(product) <= 1.0)
        assert compute.replaced == 0

    with_compute(story)


def test_a_child_that_does_not_pause_by_itself_is_stopped_from_outside_and_goes_on_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moregpu.worker.child_process.PAUSE_S", 0.0)  # as if it had not listened in time

    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        long_task(compute, regions, 1)
        await owner.until(lambda: 1 in owner.began)
        child = compute._child  # pyright: ignore[reportPrivateUsage]
        assert child is not None
        compute.set_duty(0.0)
        assert compute.pid is not None
        await owner.until(lambda: child.frozen and state_of(compute.pid) == "T")
        compute.set_duty(1.0)
        await owner.until(lambda: state_of(compute.pid) != "T")
        compute.stop(1)
        assert await owner.answer(1) is None
        assert compute.replaced == 0

    with_compute(story)


def test_a_time_limit_ends_the_task_as_its_own_fault() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        long_task(compute, regions, 1, time_limit_s=0.2)
        answer = await owner.answer(1)
        assert isinstance(answer, TaskError)
        assert (answer.code, answer.fault) == ("time-limit", "task")

    with_compute(story)


def test_an_idle_engine_leaves_memory_and_comes_back_with_the_next_task() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        compute.give(*add(1, VECTOR, VECTOR))
        await owner.answer(1)
        await owner.until(lambda: compute.pid is None)
        compute.give(*add(2, VECTOR, VECTOR))
        assert isinstance(await owner.answer(2), Done)
        assert compute.replaced == 0

    with_compute(story, unload_s=0.1)


def test_the_child_is_the_nicest_process_and_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOREGPU_TOKEN", "MGPU1-SECRET")

    async def story(compute: Compute, owner: Owner) -> None:
        compute.give(*add(1, VECTOR, VECTOR))
        await owner.answer(1)
        assert compute.pid is not None
        assert os.getpriority(os.PRIO_PROCESS, compute.pid) == 19
        with open(f"/proc/{compute.pid}/environ", "rb") as file:
            environment = file.read()
        assert b"OPENBLAS_NUM_THREADS=1" in environment
        assert b"MGPU1" not in environment

    with_compute(story)


def test_many_tiny_tasks_are_answered_in_order() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        compute.give(*add(1, VECTOR, VECTOR))
        await owner.answer(1)
        began = time.monotonic()
        for number in range(2, 502):
            compute.give(*add(number, VECTOR, VECTOR))
        await owner.answer(501)
        print(f"\n{500 / (time.monotonic() - began):.0f} tiny tasks a second through the child")
        assert list(owner.ended) == list(range(1, 502))

    with_compute(story)


# ---- what the system says ----


def alive(pid: int) -> bool:
    try:
        return state_of(pid) != "Z"
    except FileNotFoundError:
        return False


def state_of(pid: int | None) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


_seen: dict[int | None, int] = {}


def cpu_stands_still(pid: int | None) -> bool:
    """Whether the process used no CPU since the last look (50 ms ago)."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    used = int(fields[11]) + int(fields[12])
    before, _seen[pid] = _seen.get(pid), used
    return before == used


def part(number: int, whole: np.ndarray, region: Region, rows: tuple[int, int], columns: tuple[int, int]) -> RunTask:
    """relu of a part of a matrix that lies whole in a region that is kept open."""
    shape = (rows[1] - rows[0], columns[1] - columns[0])
    there = Place(
        dtype="float32", shape=shape, start=0, size_bytes=whole.nbytes, whole_shape=whole.shape,
        region=(rows, columns), resident=region.number,
    )  # fmt: skip
    out = Place(dtype="float32", shape=shape, start=0, size_bytes=4 * shape[0] * shape[1])
    return task(number, "relu", {"a": there}, {"out": out})


def kept_open(regions: RegionPool, whole: np.ndarray) -> Region:
    region = regions.fresh(whole.nbytes)
    region.view(0, whole.nbytes)[:] = whole.tobytes()
    return region


def test_parts_of_a_tensor_that_is_kept_open_are_read_where_it_lies() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        whole = np.random.default_rng(0).standard_normal((60, 80)).astype("<f4")
        regions = RegionPool()
        region = kept_open(regions, whole)
        for number, (rows, columns) in enumerate([((0, 60), (0, 80)), ((5, 9), (0, 80)), ((5, 60), (70, 71))] * 2):
            compute.give(part(number, whole, region, rows, columns), residents=[region])
            await owner.answer(number)
            right = np.maximum(whole[slice(*rows), slice(*columns)], 0)
            assert np.array_equal(np.frombuffer(owner.raw[number], "<f4").reshape(right.shape), right)

    with_compute(story)


def test_a_region_that_was_closed_is_forgotten_with_all_that_was_read_from_it() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        regions = RegionPool()
        for number in range(3):
            whole = np.full((40, 30), number + 1.0, "<f4")
            region = kept_open(regions, whole)
            compute.give(part(number, whole, region, (0, 40), (3, 5)), residents=[region])
            await owner.answer(number)
            assert np.array_equal(np.frombuffer(owner.raw[number], "<f4"), np.full(80, number + 1.0))
            region.close()
            compute.forget([region])
        assert compute.pid is not None
        maps = Path(f"/proc/{compute.pid}/maps")
        if maps.exists():
            await owner.until(lambda: "moregpu" not in maps.read_text())

    with_compute(story)


def test_the_next_child_finds_what_is_kept_open_too() -> None:
    async def story(compute: Compute, owner: Owner) -> None:
        whole = np.random.default_rng(1).standard_normal((60, 80)).astype("<f4")
        regions = RegionPool()
        region = kept_open(regions, whole)
        compute.give(part(1, whole, region, (0, 60), (0, 80)), residents=[region])
        await owner.answer(1)
        first = compute.pid
        assert first is not None
        long_task(compute, regions, 2)
        await owner.until(lambda: 2 in owner.began)
        compute.give(part(3, whole, region, (0, 2), (0, 80)), residents=[region])
        os.kill(first, signal.SIGKILL)
        assert isinstance(await owner.answer(2), TaskError)
        assert isinstance(await owner.answer(3), Done)
        assert compute.pid != first
        assert np.array_equal(np.frombuffer(owner.raw[3], "<f4"), np.maximum(whole[:2], 0).reshape(-1))

    with_compute(story)
