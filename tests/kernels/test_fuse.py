"""Fusing: chains and formulas become one kernel, and give what the unfused steps give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moregpu_kernels.errors import BadFormula
from moregpu_kernels.executor import Executor
from moregpu_kernels.formula import FUNCTIONS
from moregpu_kernels.fuse import Step, expression_of, fuse, step
from moregpu_kernels.reference_formula import expect_formula
from moregpu_kernels.reference_others import expect_any

Arrays = dict[str, np.ndarray[Any, Any]]


def evaluate(
    executor: Executor, text: str, arrays: Arrays, dtype: str = "float32", **scalars: float
) -> np.ndarray[Any, Any]:
    """Run a formula, hold it against its reference, and return it."""
    out = executor.apply("formula", arrays, {"text": text, **scalars})
    expected = expect_any("formula", arrays, {"text": text, **scalars}, dtype)
    ratio = expected.ratio(out)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    assert np.all(ratio <= 1.0), (
        f"{text}: {out[worst]} for {expected.value[worst]} ± {expected.bound[worst]} at {worst}"
    )
    # A bound that lets everything through checks nothing.
    assert np.mean(expected.bound == np.finfo(np.float64).max) < 0.6
    return out


def wide(dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Values of every size and both signs, and what is not finite."""
    rng = np.random.default_rng(0)
    sizes = np.concatenate([rng.standard_normal(200) * 10.0**e for e in (-30, -6, -1, 0, 1, 2, 5, 20)])
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1.0,
        -1.0,
        0.5,
        2.0,
        88.7,
        88.8,
        -103.9,
        -104.1,
        3.4e38,
        8192.0,
        8193.0,
    ]
    return np.concatenate([sizes, special]).astype(dtype)


@pytest.mark.parametrize("function", sorted(name for name, arity in FUNCTIONS.items() if arity == 1))
def test_functions_of_one_argument_over_the_whole_range(executor: Executor, function: str):
    evaluate(executor, f"{function}(x)", {"x": wide()})


@pytest.mark.parametrize("function", sorted(name for name, arity in FUNCTIONS.items() if arity == 2))
def test_functions_of_two_arguments_over_the_whole_range(executor: Executor, function: str):
    x = np.repeat(wide()[::40], 40)[:1600]
    y = np.tile(wide()[::40], 40)[:1600]
    evaluate(executor, f"{function}(x, y)", {"x": x, "y": y})


@pytest.mark.parametrize(
    "text",
    [
        "exp(-x*x) * sin(y)",
        "x ** 3 - 2 * x + 1",
        "x ** -2",
        "x ** 0.5",
        "where(x > y, x, -y)",
        "clip(x, -1, 1) * 2",
        "1 / x",
        "x / y",
        "(x > 0) * (y < 1)",
        "2 ** y",
        "x + nan * 0",
        "x / (y - y)",
        "log(abs(x) + 1e-3)",
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_formulas(executor: Executor, text: str, dtype: str):
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((3, 67)).astype(dtype) for _ in range(2))
    evaluate(executor, text, {"x": x, "y": y}, dtype)


@pytest.mark.parametrize(
    "text",
    [
        "0 * x",
        "-0.0 * x",
        "1 / (x * -0.0)",
        "1 / (x * 0.0) - 1 / (x * -0.0)",
        "1 / (0.0 + x)",
        "1 / (0 - x)",
        "(0.0 + -0.0) * x",
        "(2 - 2) * x",
        "sin(x) / (-0.0 / 2)",
        "x * (x > x)",
        "(x != x) * x",
        "x < 1e20 * 1e20",
        "x - square(1e30)",
        "x * log(0.0)",
        "x + (1 - 1) ** -1",
        "minimum(x * x, 0.0 * nan) ** x",
    ],
)
def test_what_a_driver_would_fold_comes_out_as_numpy_has_it(executor: Executor, text: str):
    special = [0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan]
    for dtype in ("float32", "float16"):
        evaluate(executor, text, {"x": np.array(special, dtype)}, dtype)


@pytest.mark.parametrize("text", ["x ** 0.5", "1 / x ** 0.5", "x ** y", "1 / x ** y"])
def test_powers_of_infinity_and_of_the_other_zero(executor: Executor, text: str):
    special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, np.inf, -np.inf, np.nan], np.float32)
    x, y = np.repeat(special, len(special)), np.tile(special, len(special))
    if "y" not in text:
        evaluate(executor, text, {"x": x})
        return
    evaluate(executor, text, {"x": x, "y": y})
    for exponent in special.tolist():
        evaluate(executor, text, {"x": x}, y=exponent)


def test_dividing_by_zero_gives_numpys_infinities_and_nan(executor: Executor):
    x = np.asarray([1, -1, 0, np.nan, np.inf, -0.0], np.float32)
    zero = np.zeros(6, np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluate(executor, "x / z", {"x": x, "z": zero}), x / zero)
        np.testing.assert_array_equal(evaluate(executor, "x / z", {"x": x, "z": -zero}), x / -zero)


