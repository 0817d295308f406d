"""Workers with a GPU beside their CPU, on a real pool: right results, whatever becomes of the GPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from moregpu_kernels.reference import expect

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.job import JobHandle
from moregpu.client.pool import Pool
from moregpu.client.signatures import verify_signed
from moregpu.errors import JobFailed
from tests.drivers import any_adapter, swiftshader
from tests.road.test_custom import SOURCE

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def gpu_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackPool]:
    """A pool with one worker that offers an adapter (software too) and its CPU."""
    any_adapter()
    with LoopbackPool(tmp_path_factory.mktemp("devices") / "home") as local:
        local.start_coordinator()
        local.start_worker("gina", "--engine", "gpu", "--hang", "4")
        local.wait_for_workers()
        yield local


@pytest.fixture
def pool(gpu_pool: LoopbackPool) -> Iterator[Pool]:
    with gpu_pool.connect() as connected:
        yield connected


def drivers() -> str:
    """Driver files of two software adapters: Mesa's, and SwiftShader beside a browser."""
    mesa = next(iter(sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))), None)
    if mesa is None:
        pytest.skip("missing: llvmpipe; mend: apt-get install mesa-vulkan-drivers")
    return f"{mesa}:{swiftshader()}"


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


def test_a_formula_runs_on_the_gpu(pool: Pool) -> None:
    x, y = (
        np.random.default_rng(seed).standard_normal(shape, np.float32) for seed, shape in ((2, (65, 30)), (3, (30,)))
    )
    handle = pool.formula_job("exp(-x*x) * sin(y)", x=x, y=y)
    assert np.allclose(handle.result(), np.exp(-x * x) * np.sin(y), atol=1e-6)
    assert ran_on(handle) == {"gpu0"}


def test_a_registered_kernel_runs_as_wgsl_on_the_gpu(pool: Pool) -> None:
    pool.add_kernel(SOURCE)
    a = np.random.default_rng(3).standard_normal(5000, np.float32)
    handle = pool.custom_job("leaky_relu", a=a, slope=0.1)
    assert np.allclose(handle.result(), np.where(a > 0, a, np.float32(0.1) * a), atol=1e-7)
    assert ran_on(handle) == {"gpu0"}


def test_wgsl_that_does_not_compile_ends_the_job_with_the_line(pool: Pool) -> None:
    pool.add_kernel(SOURCE.replace("leaky_relu", "broken").replace("is_nan(x)", "is_nam(x)"))
    handle = pool.custom_job("broken", a=np.ones(4, np.float32), slope=0.1, options={"engine": "gpu", "retries": 0})
    with pytest.raises(JobFailed, match="is_nam"):
        handle.result()


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


@pytest.mark.slow
def test_two_gpus_share_the_work_and_one_goes_on_where_the_other_hangs(tmp_path: Path) -> None:
    with LoopbackPool(tmp_path / "home", {"VK_DRIVER_FILES": drivers(), "MOREGPU_SOFTWARE_GPU": "1"}) as local:
        local.start_coordinator()
        local.start_worker("gina", "--hang", "4")
        local.wait_for_workers()
        with local.connect() as pool:
            assert devices(pool) == ["gpu0", "gpu1", "cpu"]
            until(lambda: ran_on(product(pool, 768)) == {"gpu0", "gpu1"})
            pid = child_of("gpu0", local)
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            product(pool, 768)
            until(lambda: devices(pool) == ["gpu1", "cpu"])
            local.wait_for_workers()
            assert ran_on(product(pool, 300)) == {"gpu1"}
            assert "gpu0 is put aside" in local.log("gina")


@pytest.mark.slow
def test_where_no_vulkan_driver_is_the_cpu_computes_and_the_status_says_why(tmp_path: Path) -> None:
    with LoopbackPool(tmp_path / "home", {"VK_DRIVER_FILES": str(tmp_path / "none.json")}) as local:
        local.start_coordinator()
        local.start_worker("gina", "--engine", "gpu", "--device", "vulkan:")
        local.wait_for_workers()
        with local.connect() as pool:
            assert devices(pool) == ["cpu"]
            assert ran_on(product(pool, 300)) == {"cpu"}
            assert "on the CPU (no adapter here is called vulkan:)" in local.log("gina")
            # What only a GPU may do waits, and says for what.
            waiting = pool.benchmark("matmul", 64, engine="gpu")
            until(lambda: "no worker here offers a GPU" in waiting.status().waiting_reason)
            waiting.cancel()


def test_a_weight_that_comes_again_stays_on_the_gpu_and_results_stay_right(pool: Pool) -> None:
    weight = np.random.default_rng(0).standard_normal((500, 600), np.float32)
    pool.upload_weight("again", weight)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((1, 500), np.float32)
        out = pool.matmul_resident(x, "again")
        assert np.all(expect("matmul", {"a": x, "b": weight}, {}, "float32").ratio(out) <= 1.0)
