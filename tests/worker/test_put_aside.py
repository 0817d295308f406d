"""A GPU that does not open, hangs or crashes is put aside; what it had in hand fails, and fails once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import uvloop
from moregpu_kernels.device import probe
from moregpu_kernels.errors import ProbeFailed

from moregpu.wire.messages import TaskError
from moregpu.worker.compute import Compute
from moregpu.worker.frames import Done
from tests.worker.test_compute import VECTOR, Owner, add

FAR_S = 60.0
"""Longer than building a pipeline takes on two busy cores."""


@pytest.fixture(scope="module")
def adapter() -> str:
    try:
        there = probe()
    except ProbeFailed as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    if not there:
        pytest.skip("missing: a graphics adapter")
    return there[0].key


class Watching(Owner):
    def __init__(self) -> None:
        super().__init__()
        self.aside: list[tuple[str, str]] = []
        self.ended_before = 0

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


def give(compute: Compute, *numbers: int) -> None:
    for number in numbers:
        compute.give(*add(number, VECTOR, VECTOR))


async def right(owner: Watching, number: int) -> None:
    assert isinstance(await owner.answer(number), Done)
    assert np.array_equal(np.frombuffer(owner.raw[number], np.float32), VECTOR + VECTOR)


def test_a_gpu_computes_and_says_with_what(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        give(compute, 1, 2)
        await right(owner, 1)
        await right(owner, 2)
        assert compute.driver and not compute.driver.startswith("numpy")

    on_gpu(adapter, story)


def test_an_adapter_that_is_gone_is_put_aside_at_once() -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        give(compute, 1, 2)
        await owner.until(lambda: len(owner.ended) == 2)
        (aside,) = owner.aside
        assert aside[0] == "gpu0" and "no-such-card" in aside[1]
        assert all(isinstance(answer, TaskError) and answer.fault == "engine" for answer in owner.ended.values())
        assert compute.pid is None and compute.aside
        give(compute, 3)
        assert "put aside" in str(owner.ended[3])
        compute.warm_up()
        assert compute.pid is None

    on_gpu("vulkan:no-such-card", story)


def test_a_driver_that_hangs_is_put_aside(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        give(compute, 1)
        await right(owner, 1)
        assert compute.pid is not None
        os.kill(compute.pid, signal.SIGSTOP)
        give(compute, 2, 3)
        await owner.until(lambda: len(owner.aside) == 1)
        assert "no sign of life" in owner.aside[0][1]
        assert isinstance(owner.ended[2], TaskError) and isinstance(owner.ended[3], TaskError)
        assert owner.ended_before == 1  # it is said before anything fails

    on_gpu(adapter, story, hang_s=1.0)


def test_a_gpu_that_crashed_once_goes_on_and_one_that_crashes_again_is_put_aside(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        give(compute, 1)
        await right(owner, 1)
        for number in (2, 3):
            await owner.until(lambda: compute.pid is not None)
            assert compute.pid is not None
            os.kill(compute.pid, signal.SIGSTOP)  # so that it cannot finish first
            give(compute, number)
            os.kill(compute.pid, signal.SIGKILL)
            error = await owner.answer(number)
            assert isinstance(error, TaskError) and "SIGKILL" in error.message
            if number == 2:
                assert not owner.aside
                compute.warm_up()
        assert len(owner.aside) == 1 and "SIGKILL" in owner.aside[0][1]

    on_gpu(adapter, story)


def test_a_task_that_was_stopped_is_not_blamed(adapter: str) -> None:
    async def story(compute: Compute, owner: Watching) -> None:
        give(compute, 1)
        await right(owner, 1)
        assert compute.pid is not None
        os.kill(compute.pid, signal.SIGSTOP)
        give(compute, 2, 3)
        compute.stop(3)
        await owner.until(lambda: len(owner.ended) == 3)
        assert owner.ended[3] is None

    on_gpu(adapter, story, hang_s=0.5)
