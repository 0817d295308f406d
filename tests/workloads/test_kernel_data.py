"""Benchmark data: the same numbers wherever and however they are made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moregpu.workloads.kernel.data import SIDE, make

ROWS, COLUMNS = 700, 600
WHOLE = make("a", ((0, ROWS), (0, COLUMNS)), 7, "float32")
LINE = make("a", ((0, 200_000),), 7, "float32")
FIRST = [2429, 30992, 10340, -28414]
OTHER_BLOCK = [-25906, -20585, -27086, 16131]


def ranges(length: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, length), st.integers(0, length)).map(lambda pair: (min(pair), max(pair)))


@settings(max_examples=60, deadline=None)
@given(rows=ranges(ROWS), columns=ranges(COLUMNS))
def test_a_region_is_a_part_of_the_whole(rows: tuple[int, int], columns: tuple[int, int]) -> None:
    part = make("a", (rows, columns), 7, "float32")
    assert np.array_equal(part, WHOLE[slice(*rows), slice(*columns)])


@settings(max_examples=30, deadline=None)
@given(span=ranges(200_000))
def test_a_stretch_is_a_part_of_the_line(span: tuple[int, int]) -> None:
    assert np.array_equal(make("a", (span,), 7, "float32"), LINE[slice(*span)])


def test_the_first_numbers_of_a_seed_never_change() -> None:
    # Written down once: workers of other versions must make the same data.
    assert (WHOLE[0, :4] * 32768).tolist() == FIRST
    assert (WHOLE[SIDE, SIDE : SIDE + 4] * 32768).tolist() == OTHER_BLOCK


def test_seed_name_and_place_all_matter() -> None:
    region = ((0, 16), (0, 16))
    first = make("a", region, 7, "float32")
    assert not np.array_equal(first, make("b", region, 7, "float32"))
    assert not np.array_equal(first, make("a", region, 8, "float32"))
    assert not np.array_equal(first, make("a", ((SIDE, SIDE + 16), (0, 16)), 7, "float32"))
    assert not np.array_equal(first, make("a", ((0, 16), (SIDE, SIDE + 16)), 7, "float32"))


def test_values_are_spread_over_minus_one_to_one() -> None:
    assert WHOLE.min() >= -1.0
    assert WHOLE.max() < 1.0
    assert abs(float(WHOLE.mean())) < 0.01
    assert abs(float(WHOLE.var()) - 1 / 3) < 0.01


@pytest.mark.parametrize("seed", [0, 1, (1 << 63) - 1])
def test_every_seed_works(seed: int) -> None:
    assert make("b", ((10**11, 10**11 + 5),), seed, "float32").shape == (5,)


def test_float16_data_is_the_float32_data_rounded() -> None:
    assert np.array_equal(make("a", ((0, 9), (3, 300)), 7, "float16"), WHOLE[:9, 3:300].astype("f2"))


def test_making_data_yields_to_the_throttle() -> None:
    calls: list[int] = []
    make("a", ((0, 512), (0, 512)), 7, "float32", lambda: calls.append(1))
    assert len(calls) == 4
