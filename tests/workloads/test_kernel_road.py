"""A kernel job from spec to output: planned, cut, run, checked, combined, and equal to NumPy within the bound."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from moregpu_kernels.operations import OPERATIONS
from moregpu_kernels.reference import expect

from moregpu.jobs import Evidence, Planned, Tensor
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.workloads import KernelSpec, workload
from moregpu.workloads.arrays import NUMPY, as_array, as_bytes
from moregpu.workloads.protocol import FleetSummary, Part, Plan, TaskSpec, WorkerProfile

Array = np.ndarray[Any, Any]
KERNEL = workload("kernel")
ENGINE = NumpyEngine()
SIZES = [0, 1, 3, 257, 2048]


class Unhurried:
    """A throttle that never holds anything up."""

    slice_s = 0.05

    def pause_point(self, share_done: float | None = None) -> None:
        assert share_done is None or 0.0 <= share_done <= 1.0


class Collected:
    """Keeps what `combine` writes."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str, tuple[int, ...]]] = []
        self.content = bytearray()

    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.opened.append((name, dtype, shape))

    def write(self, data: Any) -> None:
        self.content += data

    def array(self) -> Array:
        ((_, dtype, shape),) = self.opened
        return as_array(self.content, dtype, shape)


def tensor(array: Array) -> Tensor:
    return Tensor(dtype=str(array.dtype), shape=array.shape, data=bytes(as_bytes(array)))  # type: ignore[arg-type]


def opened(task: TaskSpec) -> dict[str, Array]:
    assert all(isinstance(each.data, bytes) and each.region is None for each in task.inputs.values())
    return {name: as_array(each.data, each.dtype, each.part_shape) for name, each in task.inputs.items()}


def part(task: TaskSpec, outputs: Mapping[str, Array]) -> Part:
    return Part(task=task, open=lambda: outputs)


def travel(spec: KernelSpec, workers: list[tuple[WorkerProfile, float]], plan: Plan | None = None) -> Array:
    """Take a job down the whole road, workers in turn."""
    KERNEL.validate(spec)
    plan = plan or KERNEL.plan(spec, FleetSummary())
    parts: list[Part] = []
    cursor = 0
    while cursor < plan.grains:
        task = KERNEL.cut(spec, plan, cursor, *workers[len(parts) % len(workers)])
        cursor = task.grains[1]
        inputs = opened(task)
        outputs = KERNEL.run(task, inputs, ENGINE, Unhurried())
        evidence = KERNEL.check(task, inputs, outputs, "spot", os.urandom)
        assert isinstance(evidence, Evidence), evidence
        assert evidence.checked
        assert evidence.worst_ratio <= 1.0
        parts.append(part(task, outputs))
    out = Collected()
    KERNEL.combine(plan, parts[::-1], out)  # in whatever order they come
    return out.array()


def inputs_of(operation: str, n: int, dtype: str) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    columns = 128 if OPERATIONS[operation].form == "rows" else n
    shape = (n,) if OPERATIONS[operation].form == "elements" else (n, columns)
    return {name: rng.standard_normal(shape, np.float32).astype(dtype) for name in OPERATIONS[operation].inputs}


