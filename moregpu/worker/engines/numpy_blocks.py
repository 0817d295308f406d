"""Elementwise and row-wise operations on the CPU, block by block in the processor's cache.

NumPy runs one operation at a time over whole arrays; where there are several, blocks that stay in cache make the second
and later ones nearly free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.blocks import BLOCK_ELEMENTS, compute

if TYPE_CHECKING:
    from moregpu.worker.engines.pace import Pace

Array = np.ndarray[Any, Any]


def blockwise(operation: str, operands: Sequence[Array], scalar: np.float32, out: Array, pace: Pace) -> None:
    """Fill `out` from operands of its shape: one axis of elements, or (rows, columns) where rows stand alone."""
    if out.size == 0:
        return
    row_elements = out.size // len(out)
    step = max(1, BLOCK_ELEMENTS // row_elements)
    row = 0
    while row < len(out):
        # One piece between two looks at the clock: as many blocks as fit a slice.
        stop = min(len(out), row + max(step, int(pace.room() / row_elements)))
        for start in range(row, stop, step):
            end = min(start + step, stop)
            compute(operation, [operand[start:end] for operand in operands], scalar, out[start:end])
        pace.done(float((stop - row) * row_elements))
        row = stop
