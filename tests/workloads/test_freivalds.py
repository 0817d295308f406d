"""Large products: vectors select rows, recomputing judges them. Honest work always passes, whatever the data."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moregpu.workloads.kernel.freivalds import MOST_ROWS, RANDOM_ROWS, select_rows
from moregpu.workloads.kernel.products import judge_product

Array = np.ndarray[Any, Any]
SIZE = 192


def data(kind: str, rows: int = SIZE, inner: int = SIZE, columns: int = SIZE) -> tuple[Array, Array]:
    """The data that made honest workers look wrong, or liars look honest, in weaker tests."""
    rng = np.random.default_rng(7)
    a = rng.standard_normal((rows, inner), dtype=np.float32)
    b = rng.standard_normal((inner, columns), dtype=np.float32)
    match kind:
        case "normal":
            pass
        case "constants":
            a[:], b[:] = 1.1, 0.9
        case "rank 1":
            a[:], b[:] = np.outer(a[:, 0], a[0]), np.outer(b[:, 0], b[0])
        case "subnormal":
            a *= np.float32(2.0**-140)
        case "one column × 1e7":
            b[:, 3] *= np.float32(1e7)
        case "one term × 1e7":
            a[:, 5] *= np.float32(1e7)
        case "balanced scales":
            scale = np.float32(2.0) ** rng.integers(-40, 40, inner).astype(np.float32)
            a *= scale
            b /= scale[:, None]
        case "infinities in half the rows":
            a[::2, 1] = np.inf
        case "infinite column":
            b[:, 2] = np.inf
        case "one NaN":
            a[17, 4] = np.nan
        case "zeros":
            a[:] = 0
        case "zero rows and columns":
            a[3], b[:, 5], a[:, 7] = 0, 0, 0
        case "huge":
            a *= np.float32(1e30)
        case _:
            raise AssertionError(kind)
    return a, b


KINDS = [
    "normal", "constants", "rank 1", "subnormal", "one column × 1e7", "one term × 1e7", "balanced scales",
    "infinities in half the rows", "infinite column", "one NaN", "zeros", "zero rows and columns", "huge",
]  # fmt: skip


def passes(a: Array, b: Array, c: Array, dtype: str = "float32") -> bool:
    rows = select_rows(a, b, c, dtype, os.urandom).rows
    return judge_product(a[rows], b, c[rows], dtype).wrong is None


def product(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        return a @ b


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_product_passes(kind: str) -> None:
    a, b = data(kind)
    assert passes(a, b, product(a, b))


@pytest.mark.parametrize("kind", ["normal", "constants", "rank 1", "one column × 1e7", "balanced scales"])
def test_an_honest_product_costs_little_more_than_the_vectors(kind: str) -> None:
    # With fixed vectors: errors of constants all point one way, and one draw in some hundreds selects every row.
    a, b = data(kind)
    assert len(select_rows(a, b, product(a, b), "float32", lambda count: bytes(range(count))).rows) <= RANDOM_ROWS + 1


@pytest.mark.parametrize("kind", ["normal", "constants"])
def test_an_honest_product_over_a_long_sum_passes(kind: str) -> None:
    a, b = data(kind, rows=24, inner=16_384, columns=24)
    assert passes(a, b, product(a, b))


def test_an_honest_float16_product_passes() -> None:
    a, b = (array.astype(np.float16) for array in data("normal"))
    assert passes(a, b, product(a.astype(np.float32), b.astype(np.float32)).astype(np.float16), "float16")


def test_flushed_subnormals_pass() -> None:
    a, b = data("subnormal")
    assert passes(a, b, np.zeros((SIZE, SIZE), np.float32))


def test_a_product_of_inputs_that_were_read_as_zero_passes() -> None:
    a, b = data("subnormal")
    b *= np.float32(2.0**120)
    assert passes(a, b, np.where(np.abs(a) < 2.0**-126, np.float32(0), a) @ b)


def zeros(c: Array) -> None:
    c[:] = 0


def scaled(c: Array) -> None:
    c *= np.float32(1.01)


def half_of_it(c: Array) -> None:
    c[len(c) // 2 :] = 0


def of_another_day(c: Array) -> None:
    c[:] = np.random.default_rng(1).standard_normal(c.shape, dtype=np.float32) * np.sqrt(np.float32(len(c)))


def one_row_of_zeros(c: Array) -> None:
    c[11] = 0


def one_element(c: Array) -> None:
    c[11, 5] += np.float32(0.05) * np.abs(c).max()


def opposite_pair(c: Array) -> None:
    one_element(c)
    c[11, 6] -= np.float32(0.05) * np.abs(c).max()


def not_a_number(c: Array) -> None:
    c[11, 5] = np.nan


def swapped_rows(c: Array) -> None:
    c[[3, 4]] = c[[4, 3]]


LIES = [
    zeros,
    scaled,
    half_of_it,
    of_another_day,
    one_row_of_zeros,
    one_element,
    opposite_pair,
    not_a_number,
    swapped_rows,
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("kind", ["normal", "rank 1", "balanced scales"])
def test_a_wrong_product_is_found(kind: str, lie: Any) -> None:
    a, b = data(kind)
    c = product(a, b)
    lie(c)
    assert not passes(a, b, c)


def test_an_error_in_a_small_column_is_not_hidden_by_a_huge_one() -> None:
    a, b = data("one column × 1e7")
    c = product(a, b)
    c[11, 5] += np.float32(1.0)
    assert not passes(a, b, c)


def test_a_finite_answer_where_infinity_belongs_is_found() -> None:
    a, b = data("one NaN")
    assert not passes(a, b, np.nan_to_num(product(a, b)))


def test_many_wrong_rows_mean_that_everything_is_recomputed() -> None:
    a, b = data("normal")
    c = product(a, b)
    c[: MOST_ROWS + 1] *= 2
    assert select_rows(a, b, c, "float32", os.urandom).everything


lengths = st.integers(1, 40)


@settings(max_examples=60, deadline=None)
@given(lengths, lengths, lengths, st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.booleans())
def test_any_shape_honest_passes_and_a_gross_error_does_not(
    rows: int, inner: int, columns: int, seed: int, size: float, wrong: bool
) -> None:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rows, inner), dtype=np.float32)
    b = rng.standard_normal((inner, columns), dtype=np.float32)
    c = product(a, b)
    if wrong:
        c[rng.integers(rows), rng.integers(columns)] += np.float32(size * (1 + np.abs(a).sum() * np.abs(b).max()))
    assert passes(a, b, c) is not wrong