CREW = [
    (WorkerProfile(), 0.01),
    (WorkerProfile(speeds={"matmul.float32": 4e11}), 0.02),
    (WorkerProfile(duty=0.3), 0.005),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_at_every_size_equals_the_reference(operation: Any, n: int, dtype: Any) -> None:
    arrays = inputs_of(operation, n, dtype)
    if operation == "matmul" and n == 2048:
        arrays = {"a": arrays["a"][:300], "b": arrays["b"][:, :200]}  # the whole is the next test
    spec = KernelSpec(
        operation=operation, dtype=dtype, scalar=-1.7, inputs={name: tensor(each) for name, each in arrays.items()}
    )
    found = travel(spec, CREW)
    expected = expect(operation, arrays, {"scalar": -1.7}, dtype)
    assert found.dtype == NUMPY[dtype]
    assert found.shape == expected.value.shape
    assert float(expected.ratio(found).max(initial=0.0)) <= 1.0


def test_a_product_of_2048_in_sixteen_tiles() -> None:
    arrays = inputs_of("matmul", 2048, "float32")
    spec = KernelSpec(operation="matmul", inputs={name: tensor(each) for name, each in arrays.items()})
    found = travel(spec, [(WorkerProfile(), 0.06), (WorkerProfile(), 0.12), (WorkerProfile(), 0.5)])
    error = np.abs(found - arrays["a"].astype("f8") @ arrays["b"].astype("f8"))
    assert np.all(error <= 520 * 2.0**-24 * (np.abs(arrays["a"]).astype("f8") @ np.abs(arrays["b"])) + 1e-30)


@pytest.mark.parametrize("operation", ["vector_add", "gelu"])
def test_ten_million_elements(operation: Any) -> None:
    n = 10_000_000
    arrays = {name: np.linspace(-5, 5, n, dtype="f4") for name in OPERATIONS[operation].inputs}
    found = travel(KernelSpec(operation=operation, inputs={k: tensor(v) for k, v in arrays.items()}), CREW)
    assert found.shape == (n,)
    for start in range(0, n, 1 << 20):
        block = {name: each[start : start + (1 << 20)] for name, each in arrays.items()}
        assert np.all(expect(operation, block, {}, "float32").ratio(found[start : start + (1 << 20)]) <= 1.0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nan_and_infinity_come_out_as_numpy_has_them(operation: Any) -> None:
    arrays = inputs_of(operation, 130, "float32")
    arrays["a"].flat[[0, 200 % arrays["a"].size, -1]] = [np.nan, np.inf, -np.inf]
    found = travel(KernelSpec(operation=operation, inputs={k: tensor(v) for k, v in arrays.items()}), CREW)
    value = expect(operation, arrays, {}, "float32").value
    assert np.array_equal(np.isnan(found), np.isnan(value))
    assert np.array_equal(found[np.isinf(value)], value[np.isinf(value)].astype("f4"))


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 5), (0, 4), (4, 0), (1, 1, 1, 1, 7)])
def test_arrays_of_any_shape_come_back_in_theirs(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(1).standard_normal(shape).astype("f4")
    assert np.array_equal(travel(KernelSpec(operation="relu", inputs={"a": tensor(a)}), CREW), np.maximum(a, 0))
    if shape:
        assert travel(KernelSpec(operation="softmax", inputs={"a": tensor(a)}), CREW).shape == shape


def test_a_product_over_no_terms_is_zero() -> None:
    spec = KernelSpec(
        operation="matmul", inputs={"a": tensor(np.zeros((3, 0), "f4")), "b": tensor(np.zeros((0, 4), "f4"))}
    )
    assert travel(spec, CREW).tolist() == np.zeros((3, 4)).tolist()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_benchmark_data_is_made_alike_by_worker_and_checker(operation: Any) -> None:
    spec = KernelSpec(operation=operation, size=600, seed=11)
    assert not KERNEL.keeps_outputs(spec)
    plan = KERNEL.plan(spec, FleetSummary())
    task = KERNEL.cut(spec, plan, 0, WorkerProfile(), 0.001)
    assert task.inputs == {}
    outputs = KERNEL.run(task, {}, ENGINE, Unhurried())
    assert isinstance(KERNEL.check(task, {}, outputs, "spot", os.urandom), Evidence)
    other = msgspec.structs.replace(task, seed=12)
    if outputs["out"].any():
        assert not isinstance(KERNEL.check(other, {}, outputs, "spot", os.urandom), Evidence)


def test_outputs_of_submitted_arrays_are_kept() -> None:
    assert KERNEL.keeps_outputs(KernelSpec(operation="relu", inputs={"a": tensor(np.zeros(1, "f4"))}))


# ---- combining -------------------------------------------------------------------------------------------------------


def pieces(spec: KernelSpec, plan: Plan, budget_s: float, make: Callable[[Planned], Array]) -> list[Part]:
    parts: list[Part] = []
    cursor = 0
    while cursor < plan.grains:
        task = KERNEL.cut(spec, plan, cursor, WorkerProfile(), budget_s)
        cursor = task.grains[1]
        parts.append(Part(task=task, open=lambda planned=task.outputs["out"]: {"out": make(planned)}))
    return parts


def test_combining_holds_one_strip_whatever_the_size() -> None:
    class Counting:
        written = 0

        def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
            pass

        def write(self, data: Any) -> None:
            self.written += memoryview(data).nbytes

    spec = KernelSpec(operation="matmul", size=8192)
    plan = KERNEL.plan(spec, FleetSummary())
    parts = pieces(spec, plan, 1e-9, lambda planned: np.zeros(planned.shape, "f4"))
    out = Counting()
    tracemalloc.start()
    KERNEL.combine(plan, parts, out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert out.written == 4 * 8192 * 8192
    strip = 4 * 8192 * plan.layout["tile_rows"]
    assert peak < 2 * strip + (8 << 20)


def test_missing_repeated_and_surplus_parts_are_refused() -> None:
    spec = KernelSpec(operation="matmul", size=1024)
    plan = KERNEL.plan(spec, FleetSummary())
    parts = pieces(spec, plan, 1e-9, lambda planned: np.zeros(planned.shape, "f4"))
    for wrong in (parts[:-1], parts[1:], [*parts, parts[3]], parts[:5] + parts[6:], []):
        with pytest.raises(ValueError, match="grain"):
            KERNEL.combine(plan, wrong, Collected())
