"""Benchmark data: made from a seed wherever it is needed, the same for any region, so that it never travels.

An array is made of square blocks (lines of 2¹⁶ elements for flat arrays). A block's bits are the raw stream of Philox
4x64 keyed with (seed, array, block): NumPy promises that stream for all versions, which it does not for its
distributions. Each 16 bits become one value k/32768, −1 ≤ value < 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from moregpu.workloads.arrays import NUMPY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIDE = 256
"""Rows and columns of a block; a flat block has as many elements."""

_NAMES = {"a": 1, "b": 2}
_MASK = (1 << 64) - 1

Region = tuple[tuple[int, int], ...]


def make(
    name: str, region: Region, seed: int, dtype: str, pause: Callable[[], None] = lambda: None
) -> np.ndarray[Any, Any]:
    """Make a region (one half-open range an axis; one or two axes) of array `name` ("a" or "b") of a benchmark.

    `pause` is called between blocks (each takes well under a millisecond).
    """
    out = np.empty(tuple(stop - start for start, stop in region), NUMPY[dtype])
    if len(region) == 1:
        (whole,) = region
        for block, place, piece in _pieces(whole, SIDE * SIDE):
            out[place] = _block(name, seed, block, 0)[piece]
            pause()
        return out
    rows, columns = region
    for row, place_row, piece_row in _pieces(rows, SIDE):
        for column, place_column, piece_column in _pieces(columns, SIDE):
            out[place_row, place_column] = _block(name, seed, row, column).reshape(SIDE, SIDE)[piece_row, piece_column]
            pause()
    return out


def _pieces(span: tuple[int, int], length: int) -> Iterator[tuple[int, slice, slice]]:
    """Blocks of `length` that a range touches: their number, where they go in the range, and which part of them."""
    start, stop = span
    if start >= stop:
        return
    for block in range(start // length, (stop - 1) // length + 1):
        low, high = max(start, block * length), min(stop, (block + 1) * length)
        yield block, slice(low - start, high - start), slice(low - block * length, high - block * length)


def _block(name: str, seed: int, row: int, column: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The values of one block, flat."""
    # Philox's counter (256 bits) says where the stream starts: its low word stays free for the stream itself.
    counter = [0, row & _MASK, column & _MASK, _NAMES[name]]
    bits = np.random.Philox(key=[seed & _MASK, 0x6D6F72656770752F], counter=counter).random_raw(SIDE * SIDE // 4)
    values = bits.astype("<u8", copy=False).view("<i2").astype(np.float32)
    values *= np.float32(2.0**-15)
    return values
