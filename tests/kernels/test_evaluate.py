"""Formulas on the CPU stay within the bound that judges them, function by function, whatever the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moregpu_kernels.evaluate import evaluate, pieces
from moregpu_kernels.formula import FUNCTIONS, parse
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
