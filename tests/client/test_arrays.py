"""NumPy arrays become tensors and come back, without surprises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.client.arrays import as_floats, buffer_of, common_floats
from moregpu.client.options import JobOptions
from moregpu.client.programs import dot, total
from moregpu.errors import InvalidJob


@pytest.mark.parametrize("value", [["a", "b"], np.array([1 + 2j]), np.array([{}], dtype=object), np.array(["x"])])
def test_what_is_no_real_number_is_refused_with_its_type(value: Any) -> None:
    with pytest.raises(InvalidJob, match="kernels take real numbers"):
        as_floats(value, "a")


@pytest.mark.parametrize(
    "program",
    [
        lambda a: common_floats({"a": a}),
        lambda a: next(total(a, JobOptions())),
        lambda a: next(dot(a, a, JobOptions())),
    ],
    ids=["kernel", "sum", "dot"],
)
def test_what_is_masked_is_not_computed_with(program: Any) -> None:
    with pytest.raises(InvalidJob, match="masked elements"):
        program(np.ma.array([1.0, 2.0], mask=[False, True]))
    program(np.ma.array([1.0, 2.0]))


@pytest.mark.parametrize("dtype", ["f8", ">f8", ">f4", "i8", "u1", "?", "i2"])
def test_every_real_type_becomes_little_endian_float32(dtype: str) -> None:
    array = as_floats(np.array([[0, 1]]).astype(dtype), "a")
    assert array.dtype == np.dtype("<f4")
    assert array.tolist() == [[0.0, 1.0]]


def test_float16_stays_and_meets_only_its_kind() -> None:
    half, single = np.ones(3, np.float16), np.ones(3, np.float32)
    assert as_floats(half, "a").dtype == np.float16
    assert as_floats(half.astype(">f2"), "a").dtype == np.dtype("<f2")
    assert {array.dtype for array in common_floats({"a": half, "b": half}).values()} == {np.dtype("<f2")}
    assert {array.dtype for array in common_floats({"a": half, "b": single}).values()} == {np.dtype("<f4")}


def test_an_array_that_fits_is_not_copied() -> None:
    array = np.ones((4, 4), np.float32)
    assert as_floats(array, "a") is array


def test_the_same_array_twice_is_converted_once() -> None:
    array = np.ones((4, 4))
    floats = common_floats({"a": array, "b": array})
    assert floats["a"] is floats["b"]


def test_what_lies_across_memory_is_laid_in_rows() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (array.T, array[:, ::2], array[::-1]):
        floats = as_floats(view, "a")
        assert floats.flags.c_contiguous
        assert bytes(buffer_of(floats)) == view.tobytes()


def test_nan_infinity_and_negative_zero_come_through_bit_for_bit() -> None:
    array = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    assert bytes(buffer_of(as_floats(array, "a"))) == array.tobytes()
    assert np.isinf(as_floats(np.array([1e300]), "a")).all()


@given(st.lists(st.integers(0, 4), max_size=4))
def test_buffers_of_all_shapes_are_their_bytes(shape: list[int]) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    assert bytes(buffer_of(array)) == array.tobytes()
