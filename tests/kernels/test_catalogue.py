"""Kernels of others: the worked example of docs/kernels.md, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from moregpu_kernels.catalogue import Catalogue
from moregpu_kernels.device import Device
from moregpu_kernels.errors import BadKernel, BadShape
from moregpu_kernels.executor import Executor
from moregpu_kernels.layout import Limits, Request, Traits
from moregpu_kernels.reference import Expected

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"


def example() -> str:
    """The page's own example: what people copy is what is tested."""
    found = re.search(r"```wgsl\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found.group(1)


@pytest.fixture
def own(device: Device) -> Executor:
    return Executor(device)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_worked_example_runs_and_is_checked(own: Executor, dtype: str):
    operation = own.catalogue.register(example(), file="leaky_relu.wgsl")
    for shape in ((0,), (1,), (3,), (65, 257), (100_001,)):
        a = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        if a.size > 5:
            a.reshape(-1)[:3] = [np.nan, np.inf, -np.inf]
        out = own.apply(operation.name, {"a": a}, {"slope": 0.1})
        expected = own.catalogue.expect(operation.name, {"a": a}, {"slope": 0.1}, dtype)
        assert np.all(expected.ratio(out) <= 1.0)
        finite = np.isfinite(a)
        assert np.all(expected.ratio(out * np.asarray(1.01, dtype) + np.asarray(1, dtype))[finite] > 1.0)


def test_the_worked_example_goes_by_slices_where_a_device_binds_little(own: Executor):
    catalogue = Catalogue()
    operation = catalogue.register(example())
    planned = catalogue.plan(
        Request(operation.name, {"a": (100_000,)}, "float32", {"slope": 0.5}),
        Traits(limits=Limits(max_binding_bytes=1 << 16)),
    )
    assert len(planned.dispatches) == 7


def test_an_operation_along_rows_takes_weights(own: Executor):
    text = """//! name = "row_shift"
//! bindings = ["a: read tensor", "shift: read tensor", "out: write tensor"]
//! uniforms = ["rows: u32", "columns: u32"]
//! [options]
//! vector = 1
//! [operation]
//! inputs = ["a", "shift"]
//! along = "rows"
//! groups = "ceil_div(rows * columns, 64)"
//! reference = "a + shift"
#entry 64
  let i = group * 64u + lane;
  if i < u.rows * u.columns { store_out(i, load_a(i) + load_shift(i % u.columns)); }
}
"""
    operation = own.catalogue.register(text)
    a = np.random.default_rng(0).standard_normal((33, 17)).astype(np.float32)
    out = own.apply("row_shift", {"a": a, "shift": a[0].copy()})
    assert np.all(own.catalogue.expect(operation.name, {"a": a, "shift": a[0]}, {}, "float32").ratio(out) <= 1.0)


def test_a_function_may_judge_where_no_formula_can(own: Executor):
    text = example().replace('//! reference = "where(a > 0, a, slope * a)"\n', "").replace('"leaky_relu"', '"judged"')

    def judge(arrays, parameters, dtype):
        value = np.where(arrays["a"] > 0, arrays["a"], parameters["slope"] * arrays["a"]).astype(np.float64)
        bound = np.abs(value) * 1e-6 + 1e-30
        return Expected(value, bound, bound, value, value, dtype)

    own.catalogue.register(text, judge)
    a = np.linspace(-1, 1, 100, dtype=np.float32)
    out = own.apply("judged", {"a": a}, {"slope": 0.25})
    assert np.all(own.catalogue.expect("judged", {"a": a}, {"slope": 0.25}, "float32").ratio(out) <= 1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('//! name = "leaky_relu"', '//! name = "matmul"'), "of the library itself"),
        (('inputs = ["a"]', 'inputs = ["b"]'), "must be the inputs"),
        (('//! reference = "where(a > 0, a, slope * a)"\n', ""), "no reference"),
        (('along = "elements"', 'along = "diagonals"'), "diagonals"),
        (('uniforms = ["count", "slope"]', 'uniforms = ["count"]'), "a value for each uniform"),
        (("//! along", "//! colour = 1\n//! along"), "unknown entries"),
        (("//! along", "//! flops = 'many'\n//! along"), "no number of operations"),
        (("//! along", "//! flops = nan\n//! along"), "no number of operations"),
        (("//! [operation]", "//! [options]\n//! vector = 3\n//! [operation]"), "1 element or 4"),
        (('"where(a > 0, a, slope * a)"', '"count * a"'), "sizes of what is computed"),
    ],
)
def test_a_kernel_that_cannot_be_planned_or_checked_is_refused(change: tuple[str, str], said: str):
    assert change[0] in example()
    with pytest.raises(BadKernel, match=said):
        Catalogue().register(example().replace(*change))


def test_a_uniform_that_its_type_cannot_hold_is_refused_when_it_is_planned(own: Executor):
    own.catalogue.register(example().replace('uniforms = ["count", "slope"]', 'uniforms = ["0 - count", "slope"]'))
    with pytest.raises(BadKernel, match="no u32"):
        own.apply("leaky_relu", {"a": np.zeros(3, np.float32)}, {"slope": 1.0})


def test_another_text_under_the_same_name_is_refused():
    catalogue = Catalogue()
    first = catalogue.register(example())
    assert catalogue.register(example()).digest == first.digest
    with pytest.raises(BadKernel, match="Another kernel"):
        catalogue.register(example() + "// changed\n")


def test_a_missing_parameter_is_named(own: Executor):
    own.catalogue.register(example())
    with pytest.raises(BadKernel, match="slope"):
        own.apply("leaky_relu", {"a": np.zeros(3, np.float32)})
    with pytest.raises(BadShape, match="needs an input"):
        own.apply("leaky_relu", {"b": np.zeros(3, np.float32)}, {"slope": 1.0})
