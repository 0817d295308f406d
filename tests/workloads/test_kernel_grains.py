"""Plans and cuts: every element of the output belongs to exactly one task, whoever comes for work, in any order."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moregpu_kernels.operations import OPERATIONS

from moregpu.jobs import Blob, Tensor
from moregpu.workloads import KernelSpec, workload
from moregpu.workloads.kernel.plan import GRAIN_BYTES, TASK_BYTES, grid_of
from moregpu.workloads.protocol import FleetSummary, Plan, TaskSpec, WorkerProfile

KERNEL = workload("kernel")
NOBODY = FleetSummary()
MIB = 1 << 20


def blob_tensor(shape: tuple[int, ...], dtype: Any = "float32") -> Tensor:
    item = 4 if dtype == "float32" else 2
    data = Blob(digest="0" * 64, key=bytes(32), size_bytes=item * math.prod(shape))
    return Tensor(dtype=dtype, shape=shape, data=data)


def product(rows: int, inner: int, columns: int, **fields: Any) -> KernelSpec:
    inputs = {"a": blob_tensor((rows, inner)), "b": blob_tensor((inner, columns))}
    return KernelSpec(operation="matmul", inputs=inputs, **fields)


def cut_all(spec: KernelSpec, plan: Plan, workers: list[tuple[WorkerProfile, float]]) -> list[TaskSpec]:
    """Let workers come in turn until nothing is left."""
    tasks: list[TaskSpec] = []
    cursor = 0
    while cursor < plan.grains:
        worker, budget_s = workers[len(tasks) % len(workers)]
        task = KERNEL.cut(spec, plan, cursor, worker, budget_s)
        assert task.grains[0] == cursor < task.grains[1] <= plan.grains
        cursor = task.grains[1]
        tasks.append(task)
    return tasks


def span(plan: Plan, task: TaskSpec) -> tuple[tuple[int, int], tuple[int, int]]:
    return grid_of(plan).span(task.grains)


lengths = st.one_of(st.integers(0, 3), st.integers(1, 400), st.integers(1000, 20_000))
profiles = st.builds(
    lambda speed, duty, memory: WorkerProfile(
        speeds={f"{name}.float32": speed for name in OPERATIONS}, duty=duty, memory_budget_bytes=memory
    ),
    st.floats(1e7, 1e13),
    st.floats(0.0, 1.0),
    st.integers(0, 1 << 34),
)
crews = st.lists(st.tuples(profiles, st.floats(1e-4, 10.0)), min_size=1, max_size=4)
fleets = st.one_of(
    st.just(NOBODY),
    st.floats(1e8, 1e13).map(
        lambda speed: FleetSummary(workers=2, median_speed={f"{n}.float32": speed for n in OPERATIONS})
    ),
)


@settings(max_examples=150, deadline=None)
@given(rows=lengths, inner=lengths, columns=lengths, crew=crews, fleet=fleets)
def test_tasks_of_a_product_tile_the_output_exactly(
    rows: int, inner: int, columns: int, crew: list[tuple[WorkerProfile, float]], fleet: FleetSummary
) -> None:
    spec = product(rows, inner, columns)
    plan = KERNEL.plan(spec, fleet)
    if plan.grains > 3000:
        return  # the same rules, only longer
    height, width = min(rows, 300), min(columns, 300)
    # A coarse picture of the output: boundaries of tiles are what could go wrong.
    grid = grid_of(plan)
    row_marks = sorted({*range(0, rows + 1, grid.tile_rows), rows, *range(height)})
    column_marks = sorted({*range(0, columns + 1, grid.tile_columns), columns, *range(width)})
    covered = np.zeros((len(row_marks), len(column_marks)), np.int32)
    area = 0
    for task in cut_all(spec, plan, crew):
        (r0, r1), (c0, c1) = span(plan, task)
        rr = slice(np.searchsorted(row_marks, r0), np.searchsorted(row_marks, r1))
        cc = slice(np.searchsorted(column_marks, c0), np.searchsorted(column_marks, c1))
        covered[rr, cc] += 1
        area += (r1 - r0) * (c1 - c0)
        assert task.outputs["out"].shape == (r1 - r0, c1 - c0)
        assert task.inputs["a"].part_shape == (r1 - r0, inner)
        assert task.inputs["b"].part_shape == (inner, c1 - c0)
    assert area == rows * columns
    assert np.all(covered[:-1, :-1] == 1)


@settings(max_examples=150, deadline=None)
@given(
    operation=st.sampled_from([name for name in OPERATIONS if name != "matmul"]),
    shape=st.lists(st.integers(0, 300), min_size=1, max_size=3).map(tuple),
    crew=crews,
    fleet=fleets,
)
def test_tasks_of_the_other_operations_follow_each_other(
    operation: Any, shape: tuple[int, ...], crew: list[tuple[WorkerProfile, float]], fleet: FleetSummary
) -> None:
    inputs = {name: blob_tensor(shape) for name in OPERATIONS[operation].inputs}
    spec = KernelSpec(operation=operation, inputs=inputs)
    plan = KERNEL.plan(spec, fleet)
    at = 0
    for task in cut_all(spec, plan, crew):
        (start, stop), _ = span(plan, task)
        assert start == at
        at = stop
        assert all(tensor.part_shape == task.outputs["out"].shape for tensor in task.inputs.values())
    assert at == math.prod(shape[:-1] if OPERATIONS[operation].form == "rows" else shape)


@settings(max_examples=150, deadline=None)
@given(rows=lengths, inner=lengths, columns=lengths, profile=profiles, budget_s=st.floats(1e-3, 10.0), data=st.data())
def test_a_task_keeps_to_its_budget_and_to_64_mib_unless_it_is_one_grain(
    rows: int, inner: int, columns: int, profile: WorkerProfile, budget_s: float, data: st.DataObject
) -> None:
    spec = product(rows, inner, columns)
    plan = KERNEL.plan(spec, NOBODY)
    cursor = data.draw(st.integers(0, plan.grains - 1))
    task = KERNEL.cut(spec, plan, cursor, profile, budget_s)
    count = task.grains[1] - task.grains[0]
    if count > 1:
        assert profile.seconds(task.cost) <= budget_s * (1 + 1e-9)
        size = sum(tensor.part_bytes for tensor in task.inputs.values()) + 4 * math.prod(task.outputs["out"].shape)
        assert size <= min(TASK_BYTES, profile.memory_budget_bytes)
    width = grid_of(plan).width
    first, last = task.grains[0], task.grains[1] - 1
    whole_strips = first % width == 0 and task.grains[1] % width == 0
    assert whole_strips or first // width == last // width


@settings(max_examples=200, deadline=None)
@given(rows=lengths, inner=st.one_of(lengths, st.integers(10**5, 10**6)), columns=lengths, fleet=fleets)
def test_a_grain_of_a_product_fits_a_task_and_a_strip_fits_combining(
    rows: int, inner: int, columns: int, fleet: FleetSummary
) -> None:
    plan = KERNEL.plan(product(rows, inner, columns), fleet)
    grid = grid_of(plan)
    smallest = 4 * (2 * inner + 1)  # one element of the output cannot be cut
    assert plan.task_memory_bytes <= max(TASK_BYTES, smallest)
    assert grid.tile_rows * columns * 4 <= max(TASK_BYTES, columns * 4)
    assert plan.grains == grid.strips * grid.width >= 1


@pytest.mark.parametrize("n", [1024, 2048, 4096])
def test_a_square_product_has_at_least_16_grains_of_2_ms_or_more(n: int) -> None:
    plan = KERNEL.plan(product(n, n, n), NOBODY)
    seconds = WorkerProfile().seconds(plan.cost) / plan.grains
    assert plan.grains >= 16
    assert 0.002 <= seconds <= 0.15


def test_a_tiny_job_is_one_grain_and_a_huge_one_has_grains_of_a_tenth_of_a_second() -> None:
    assert KERNEL.plan(product(64, 64, 64), NOBODY).grains == 1
    plan = KERNEL.plan(product(16384, 16384, 16384), NOBODY)
    assert 0.05 <= WorkerProfile().seconds(plan.cost) / plan.grains <= 0.15


def test_a_faster_median_worker_gets_larger_grains() -> None:
    fast = FleetSummary(workers=1, median_speed={"matmul.float32": 1e12})
    assert KERNEL.plan(product(8192, 1024, 8192), fast).grains < KERNEL.plan(product(8192, 1024, 8192), NOBODY).grains


def test_elementwise_grains_end_on_the_records_of_their_blobs() -> None:
    n = 10_000_000
    spec = KernelSpec(operation="vector_add", inputs={"a": blob_tensor((n,)), "b": blob_tensor((n,))})
    plan = KERNEL.plan(spec, NOBODY)
    assert grid_of(plan).tile_rows * 4 % MIB == 0
    assert plan.task_memory_bytes <= 2 * GRAIN_BYTES
    assert plan.grains >= 8


def test_a_fast_worker_takes_more_grains_than_a_slow_one() -> None:
    spec = product(4096, 1024, 4096)
    plan = KERNEL.plan(spec, NOBODY)
    slow, fast = (WorkerProfile(speeds={"matmul.float32": speed}) for speed in (5e9, 2e10))
    counts = [KERNEL.cut(spec, plan, 0, worker, 0.6).grains[1] for worker in (slow, fast)]
    assert counts[1] >= 3 * counts[0]
    half = WorkerProfile(speeds={"matmul.float32": 2e10}, duty=0.25)
    assert KERNEL.cut(spec, plan, 0, half, 0.6).grains[1] == counts[0]


def test_regions_of_a_task_name_parts_of_the_blobs_that_were_uploaded() -> None:
    spec = product(2048, 512, 2048)
    plan = KERNEL.plan(spec, NOBODY)
    task = KERNEL.cut(spec, plan, 5, WorkerProfile(), 1e-9)
    (r0, r1), (c0, c1) = span(plan, task)
    assert task.inputs["a"].region == ((r0, r1), (0, 512))
    assert task.inputs["b"].region == ((0, 512), (c0, c1))
    assert task.inputs["a"].data == spec.inputs["a"].data
    assert task.inputs["b"].shape == (2048 // 4, 2048)


def test_inline_data_travels_cut_to_what_the_task_needs() -> None:
    a, b = np.arange(12, dtype="<f4").reshape(4, 3), np.arange(15, dtype="<f4").reshape(3, 5)
    spec = KernelSpec(
        operation="matmul",
        inputs={
            "a": Tensor(dtype="float32", shape=(4, 3), data=a.tobytes()),
            "b": Tensor(dtype="float32", shape=(3, 5), data=b.tobytes()),
        },
    )
    plan = KERNEL.plan(spec, NOBODY)
    small = msgspec.structs.replace(plan, grains=6, layout={**plan.layout, "tile_rows": 2, "tile_columns": 2})
    task = KERNEL.cut(spec, small, 4, WorkerProfile(), 1e-9)
    assert task.inputs["a"] == Tensor(dtype="float32", shape=(2, 3), data=a[2:4].tobytes())
    assert task.inputs["b"] == Tensor(dtype="float32", shape=(3, 2), data=b[:, 2:4].tobytes())
    vector = KernelSpec(operation="relu", inputs={"a": Tensor(dtype="float32", shape=(3, 4), data=a.tobytes())})
    plan = KERNEL.plan(vector, NOBODY)
    small = msgspec.structs.replace(plan, grains=3, layout={**plan.layout, "tile_rows": 5})
    task = KERNEL.cut(vector, small, 2, WorkerProfile(), 1e-9)
    assert task.inputs["a"] == Tensor(dtype="float32", shape=(2,), data=a.reshape(-1)[10:].tobytes())


def test_a_cut_beyond_the_plan_is_refused() -> None:
    spec = product(8, 8, 8)
    plan = KERNEL.plan(spec, NOBODY)
    with pytest.raises(ValueError, match="grain 1 of 1"):
        KERNEL.cut(spec, plan, 1, WorkerProfile(), 1.0)


def test_the_same_cut_has_the_same_bytes() -> None:
    spec = KernelSpec(operation="saxpy", size=5000, scalar=0.5, seed=9)
    plan = KERNEL.plan(spec, NOBODY)
    tasks = [KERNEL.cut(spec, plan, 0, WorkerProfile(), 1.0) for _ in range(2)]
    assert tasks[0] == tasks[1]
    assert msgspec.msgpack.decode(tasks[0].parameters) == {
        "columns": [0, 1],
        "inner": 0,
        "rows": [0, 5000],
        "scalar": 0.5,
    }
    assert tasks[0].seed == 9


def test_a_plan_survives_the_store() -> None:
    plan = KERNEL.plan(product(100, 7, 30), NOBODY)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_a_plan_passes_on_what_its_tasks_need() -> None:
    spec = product(100, 100, 100, engine="cpu", device="EPYC", group="lab", memory_bytes=1 << 33)
    needs = KERNEL.plan(spec, NOBODY).needs
    assert (needs.kind, needs.engine, needs.device, needs.group) == ("kernel", "cpu", "EPYC", "lab")
    assert needs.memory_bytes == 1 << 33
    assert KERNEL.plan(product(100, 100, 100), NOBODY).needs.memory_bytes == 3 * 40_000


def test_a_summary_says_what_is_computed() -> None:
    assert KERNEL.plan(product(64, 32, 16), NOBODY).summary == "matmul float32 (64, 32) @ (32, 16): 1 grain of 64 × 16"
