"""Registered kernels: read, refused with the line, cut, run on CPU and GPU, and judged by their own reference."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from moregpu.errors import InvalidJob
from moregpu.jobs import Evidence
from moregpu.wire.messages import MAX_INLINE_BYTES, MAX_RECORD_BYTES, Assignment
from moregpu.wire.session import pack_assign
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.worker.engines.unfit import DeviceUnfit
from moregpu.worker.engines.wgpu_engine import WgpuEngine
from moregpu.workloads import KernelSpec, workload
from moregpu.workloads.arrays import as_array
from moregpu.workloads.kernel.custom import SOURCE_LIMIT, read_kernel
from moregpu.workloads.protocol import FleetSummary, KernelEngine, Rejected, TaskSpec, WorkerProfile
from tests.workloads.test_kernel_formula import Unhurried, spec_of, travel

Array = np.ndarray[Any, Any]
KERNEL = workload("kernel")
PAGE = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text(encoding="utf-8")
SOURCE = next(text for text in re.findall(r"```wgsl\n(.*?)```", PAGE, re.DOTALL) if 'name = "leaky_relu"' in text)


def leaky(a: Array, slope: float = 0.1, source: str = SOURCE, **fields: Any) -> KernelSpec:
    made = spec_of("", {"a": a})
    return KernelSpec(
        operation="custom", kernel="leaky_relu", source=source, dtype=made.dtype, inputs=made.inputs,
        **{"numbers": {"slope": slope}, **fields},
    )  # fmt: skip


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def engine(request: pytest.FixtureRequest) -> Iterator[KernelEngine]:
    if request.param == "cpu":
        yield NumpyEngine()
        return
    try:
        made = WgpuEngine("gpu0", "")
    except DeviceUnfit as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    yield made
    made.close()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 65), (300, 257)])
def test_a_registered_kernel_runs_and_is_checked(engine: KernelEngine, shape: tuple[int, ...], dtype: str) -> None:
    a = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    found, _ = travel(leaky(a), engine, FleetSummary(workers=1, median_speed={f"leaky_relu.{dtype}": 4e5}))
    assert found.shape == shape and found.dtype == dtype
    assert np.allclose(found, np.where(a > 0, a, np.float32(0.1) * a), atol=1e-3 if dtype == "float16" else 1e-7)


def first_task(spec: KernelSpec) -> tuple[TaskSpec, dict[str, Array]]:
    task = KERNEL.cut(spec, KERNEL.plan(spec, FleetSummary()), 0, WorkerProfile(), 10.0)
    return task, {name: as_array(each.data, each.dtype, each.part_shape) for name, each in task.inputs.items()}


def test_a_task_names_the_kernel_by_its_digest_and_no_other_text_runs(engine: KernelEngine) -> None:
    task, inputs = first_task(leaky(np.ones(9, np.float32)))
    assert task.program == f"custom:{read_kernel(SOURCE).digest}".encode()
    other, _ = first_task(leaky(np.ones(9, np.float32), source=SOURCE.replace("u.slope * x", "2.0 * x")))
    mixed = TaskSpec(
        kind=task.kind, program=task.program, parameters=other.parameters, precision=task.precision,
        grains=task.grains, inputs=task.inputs, outputs=task.outputs, cost=task.cost,
    )  # fmt: skip
    with pytest.raises(InvalidJob, match="not the one that was registered"):
        KERNEL.run(mixed, inputs, engine, Unhurried())


def test_a_kernel_that_does_not_do_what_its_reference_says_is_found_out() -> None:
    try:
        engine = WgpuEngine("gpu0", "")
    except DeviceUnfit as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    spec = leaky(-np.ones(9, np.float32), source=SOURCE.replace("u.slope * x", "2.0 * x"))
    task, inputs = first_task(spec)
    outputs = KERNEL.run(task, inputs, engine, Unhurried())
    verdict = KERNEL.check(task, inputs, outputs, "spot", os.urandom)
    assert isinstance(verdict, Rejected) and "should be -0.1" in verdict.reason
    # Under the same name, the right text afterwards is compiled anew.
    task, inputs = first_task(leaky(-np.ones(9, np.float32)))
    outputs = KERNEL.run(task, inputs, engine, Unhurried())
    assert isinstance(KERNEL.check(task, inputs, outputs, "spot", os.urandom), Evidence)
    engine.close()


def test_wgsl_that_does_not_compile_is_an_error_with_the_line() -> None:
    try:
        engine = WgpuEngine("gpu0", "")
    except DeviceUnfit as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    task, inputs = first_task(leaky(np.ones(9, np.float32), source=SOURCE.replace("is_nan(x)", "is_nam(x)")))
    with pytest.raises(InvalidJob, match=r":1\d: .*is_nam"):
        KERNEL.run(task, inputs, engine, Unhurried())
    engine.close()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "leaky_relu"', 'name = "matmul"', "an operation of the pool itself"),
        ('reference = "where(a > 0, a, slope * a)"', "", "no reference"),
        ("slope * a)", "slope * )", "not expected"),
        ('along = "elements"', 'along = "rows"', "run along elements"),
        ('inputs = ["a"]', 'inputs = ["b"]', "bindings"),
        ("ceil_div(count, 256)", "ceil_div(cownt, 256)", "cownt"),
        ("#entry 64", "#entry 64" + "x" * 20_000, "at most 6,144 bytes"),
    ],
)
def test_a_text_that_cannot_be_registered_is_refused_with_the_reason(old: str, new: str, says: str) -> None:
    assert old in SOURCE
    with pytest.raises(InvalidJob, match=re.escape(says)):
        read_kernel(SOURCE.replace(old, new))


def test_a_job_gives_exactly_what_the_kernel_takes() -> None:
    a = np.ones(4, np.float32)
    for spec, says in (
        (leaky(a, numbers={}), "takes the numbers slope; given: none"),
        (leaky(a, numbers={"slope": 0.1, "k": 1.0}), "given: k, slope"),
        (leaky(a, size=4), "inputs and numbers alone"),
        (
            KernelSpec(operation="custom", kernel="leaky_relu", source=SOURCE, numbers={"slope": 1.0}),
            "takes the arrays a",
        ),
        (KernelSpec(operation="relu", kernel="leaky_relu", size=3), "names no registered kernel"),
        (KernelSpec(operation="relu", source=SOURCE, size=3), "names no registered kernel"),
    ):
        with pytest.raises(InvalidJob, match=says):
            KERNEL.validate(spec)


def test_the_largest_text_and_the_largest_inline_input_fit_one_record() -> None:
    padded = SOURCE + "//" + "-" * (SOURCE_LIMIT - len(SOURCE.encode()) - 2)
    a = np.zeros(MAX_INLINE_BYTES // 4, np.float32)
    task, _ = first_task(leaky(a, source=padded))
    assert len(padded.encode()) == SOURCE_LIMIT and task.inputs["a"].part_shape == a.shape
    entry = Assignment(
        job="j-" + "0" * 26, task="t-" + "0" * 26, attempt=1, token=bytes(16), kind="kernel", program=task.program,
        parameters=task.parameters, precision="float32", inputs=task.inputs, outputs=task.outputs,
        digest_key=bytes(32), seed=0, time_limit_s=None, lease_s=10.0, device="gpu0",
    )  # fmt: skip
    for message in pack_assign([entry]):
        assert len(msgspec.msgpack.encode(message)) <= MAX_RECORD_BYTES
