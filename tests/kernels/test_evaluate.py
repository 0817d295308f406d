"""Formulas on the CPU stay within the bound that judges them, function by function, whatever the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moregpu_kernels.evaluate import evaluate, pieces
from moregpu_kernels.formula import FUNCTIONS, names_of, parse
from moregpu_kernels.reference_formula import expect_formula

Array = np.ndarray[Any, Any]

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, -1e-30, 1e30, 88.7, -87.0, 3e38, 2.0**-140, np.inf, -np.inf, np.nan, 100.0],
    np.float32,
)


def worst(text: str, values: dict[str, Array]) -> float:
    expression = parse(text)
    found = evaluate(expression, values)
    return float(np.max(expect_formula(expression, values, "float32").ratio(found), initial=0.0))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 1e4])
def test_every_function_is_within_its_bound(function: str, scale: float) -> None:
    rng = np.random.default_rng(3)
    names = "xyz"[: FUNCTIONS[function]]
    values = {name: (rng.standard_normal(20_000) * scale).astype("f4") for name in names}
    assert worst(f"{function}({', '.join(names)})", values) <= 1.0


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_is_right_about_values_that_are_special(function: str) -> None:
    names = "xyz"[: FUNCTIONS[function]]
    grid = np.meshgrid(*([SPECIAL] * len(names)))
    assert worst(f"{function}({', '.join(names)})", dict(zip(names, grid, strict=True))) <= 1.0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_a_formula_of_several_parts_is_within_its_bound(x: list[float], y: list[float]) -> None:
    count = min(len(x), len(y))
    values = {"x": np.array(x[:count], "f4"), "y": np.array(y[:count], "f4")}
    assert worst("where(x > y, exp(-x*x) * sin(y), tanh(x) / (1 + abs(y)))", values) <= 1.0


def test_the_half_power_is_not_the_root_where_the_two_differ() -> None:
    """NumPy takes the root for a lone exponent from some version on, and ended what was right on other machines."""
    x = np.array([-np.inf, -0.0, np.inf, 4.0], np.float32)
    for values in ({"x": x}, {"x": x, "y": np.array(0.5, "f4")}, {"x": x, "y": np.full(4, 0.5, "f4")}):
        found = evaluate(parse("x ** y" if "y" in values else "x ** 0.5"), values)
        np.testing.assert_array_equal(found, [np.inf, 0.0, np.inf, 2.0])
        assert not np.signbit(found).any()
        assert (expect_formula(parse("1 / x ** 0.5"), {"x": x}, "float32").value == [0, np.inf, 0, 0.5]).all()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("exp(-x*x) / y", (20.0, 0.0)),
        ("exp(-x*x) / (exp(-x*x) * y)", (20.0, 0.0)),
        ("(x*x - x*x*y) / 0.0**1", (0.1, 1.0)),
        ("x / y", (1e-42, 0.0)),
        ("x ** y**0.5", (-1.0, 1e19)),
        ("nan ** (x * 0.001)", (1e-39, 1.0)),
        ("(x * y) ** -1", (1e-42, 3e38)),
        ("((x < 0) - y) ** -2", (-1e-42, 0.2)),
        ("x - (y > 0)", (-3.9e-4, 1e-42)),
    ],
)
@pytest.mark.parametrize("flushes", [False, True])
def test_where_an_error_decides_between_two_worlds_both_are_right(
    text: str, values: tuple[float, float], flushes: bool
) -> None:
    """A denominator or a step that float32 loses: NaN instead of infinity, 1 instead of 0."""
    given = {name: np.array([value], "f4") for name, value in zip("xy", values, strict=True)}
    seen = {name: np.where(np.abs(each) < 2.0**-126, np.float32(0), each) if flushes else each
            for name, each in given.items()}  # fmt: skip
    expression = parse(text)
    used = {name: given[name] for name in names_of(expression)}
    found = evaluate(expression, {name: seen[name] for name in used})
    assert expect_formula(expression, used, "float32").ratio(found) <= 1.0


def test_what_no_error_decides_stays_decided() -> None:
    x = np.array([-1.0, 0.0, 2.0, np.nan], "f4")
    for text, lie in (("x / 0.0**1", 7.0), ("x ** 0.3", 7.0), ("x ** -2", 0.5), ("0 / 0.0**1 + x", 1.0)):
        expected = expect_formula(parse(text), {"x": x}, "float32")
        assert not (expected.ratio(np.full(4, lie, "f4"))[[0, 3]] <= 1.0).any(), text


def test_pieces_of_arrays_that_broadcast_are_those_of_the_whole() -> None:
    rng = np.random.default_rng(1)
    values: dict[str, Array] = {
        "x": rng.standard_normal((7, 1, 5)).astype("f4"),
        "y": rng.standard_normal((3, 5)).astype("f4"),
        "z": rng.standard_normal((7, 3, 5)).astype("f4"),
        "k": np.array(2.5, "f4"),
    }
    expression = parse("x * y + k * z")
    out = np.empty(105, np.float32)
    for span, part in pieces(values, (7, 3, 5), 16):
        out[span] = evaluate(expression, part)
    assert np.array_equal(out.reshape(7, 3, 5), values["x"] * values["y"] + np.float32(2.5) * values["z"])


def test_a_piece_of_nothing_is_nothing() -> None:
    assert list(pieces({"x": np.zeros((0, 4), np.float32)}, (0, 4))) == []
