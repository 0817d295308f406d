"""A GPU that does not open, hangs or crashes is put aside; what it had in hand fails, and fails once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from moregpu.wire.messages import Hello, TaskError
from moregpu.wire.statement import read_ran_and_outputs
from moregpu.worker.compute import MAX_AGAIN_S, Compute, Patience
from moregpu.worker.frames import Done
from tests.drivers import any_adapter
from tests.worker.scripted import Coordinator, Machine, tell, tiny
from tests.worker.test_compute import VECTOR, Owner, add

FAR_S = 60.0
"""Longer than building a pipeline takes on two busy cores."""


@pytest.fixture(scope="module")
def adapter() -> str:
    return any_adapter()


class Watching(Owner):
    def __init__(self) -> None:
        super().__init__()
        self.aside: list[tuple[str, str]] = []
        self.back: list[str] = []
        self.ended_before = 0

    def taken_back(self, device: str) -> None:
        self.back.append(device)
        self.changed.set()

    def put_aside(self, device: str, reason: str) -> None:
        self.aside.append((device, reason))
        self.ended_before = len(self.ended)
        self.changed.set()


def on_gpu(adapter: str, story: Callable[[Compute, Watching], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        owner = Watching()
        compute = Compute(
            owner, device="gpu0", cores=1, memory_bytes=1 << 28, adapter=adapter, **{"hang_s": FAR_S, **settings}
        )
        try:
            await story(compute, owner)
        finally:
            await compute.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def hand(compute: Compute, *numbers: int) -> None:
    for number in numbers:
        compute.give(*add(number, VECTOR, VECTOR))


async def right(owner: Watching, number: int) -> None:
    assert isinstance(await owner.answer(number), Done)
    assert np.array_equal(np.frombuffer(owner.raw[number], np.float32), VECTOR + VECTOR)


@pytest.mark.slow
def test_a_gpu_computes_and_says_with_what(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        hand(compute, 1, 2)
        await right(owner, 1)
        await right(owner, 2)
        assert compute.driver and not compute.driver.startswith("numpy")

    on_gpu(adapter, story)


def test_an_adapter_that_is_gone_is_put_aside_at_once() -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        hand(compute, 1, 2)
        await owner.until(lambda: len(owner.ended) == 2)
        (aside,) = owner.aside
        assert aside[0] == "gpu0" and "no-such-card" in aside[1]
        assert all(isinstance(answer, TaskError) and answer.fault == "engine" for answer in owner.ended.values())
        assert compute.pid is None and compute.aside
        hand(compute, 3)
        assert "put aside" in str(owner.ended[3])
        compute.warm_up()
        assert compute.pid is None

    on_gpu("vulkan:no-such-card", story)


@pytest.mark.slow
def test_a_gpu_is_tried_once_and_its_process_does_not_stay(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        compute.try_out()
        assert compute.pid is not None
        await owner.until(lambda: compute.pid is None)
        assert compute.driver and not compute.aside and not compute.replaced
        compute.try_out()
        assert compute.pid is None, "it is known to open"
        hand(compute, 1)
        await right(owner, 1)
        assert compute.pid is not None, "what has computed stays for what comes next"

    on_gpu(adapter, story)


@pytest.mark.slow
def test_a_task_that_comes_while_a_gpu_is_tried_is_computed_by_the_same_process(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        compute.try_out()
        first = compute.pid
        hand(compute, 1)
        await right(owner, 1)
        assert compute.pid == first

    on_gpu(adapter, story)


def test_a_gpu_that_does_not_open_is_found_before_it_has_a_task() -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        compute.try_out()
        await owner.until(lambda: bool(owner.aside))
        assert owner.aside[0][0] == "gpu0" and "no-such-card" in owner.aside[0][1]
        assert owner.ended == {} and compute.pid is None

    on_gpu("vulkan:no-such-card", story)


@pytest.mark.slow
def test_a_driver_that_hangs_is_put_aside(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        hand(compute, 1)
        await right(owner, 1)
        assert compute.pid is not None
        os.kill(compute.pid, signal.SIGSTOP)
        hand(compute, 2, 3)
        await owner.until(lambda: len(owner.aside) == 1)
        assert "no sign of life" in owner.aside[0][1]
        assert isinstance(owner.ended[2], TaskError) and isinstance(owner.ended[3], TaskError)
        assert owner.ended_before == 1  # it is said before anything fails

    on_gpu(adapter, story, hang_s=1.0)


@pytest.mark.slow
def test_a_gpu_that_crashed_once_goes_on_and_one_that_crashes_again_is_put_aside(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        hand(compute, 1)
        await right(owner, 1)
        for number in (2, 3):
            await owner.until(lambda: compute.pid is not None)
            assert compute.pid is not None
            os.kill(compute.pid, signal.SIGSTOP)  # so that it cannot finish first
            hand(compute, number)
            os.kill(compute.pid, signal.SIGKILL)
            error = await owner.answer(number)
            assert isinstance(error, TaskError) and "SIGKILL" in error.message
            if number == 2:
                assert not owner.aside
                compute.warm_up()
        assert len(owner.aside) == 1 and "SIGKILL" in owner.aside[0][1]

    on_gpu(adapter, story)


@pytest.mark.slow
def test_a_task_that_was_stopped_is_not_blamed(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        hand(compute, 1)
        await right(owner, 1)
        assert compute.pid is not None
        os.kill(compute.pid, signal.SIGSTOP)
        hand(compute, 2, 3)
        compute.stop(3)
        await owner.until(lambda: len(owner.ended) == 3)
        assert owner.ended[3] is None

    on_gpu(adapter, story, hang_s=0.5)


@pytest.mark.slow
def test_an_adapter_that_comes_back_is_found_and_computes_again(
    adapter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "none"))  # as while a driver is being updated

    async def story(compute: Compute, owner: Watching) -> None:
        hand(compute, 1)
        await owner.until(lambda: len(owner.ended) == 1)
        await owner.until(lambda: compute.pid is not None)
        await owner.until(lambda: compute.pid is None)
        assert len(owner.aside) == 1 and compute.aside, "it is tried in silence, and stays aside"
        monkeypatch.delenv("VK_DRIVER_FILES")
        await owner.until(lambda: bool(owner.back))
        assert owner.back == ["gpu0"] and not compute.aside
        hand(compute, 2)
        await right(owner, 2)

    on_gpu(adapter, story, again_s=0.3)


@pytest.mark.slow
def test_a_driver_that_crashes_every_task_costs_one_task_a_try(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        hand(compute, 1)
        await right(owner, 1)
        for number in (2, 3, 4):
            await owner.until(lambda: compute.pid is not None and not compute.aside)
            assert compute.pid is not None
            os.kill(compute.pid, signal.SIGSTOP)
            hand(compute, number)
            os.kill(compute.pid, signal.SIGKILL)
            assert isinstance(await owner.answer(number), TaskError)
            compute.warm_up()
        assert len(owner.aside) == 2, "two crashes put it aside; after it was taken back, one does"
        assert owner.back == ["gpu0"]

    on_gpu(adapter, story, again_s=0.2)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30), st.floats(0.1, 100.0))
def test_the_wait_doubles_until_a_device_has_lasted_longer_than_it_was_waited_for(
    lasted: list[float], first_s: float
) -> None:
    patience, now = Patience(first_s), 0.0
    before = patience.put_aside(now)
    assert before == first_s
    for lasted_s in lasted:
        now += before
        patience.taken_back(now)
        back_at = now
        now += lasted_s
        wait_s = patience.put_aside(now)
        assert wait_s == (first_s if now - back_at > before else min(2.0 * before, MAX_AGAIN_S))
        before = wait_s


def test_a_device_that_does_not_even_open_is_waited_for_longer_each_time_but_never_more_than_an_hour() -> None:
    patience = Patience(60.0)
    assert [patience.put_aside(0.0) for _ in range(8)] == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]


@pytest.mark.slow
def test_the_pool_learns_that_a_device_is_put_aside_and_that_it_is_back(
    adapter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOREGPU_SOFTWARE_GPU", "1")

    def offered(coordinator: Coordinator) -> list[str]:
        hellos = coordinator.all(Hello)
        return [device.id for device in hellos[-1].devices]

    async def story(coordinator: Coordinator, machine: Machine) -> None:
        agent = machine.agent
        assert agent is not None and offered(coordinator) == ["gpu0", "cpu"]
        gpu = agent._computes["gpu0"]  # pyright: ignore[reportPrivateUsage]
        await coordinator.until(lambda: bool(gpu.driver) and gpu.pid is None)  # it was tried, and does not stay
        for _ in range(2):
            gpu.warm_up()
            await coordinator.until(lambda: gpu.pid is not None)
            assert gpu.pid is not None
            os.kill(gpu.pid, signal.SIGKILL)
            await coordinator.until(lambda: gpu.pid is None)
        await coordinator.until(lambda: offered(coordinator) == ["cpu"])
        assert "gpu0 is put aside" in agent.status().line
        await coordinator.until(lambda: offered(coordinator) == ["gpu0", "cpu"])
        await coordinator.online(3)
        assert "put aside" not in agent.status().line
        await coordinator.assign(msgspec.structs.replace(tiny(1), device="gpu0"))
        entry = await coordinator.result()
        assert read_ran_and_outputs(entry.statement)[1].device == "gpu0"

    tell(tmp_path, story, device=adapter, again_s=3.0)