def test_arrays_broadcast_as_in_numpy_and_scalars_are_parameters(executor: Executor):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    for shape in ((6,), (5, 1), (4, 1, 6), (1, 1, 1), (1,), (4, 5, 1), ()):
        y = rng.standard_normal(shape).astype(np.float32)
        out = evaluate(executor, "x * y + k", {"x": x, "y": y}, k=2.5)
        assert out.shape == (4, 5, 6)
        half = executor.apply(
            "formula", {"x": x.astype(np.float16), "y": y.astype(np.float16)}, {"text": "x * y + k", "k": 2.5}
        )
        assert half.dtype == np.float16 and half.shape == (4, 5, 6)
    grid = evaluate(executor, "x - y", {"x": x[0, 0][:, None].copy(), "y": x[1, 1]})
    assert grid.shape == (6, 6)


def test_a_chain_becomes_one_step_with_the_same_result(executor: Executor):
    x, y = (np.random.default_rng(i).standard_normal(1001).astype(np.float32) for i in range(2))
    steps = [
        step("scale", {"a": "x"}, "p", scalar=2.0),
        step("vector_add", {"a": "p", "b": "y"}, "q"),
        step("relu", {"a": "q"}, "r"),
        step("vector_mul", {"a": "r", "b": "x"}, "s"),
        step("scale", {"a": "s"}, "t", scalar=0.5),
    ]
    shapes = dict.fromkeys("xypqrst", (1001,))
    assert len(fuse(steps, ["t"], shapes)) == 1
    feeds = {"x": x, "y": y}
    together = executor.run(steps, feeds, ["t"])["t"]
    apart = executor.run(steps, feeds, ["t"], fused=False)["t"]
    np.testing.assert_allclose(together, apart, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(together, np.maximum(2 * x + y, 0) * x * 0.5, rtol=1e-5, atol=1e-6)


def test_what_others_read_or_want_is_not_fused_away():
    shapes = dict.fromkeys("xabc", (4,))
    steps = [step("relu", {"a": "x"}, "a"), step("exp", {"a": "a"}, "b"), step("vector_add", {"a": "a", "b": "b"}, "c")]
    assert [one.output for one in fuse(steps, ["c"], shapes)] == ["a", "c"]
    assert [one.output for one in fuse(steps, ["c", "b"], shapes)] == ["a", "b", "c"]


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Elementwise steps over x, y and what came before, in any order and reuse."""
    steps: list[Step] = []
    names = ["x", "y"]
    for number in range(draw(st.integers(2, 8))):
        operation = draw(st.sampled_from(["vector_add", "vector_mul", "saxpy", "scale", "relu", "tanh"]))
        inputs = {"a": draw(st.sampled_from(names))}
        if operation in ("vector_add", "vector_mul", "saxpy"):
            inputs["b"] = draw(st.sampled_from(names))
        scalars = {"scalar": draw(st.floats(-2, 2, width=16))} if operation in ("saxpy", "scale") else {}
        steps.append(step(operation, inputs, f"t{number}", **scalars))
        names.append(f"t{number}")
    return steps


def outcome(steps: list[Step], name: str) -> np.ndarray[Any, Any]:
    """What a list of steps computes, by the float64 reference."""
    values: dict[str, Any] = {"x": np.linspace(-2, 2, 9), "y": np.linspace(3, -1, 9)}
    for one in steps:
        expression = one.expression or expression_of(one.operation, one.parameters)
        assert expression is not None
        given = {key: values[tensor] for key, tensor in one.inputs.items()} | dict(one.parameters)
        values[one.output] = expect_formula(expression, given, "float32").value
    return values[name]


@given(programs(), st.data())
def test_any_program_means_the_same_when_fused(steps: list[Step], data: st.DataObject):
    wanted = data.draw(st.sampled_from([one.output for one in steps]))
    shapes = dict.fromkeys(["x", "y", *(one.output for one in steps)], (9,))
    fused = fuse(steps, [wanted, steps[-1].output], shapes)
    for name in {wanted, steps[-1].output}:
        np.testing.assert_allclose(outcome(fused, name), outcome(steps, name), rtol=1e-9, atol=1e-9)
    assert all(len(one.inputs) <= 7 for one in fused)


def test_fusing_stops_at_seven_arrays():
    names = [f"n{i}" for i in range(10)]
    steps = [step("vector_add", {"a": "n0", "b": "n1"}, "s1")]
    steps += [step("vector_add", {"a": f"s{i}", "b": f"n{i + 1}"}, f"s{i + 1}") for i in range(1, 9)]
    fused = fuse(steps, ["s9"], dict.fromkeys([*names, *(f"s{i}" for i in range(10))], (4,)))
    assert 1 < len(fused) < len(steps)
    assert all(len(one.inputs) <= 7 for one in fused)


def test_an_unknown_name_is_refused_before_anything_runs(executor: Executor):
    with pytest.raises(BadFormula, match="Unknown name 'q'"):
        executor.apply("formula", {"x": np.zeros(3, np.float32)}, {"text": "x * q"})
