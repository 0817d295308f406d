"""A region of an array is read as the bytes that NumPy would cut out."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moregpu.blobs.format import RECORD_BYTES, open_range, seal
from moregpu.blobs.regions import WINDOW_BYTES, read_part, spans
from moregpu.errors import InvalidJob
from moregpu.jobs import ITEM_BYTES, Blob, Tensor

DTYPES = ["float32", "float16", "float64", "int8", "int64", "uint8"]


@st.composite
def parts(draw: st.DrawFn) -> tuple[Any, tuple[tuple[int, int], ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    dtype = draw(st.sampled_from(DTYPES))
    region = []
    for length in shape:
        start = draw(st.integers(0, length))
        region.append((start, draw(st.integers(start, length))))
    array = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    return array, tuple(region)


@given(parts())
def test_an_inline_region_is_numpys(part: tuple[Any, tuple[tuple[int, int], ...]]) -> None:
    array, region = part
    tensor = Tensor(dtype=array.dtype.name, shape=array.shape, data=array.tobytes(), region=region)
    expected = array[tuple(slice(*pair) for pair in region)].tobytes()
    assert read_part(tensor, no_read) == expected
    out = bytearray(len(expected))
    assert read_part(tensor, no_read, memoryview(out)) is not None
    assert out == expected


def no_read(start: int, stop: int, out: memoryview) -> None:
    raise AssertionError("an inline tensor is not read")


@given(parts())
def test_spans_are_in_order_apart_and_as_few_as_can_be(part: tuple[Any, tuple[tuple[int, int], ...]]) -> None:
    array, region = part
    found = list(spans(array.shape, array.dtype.name, region))
    assert all(start < stop for start, stop in found)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
    data = array.tobytes()
    expected = array[tuple(slice(*pair) for pair in region)].tobytes()
    assert b"".join(data[start:stop] for start, stop in found) == expected


ROWS, COLUMNS = 40, 100_000  # 16 MB: rows of 400 kB
MATRIX = np.arange(ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)
BLOB, SEALED = seal(memoryview(MATRIX).cast("B"))


@given(st.integers(0, ROWS), st.integers(0, ROWS), st.integers(0, COLUMNS), st.integers(0, COLUMNS))
@settings(max_examples=25, deadline=None)
def test_a_tile_of_a_blob_is_numpys_and_opens_few_records_twice(a: int, b: int, c: int, d: int) -> None:
    (top, bottom), (left, right) = sorted((a, b)), sorted((c, d))
    tensor = Tensor(dtype="float32", shape=MATRIX.shape, data=BLOB, region=((top, bottom), (left, right)))
    opened = 0

    def read(start: int, stop: int, out: memoryview) -> None:
        nonlocal opened
        opened += -(-stop // RECORD_BYTES) - start // RECORD_BYTES
        open_range(BLOB, lambda low, high: memoryview(SEALED)[low:high], start, stop, out)

    assert read_part(tensor, read) == MATRIX[top:bottom, left:right].tobytes()
    touched = (bottom - top) * COLUMNS * 4 // RECORD_BYTES + 2
    assert opened <= touched + 2 * (touched * RECORD_BYTES // (WINDOW_BYTES - RECORD_BYTES) + 1)


def test_pieces_far_apart_are_read_one_by_one() -> None:
    """A narrow column of rows longer than a record: what lies between is not opened."""
    asked: list[tuple[int, int]] = []
    row = 3 * RECORD_BYTES
    blob = Blob(digest="0" * 64, key=bytes(32), size_bytes=4 * row)
    tensor = Tensor(dtype="uint8", shape=(4, row), data=blob, region=((0, 4), (10, 20)))
    read_part(tensor, lambda start, stop, out: asked.append((start, stop)))
    assert asked == [(number * row + 10, number * row + 20) for number in range(4)]


def test_a_whole_blob_is_one_read() -> None:
    asked: list[tuple[int, int]] = []
    tensor = Tensor(dtype="float32", shape=MATRIX.shape, data=BLOB)
    read_part(tensor, lambda start, stop, out: asked.append((start, stop)))
    assert asked == [(0, MATRIX.nbytes)]
    whole_rows = Tensor(dtype="float32", shape=MATRIX.shape, data=BLOB, region=((3, 30), (0, COLUMNS)))
    asked.clear()
    read_part(whole_rows, lambda start, stop, out: asked.append((start, stop)))
    assert asked == [(3 * COLUMNS * 4, 30 * COLUMNS * 4)]


@pytest.mark.parametrize(
    ("shape", "region"),
    [
        ((2, 2), ((0, 3), (0, 1))),
        ((2, 2), ((-1, 1), (0, 1))),
        ((2, 2), ((1, 0), (0, 1))),
        ((2, 2), ((0, 1),)),
        ((), ((0, 1),)),
    ],
)
def test_regions_outside_the_shape_are_refused(shape: tuple[int, ...], region: Any) -> None:
    with pytest.raises(InvalidJob):
        list(spans(shape, "float32", region))


def test_data_that_does_not_fit_the_shape_is_refused_before_anything_is_allocated() -> None:
    for data in (bytes(3), BLOB):
        with pytest.raises(InvalidJob, match="takes"):
            read_part(Tensor(dtype="float32", shape=(1 << 20, 1 << 20), data=data), no_read)


def test_a_buffer_of_another_size_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="do not go into"):
        read_part(Tensor(dtype="uint8", shape=(3,), data=b"abc"), no_read, bytearray(2))


def test_every_dtype_has_a_size() -> None:
    for dtype, item in ITEM_BYTES.items():
        assert list(spans((3,), dtype, None)) == [(0, 3 * item)]
