"""Elementwise and row-wise operations on the CPU, block by block in the processor's cache.

NumPy runs one operation at a time over whole arrays; where there are several, blocks that stay in cache make the second
and later ones nearly free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from moregpu_kernels.blocks import BLOCK_ELEMENTS, STREAM_ELEMENTS, STREAMED, compute
from moregpu_kernels.operations import LAYERNORM_EPSILON

from moregpu.worker.engines.pace import Pace

Array = np.ndarray[Any, Any]

LONG_ROW = 1 << 22
"""A longer row takes more than a slice; it is computed in pieces, with sums in float64."""


def blockwise(operation: str, operands: Sequence[Array], scalar: np.float32, out: Array, pace: Pace) -> None:
    """Fill `out` from operands of its shape: one axis of elements, or (rows, columns) where rows stand alone."""
    if out.size == 0:
        return
    row_elements = out.size // len(out)
    if row_elements > LONG_ROW and out.ndim == 2:
        for row in range(len(out)):
            _LONG[operation](operands[0][row], out[row], pace)
        return
    step = max(1, (STREAM_ELEMENTS if operation in STREAMED else BLOCK_ELEMENTS) // row_elements)
    row = 0
    while row < len(out):
        # One piece between two looks at the clock: as many blocks as fit a slice.
        stop = min(len(out), row + max(step, int(pace.room() / row_elements)))
        for start in range(row, stop, step):
            end = min(start + step, stop)
            compute(operation, [operand[start:end] for operand in operands], scalar, out[start:end])
        pace.done(float((stop - row) * row_elements))
        row = stop


def _long_softmax(a: Array, out: Array, pace: Pace) -> None:
    third = 1 / 3
    peak = np.float32(-np.inf)
    for span in _pieces(a, pace, third):
        peak = np.maximum(peak, np.max(a[span]).astype(np.float32))
    total = np.float64(0.0)
    for span in _pieces(a, pace, third):
        total += np.sum(np.exp(a[span].astype(np.float32) - peak), dtype=np.float64)
    for span in _pieces(a, pace, third):
        out[span] = np.exp(a[span].astype(np.float32) - peak) / np.float32(total)


def _long_layernorm(a: Array, out: Array, pace: Pace) -> None:
    third = 1 / 3
    total = squares = np.float64(0.0)
    for span in _pieces(a, pace, third):
        total += np.sum(a[span], dtype=np.float64)
    mean = total / len(a)
    for span in _pieces(a, pace, third):
        squares += np.sum((a[span] - mean) ** 2, dtype=np.float64)
    spread = np.sqrt(squares / len(a) + LAYERNORM_EPSILON)
    for span in _pieces(a, pace, third):
        out[span] = (a[span] - mean) / spread


def _pieces(a: Array, pace: Pace, share: float) -> Iterator[slice]:
    """Pieces of a row, each reported as `share` of its elements once it is done: a row takes several passes."""
    for start in range(0, len(a), BLOCK_ELEMENTS):
        stop = min(start + BLOCK_ELEMENTS, len(a))
        yield slice(start, stop)
        pace.done((stop - start) * share)


_LONG: dict[str, Callable[[Array, Array, Pace], None]] = {"softmax": _long_softmax, "layernorm": _long_layernorm}
