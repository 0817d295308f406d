"""A formula from spec to output: broadcast as NumPy does, cut, run on CPU and GPU, checked; mistakes are pointed at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moregpu_kernels.formula import parse
from moregpu_kernels.reference_formula import expect_formula

from moregpu.errors import InvalidJob, TooLarge
from moregpu.jobs import Blob, Evidence, Tensor
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.worker.engines.unfit import DeviceUnfit
from moregpu.worker.engines.wgpu_engine import WgpuEngine
from moregpu.workloads import KernelSpec, workload
from moregpu.workloads.arrays import as_array, as_bytes
from moregpu.workloads.kernel.plan import RECORD_BYTES
from moregpu.workloads.protocol import FleetSummary, KernelEngine, Part, Rejected, WorkerProfile

Array = np.ndarray[Any, Any]
KERNEL = workload("kernel")
SLOW = FleetSummary(workers=1, median_speed={"formula.float32": 4e5, "formula.float16": 4e5})
"""A fleet so slow that even small jobs have many grains."""


class Unhurried:
    slice_s = 0.05

    def pause_point(self, share_done: float | None = None) -> None:
        assert share_done is None or 0.0 <= share_done <= 1.0


class Collected:
    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape, self.content = dtype, shape, bytearray()

    def write(self, data: Any) -> None:
        self.content += data


def spec_of(text: str, inputs: dict[str, Array], **fields: Any) -> KernelSpec:
    dtype = str(next(iter(inputs.values())).dtype)
    return KernelSpec(
        operation="formula",
        formula=text,
        dtype=cast("Any", dtype),
        inputs={
            name: Tensor(dtype=cast("Any", dtype), shape=array.shape, data=bytes(as_bytes(array)))
            for name, array in inputs.items()
        },
        **fields,
    )


def travel(spec: KernelSpec, engine: KernelEngine, fleet: FleetSummary = SLOW) -> tuple[Array, int]:
    KERNEL.validate(spec)
    plan = KERNEL.plan(spec, fleet)
    parts: list[Part] = []
    covered = 0
    while not parts or parts[-1].task.grains[1] < plan.grains:
        cursor = parts[-1].task.grains[1] if parts else 0
        task = KERNEL.cut(spec, plan, cursor, WorkerProfile(speeds=fleet.median_speed), 0.05)
        inputs = {name: as_array(each.data, each.dtype, each.part_shape) for name, each in task.inputs.items()}
        outputs = KERNEL.run(task, inputs, engine, Unhurried())
        evidence = KERNEL.check(task, inputs, outputs, "spot", os.urandom)
        assert isinstance(evidence, Evidence) and evidence.checked, evidence
        assert KERNEL.agree(task, inputs, outputs, outputs)
        ((first, stop),) = KERNEL.place(plan, task)["out"]
        assert first == covered and stop - first == outputs["out"].size
        covered = stop
        parts.append(Part(task=task, open=lambda outputs=outputs: outputs))
    out = Collected()
    KERNEL.combine(plan, parts, out)
    return as_array(out.content, out.dtype, out.shape), len(parts)


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


SHAPES: list[dict[str, tuple[int, ...]]] = [
    {"x": (1000,), "y": (1000,)},
    {"x": (40, 30), "y": (30,)},
    {"x": (40, 1), "y": (1, 30)},
    {"x": (1, 40, 30), "y": (40, 1)},
    {"x": (1, 1, 500), "y": ()},
    {"x": (7, 5, 3), "y": (1, 5, 1)},
    {"x": (), "y": ()},
    {"x": (1,), "y": (1, 1)},
    {"x": (0, 5), "y": (5,)},
    {"x": (5, 0), "y": (5, 1)},
    {"x": (1,), "y": (0,)},
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_formula_broadcasts_as_numpy_does(
    engine: KernelEngine, shapes: dict[str, tuple[int, ...]], dtype: str
) -> None:
    rng = np.random.default_rng(4)
    inputs = {name: np.asarray(rng.standard_normal(shape), dtype) for name, shape in shapes.items()}
    text = "exp(-x*x) * sin(y)"
    found, _ = travel(spec_of(text, inputs), engine)
    assert found.shape == np.broadcast_shapes(*shapes.values()) and found.dtype == dtype
    assert (expect_formula(parse(text), inputs, dtype).ratio(found) <= 1.0).all()


def test_a_formula_is_cut_into_tasks_and_put_together_again(engine: KernelEngine) -> None:
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((300, 40), np.float32), rng.standard_normal(40, np.float32)
    found, tasks = travel(spec_of("x * y + 2", {"x": x, "y": y}), engine)
    assert tasks > 3
    assert np.allclose(found, x * y + 2, rtol=1e-6, atol=1e-6)


def test_values_that_are_not_finite_come_out_as_numpys(engine: KernelEngine) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0], np.float32)
    found, _ = travel(spec_of("where(x > 0, x, -x) / (x - x + 1)", {"x": x}), engine)
    with np.errstate(all="ignore"):
        assert np.array_equal(found, np.where(x > 0, x, -x) / (x - x + 1), equal_nan=True)


@pytest.mark.parametrize("text", ["exp(-x*x) / y", "x ** 0.5 + y", "log(exp(-x*x)) / y", "0 * x / y"])
def test_an_honest_result_is_never_wrong_where_float32_loses_a_number(engine: KernelEngine, text: str) -> None:
    """exp(-400) / 0 is NaN in float32, and infinite in truth: two such tasks put an honest worker into quarantine."""
    x = np.array([20.0, 0.0, -0.0, 1.0, -np.inf, np.inf, np.nan, 1e-42] * 2, np.float32)
    travel(spec_of(text, {"x": x, "y": np.repeat(np.float32([0, 2]), 8)}), engine)


lengths = st.sampled_from([1, 2, 3, 5])


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(lengths, min_size=0, max_size=4),
    drops=st.lists(st.integers(0, 15), min_size=3, max_size=3),
    data=st.data(),
)
def test_any_shapes_that_broadcast_give_each_element_once(
    shape: list[int], drops: list[int], data: st.DataObject
) -> None:
    shapes = {}
    for name, drop in zip("xyz", drops, strict=True):
        own = [1 if drop >> axis & 1 else length for axis, length in enumerate(shape)]
        shapes[name] = tuple(own[data.draw(st.integers(0, len(own))) if all(n == 1 for n in own) else 0 :])
    rng = np.random.default_rng(6)
    inputs = {name: np.asarray(rng.standard_normal(own), np.float32) for name, own in shapes.items()}
    found, _ = travel(
        spec_of("x + 2 * y - z", inputs), NumpyEngine(), FleetSummary(workers=1, median_speed={"formula.float32": 5e3})
    )
    expected = inputs["x"] + np.float32(2) * inputs["y"] - inputs["z"]
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


def test_rows_of_large_inputs_travel_as_regions_of_their_blobs() -> None:
    def blob(*shape: int) -> Tensor:
        size = 4 * int(np.prod(shape))
        return Tensor(dtype="float32", shape=shape, data=Blob(digest="0" * 64, key=bytes(32), size_bytes=size))

    spec = KernelSpec(operation="formula", formula="x*y", inputs={"x": blob(1, 4096, 512), "y": blob(512)})
    plan = KERNEL.plan(spec, FleetSummary())
    task = KERNEL.cut(spec, plan, 1, WorkerProfile(), 0.0)
    x, y = task.inputs["x"], task.inputs["y"]
    assert x.shape == (4096, 512) and x.region is not None and y.region is None
    first, stop = x.region[0]
    assert task.outputs["out"].shape == (stop - first, 512)
    assert (first * 512 * 4) % RECORD_BYTES == 0


@pytest.mark.parametrize(
    ("text", "shapes", "says"),
    [
        ("", {"x": (3,)}, "empty"),
        ("exp(x", {"x": (3,)}, "at character 6"),
        ("exp(z) + x", {"x": (3,)}, "Unknown name 'z' at character 5"),
        ("expo(x)", {"x": (3,)}, "Unknown function 'expo' at character 1"),
        ("x / 0", {"x": (3,)}, "divides by the constant 0 at character 5"),
        ("x.__class__", {"x": (3,)}, "has no meaning"),
        ("where(x, 1)", {"x": (3,)}, "takes 3 argument"),
        ("x + 1", {"x": (3,), "y": (3,)}, "does not use 'y'"),
        ("1 + 2", {}, "constants alone"),
        ("x + y", {"x": (3,), "y": (4,)}, "do not broadcast"),
        ("a+b+c+d+f+g+h+i", dict.fromkeys("abcdfghi", (3,)), "at most 7 arrays"),
        ("+".join(["x"] * 300), {"x": (3,)}, "at most 400 parts"),
        ("(" * 100 + "x" + ")" * 100, {"x": (3,)}, "deep"),
        ("x" + "\u3000" * 4000, {"x": (3,)}, "at most 10,000 bytes"),
        ("n" * 65, {"n" * 65: (3,)}, "too long"),
    ],
)
def test_a_mistake_is_named_and_pointed_at(text: str, shapes: dict[str, tuple[int, ...]], says: str) -> None:
    spec = KernelSpec(
        operation="formula",
        formula=text,
        inputs={
            name: Tensor(dtype="float32", shape=shape, data=bytes(4 * int(np.prod(shape))))
            for name, shape in shapes.items()
        },
    )
    with pytest.raises(InvalidJob, match=says):
        KERNEL.validate(spec)


def test_what_does_not_fit_together_is_refused() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(InvalidJob, match="no benchmark"):
        KERNEL.validate(KernelSpec(operation="formula", formula="x", size=10))
    with pytest.raises(InvalidJob, match="takes no formula"):
        KERNEL.validate(KernelSpec(operation="relu", formula="a", size=10))
    spec = spec_of("x + y", {"x": x, "y": x})
    half = Tensor(dtype="float16", shape=(3,), data=bytes(6))
    with pytest.raises(InvalidJob, match="y is float16"):
        KERNEL.validate(KernelSpec(operation="formula", formula="x + y", inputs={**spec.inputs, "y": half}))
    large = {
        name: Tensor(dtype="float32", shape=shape, data=Blob(digest="0" * 64, key=bytes(32), size_bytes=4 << 21))
        for name, shape in (("x", (1 << 21, 1)), ("y", (1, 1 << 21)))
    }
    with pytest.raises(TooLarge, match="4,398,046,511,104"):
        KERNEL.validate(KernelSpec(operation="formula", formula="x + y", inputs=large))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_wrong_element_is_found_and_named(dtype: str) -> None:
    rng = np.random.default_rng(7)
    inputs = {"x": rng.standard_normal((300, 40)).astype(dtype), "y": rng.standard_normal(40).astype(dtype)}
    spec = spec_of("exp(-x*x) * sin(y)", inputs)
    plan = KERNEL.plan(spec, FleetSummary())
    task = KERNEL.cut(spec, plan, 0, WorkerProfile(), 10.0)
    opened = {name: as_array(each.data, each.dtype, each.part_shape) for name, each in task.inputs.items()}
    outputs = dict(KERNEL.run(task, opened, NumpyEngine(), Unhurried()))
    for wrong in (np.nan, np.inf, 7.0):
        spoilt = outputs["out"].copy()
        spoilt[-1, 3] = wrong
        verdict = KERNEL.check(task, opened, {"out": spoilt}, "spot", os.urandom)
        assert isinstance(verdict, Rejected) and f"({len(spoilt) - 1}, 3)" in verdict.reason
        assert not KERNEL.agree(task, opened, outputs, {"out": spoilt})
    zeros = {"out": np.zeros_like(outputs["out"])}
    assert isinstance(KERNEL.check(task, opened, zeros, "spot", os.urandom), Rejected)
