"""Workers with a GPU beside their CPU, on a real pool: right results, whatever becomes of the GPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from moregpu_kernels.device import probe
from moregpu_kernels.errors import ProbeFailed
from moregpu_kernels.reference import expect

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool
from moregpu.client.signatures import verify_signed

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def gpu_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackPool]:
    """A pool with one worker that offers an adapter (software too) and its CPU."""
    try:
        there = probe()
    except ProbeFailed as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    if not there:
        pytest.skip("missing: a graphics adapter")
    with LoopbackPool(tmp_path_factory.mktemp("devices") / "home") as local:
        local.start_coordinator()
        local.start_worker("gina", "--engine", "gpu", "--hang", "4")
        local.wait_for_workers()
        yield local


@pytest.fixture
def pool(gpu_pool: LoopbackPool) -> Iterator[Pool]:
    with gpu_pool.connect() as connected:
        yield connected


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def devices(pool: Pool) -> list[str]:
    (worker,) = pool.workers()
    return [device.id for device in worker.devices]


def ran_on(handle: JobHandle) -> set[str]:
    return {verify_signed(handle.id, signed).ran.device for signed in handle.statements()}


def child_of(device: str, local: LoopbackPool) -> int | None:
    """The process that computes on a device of the worker."""
    for process in psutil.Process(local.workers["gina"].pid).children(recursive=True):
        try:
            if "moregpu.worker.child" in process.cmdline() and device in process.cmdline():
                return process.pid
        except psutil.Error:
            continue
    return None


def product(pool: Pool, size: int, **options: Any) -> JobHandle:
    a = np.random.default_rng(size).standard_normal((size, size), np.float32)
    handle = pool.kernel("matmul", a, a, **options)
    found = handle.result()
    assert (expect("matmul", {"a": a, "b": a}, {}, "float32").ratio(found) <= 1.0).all()
    return handle


def test_kernels_run_on_the_gpu_and_are_checked_and_signed(pool: Pool) -> None:
    assert devices(pool) == ["gpu0", "cpu"]
    handle = product(pool, 257)
    assert ran_on(handle) == {"gpu0"}
    assert handle.status().checked
    a = np.random.default_rng(1).standard_normal((300, 50), np.float32)
    assert np.allclose(pool.softmax(a).sum(axis=1), 1.0, atol=1e-5)
    assert np.allclose(pool.vector_add(a, a), a + a)


def test_a_job_may_ask_for_either_engine(pool: Pool) -> None:
    assert ran_on(product(pool, 65, engine="cpu")) == {"cpu"}
    assert ran_on(product(pool, 65, engine="gpu")) == {"gpu0"}


def test_a_gpu_that_hangs_is_put_aside_and_the_cpu_goes_on(gpu_pool: LoopbackPool, pool: Pool) -> None:
    product(pool, 64)
    pid = child_of("gpu0", gpu_pool)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    handle = product(pool, 256)
    assert ran_on(handle) == {"cpu"}
    until(lambda: devices(pool) == ["cpu"])
    said = gpu_pool.log("gina")
    assert "gpu0 is put aside" in said and "no sign of life" in said
    # What only a GPU may do waits, and says for what.
    waiting = pool.benchmark("matmul", 64, engine="gpu")
    until(lambda: "no worker here offers a GPU" in waiting.status().waiting_reason)
    waiting.cancel()


def test_started_again_it_is_offered_again(gpu_pool: LoopbackPool, pool: Pool) -> None:
    gpu_pool.kill_worker("gina")
    gpu_pool.start_worker("gina", "--engine", "gpu")
    until(lambda: devices(pool) == ["gpu0", "cpu"])
    gpu_pool.wait_for_workers("gina")
    assert ran_on(product(pool, 64)) == {"gpu0"}
