"""A registered kernel whose WGSL and reference differ: nothing of it is accepted, its job ends, no GPU pays for it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moregpu.coordinator.conduct import FAST_FAILURES
from moregpu.coordinator.store.protocol import JobRow
from moregpu.jobs import JobState, Tensor
from moregpu.wire.messages import Assignment, Device, ResultEntry, TaskError
from moregpu.workloads import KernelSpec
from tests.coordinator.room.pool import ANN, Room, product, room
from tests.coordinator.room.test_agreement import of_owner, trust_of
from tests.rogue.workers import CPU, HonestWorker, ReturnsScaled

_PAGE = (Path(__file__).parents[3] / "docs" / "kernels.md").read_text(encoding="utf-8")
SOURCE = next(text for text in re.findall(r"```wgsl\n(.*?)```", _PAGE, re.DOTALL) if 'name = "leaky_relu"' in text)
GPU = Device(id="gpu0", kind="gpu", name="Radium 9000", driver="1", engine="wgpu", memory_bytes=1 << 32)
NO_WGSL = TaskError(code="invalid-job", message="leaky_relu.wgsl:14: no definition in scope: `is_nam`", fault="task")


class OnGpu(HonestWorker):
    """Computes on a GPU, and right."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.devices = [GPU, CPU]


class Miscompiles(OnGpu):
    """An honest GPU worker, as it runs WGSL that is not what its reference says; all else it does right."""

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        right = super().outputs(assignment, arrays)
        if not assignment.program.startswith(b"custom:"):
            return right
        return {name: array + np.float32(1.0) for name, array in right.items()}


class CannotCompile(OnGpu):
    """An honest GPU worker, as it is given WGSL that does not compile."""

    def compute(self, assignment: Assignment) -> ResultEntry:
        if not assignment.program.startswith(b"custom:"):
            return super().compute(assignment)
        return ResultEntry(task=assignment.task, attempt=assignment.attempt, token=assignment.token, error=NO_WGSL)


class LiesOnGpu(ReturnsScaled):
    """A liar that says it has a GPU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.devices = [GPU, CPU]


def spec_of(seed: int = 1, **fields: Any) -> KernelSpec:
    a = np.random.default_rng(seed).standard_normal(100).astype(np.float32)
    tensor = Tensor(dtype="float32", shape=a.shape, data=a.tobytes())
    return KernelSpec(
        operation="custom", kernel="leaky_relu", source=SOURCE, dtype="float32", inputs={"a": tensor},
        numbers={"slope": 0.5}, **fields,
    )  # fmt: skip


def right(seed: int = 1) -> Any:
    a = np.random.default_rng(seed).standard_normal(100).astype(np.float32)
    return np.where(a > 0, a, np.float32(0.5) * a)


async def refused(here: Room, row: JobRow) -> str:
    """Why a job failed."""
    row = await here.ended(row)
    assert row.state is JobState.FAILED and row.error is not None and row.result is None
    return row.error.detail or ""


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Miscompiles, r"element \(\d+\) is .*, should be .*: the kernel leaky_relu and its .* differ on Radium 9000"),
        (CannotCompile, r"leaky_relu\.wgsl:14: no definition"),
    ],
)
def test_a_wrong_kernel_ends_its_jobs_and_the_only_gpu_goes_on_with_others(
    tmp_path: Path, kind: type[OnGpu], says: str
) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            worker = await of_owner(here, "ann", kind)
            for _ in range(FAST_FAILURES):
                assert re.search(says, await refused(here, await here.submit(spec_of(retries=2), wait_s=0.0)))
            trust = await trust_of(here, worker)
            assert (trust.wrong, trust.probation_left, trust.quarantined) == (0, 0, False)
            a, b = product(8, 8, 8)
            row = await here.ended(await here.submit(await here.spec("matmul", a, b), wait_s=0.0))
            np.testing.assert_allclose(here.output(row), a @ b, rtol=1e-5, atol=1e-5)

    asyncio.run(run())


def test_a_wrong_kernel_ends_its_job_when_every_gpu_has_failed_it_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            workers = [await of_owner(here, owner, Miscompiles) for owner in ("ann", "bob")]
            row = await here.submit(spec_of(retries=9), wait_s=0.0)
            assert "differ on Radium 9000" in await refused(here, row)
            assert [len(worker.assigned) for worker in workers] == [1, 1]

    asyncio.run(run())


@pytest.mark.parametrize("wrong", [Miscompiles, CannotCompile])
def test_where_a_cpu_is_there_it_computes_the_reference_of_a_wrong_kernel(tmp_path: Path, wrong: type[OnGpu]) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            gpu = await of_owner(here, "ann", wrong)
            row = await here.submit(spec_of(), wait_s=0.0)
            await gpu.until(lambda: bool(gpu.verdicts))
            await of_owner(here, "bob")
            np.testing.assert_array_equal(here.output(await here.ended(row)), right())

    asyncio.run(run())


@pytest.mark.parametrize("liar", [LiesOnGpu, CannotCompile])
def test_one_liar_ends_no_job_of_a_registered_kernel_while_an_honest_worker_is_there(
    tmp_path: Path, liar: type[HonestWorker]
) -> None:
    """However often it lies: nothing of it is accepted, and each task is its own only once."""

    async def run() -> None:
        async with room(tmp_path) as here:
            lying = await of_owner(here, "mallory", liar)
            honest = await of_owner(here, "ann", OnGpu)
            for seed in range(2 * FAST_FAILURES):
                row = await here.ended(await here.submit(spec_of(seed, engine="gpu"), wait_s=0.0))
                np.testing.assert_array_equal(here.output(row), right(seed))
                view = await here.desk.view(ANN, row, detail=True)
                assert view.workers == [honest.id]
            assert all(verdict.verdict == "rejected" for verdict in lying.verdicts)

    asyncio.run(run())


def test_a_wrong_result_of_a_cpu_which_runs_no_wgsl_is_proof_against_its_worker(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liar = await of_owner(here, "mallory", ReturnsScaled)
            row = await here.submit(spec_of(retries=1), wait_s=0.0)
            assert "differ" not in await refused(here, row)
            assert (await trust_of(here, liar)).wrong == 1

    asyncio.run(run())


def test_the_pools_own_kernels_prove_a_gpu_wrong_as_ever(tmp_path: Path) -> None:
    async def run() -> None:
        async with room(tmp_path) as here:
            liar = await of_owner(here, "mallory", LiesOnGpu)
            row = await here.submit(await here.spec("matmul", *product(8, 8, 8), retries=1), wait_s=0.0)
            await refused(here, row)
            assert (await trust_of(here, liar)).wrong == 1

    asyncio.run(run())
