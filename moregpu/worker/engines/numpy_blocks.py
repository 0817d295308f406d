"""Elementwise and row-wise operations on the CPU, block by block in the processor's cache.

NumPy runs one operation at a time over whole arrays; where there are several, blocks that stay in cache make the second
and later ones nearly free. Arithmetic is float32; float16 is widened and narrowed a block at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.reference import GELU_CUBE, GELU_SLOPE, LAYERNORM_EPSILON

if TYPE_CHECKING:
    from moregpu.worker.engines.pace import Pace

Array = np.ndarray[Any, Any]
Block = Callable[[Sequence[Array], np.float32, Array], None]
"""Reads float32 operands (and the scalar), writes a float32 block."""

BLOCK_ELEMENTS = 1 << 16
"""256 KiB an array: operands, result and a temporary fit a core's second-level cache."""


def blockwise(block: Block, operands: Sequence[Array], scalar: np.float32, out: Array, pace: Pace) -> None:
    """Fill `out` from operands of its shape: one axis of elements, or (rows, columns) where rows stand alone."""
    if out.size == 0:
        return
    row_elements = out.size // len(out)
    step = max(1, BLOCK_ELEMENTS // row_elements)
    wide = out.dtype == np.float32
    buffer = np.empty((0,), np.float32) if wide else np.empty((min(step, len(out)), *out.shape[1:]), np.float32)
    row = 0
    while row < len(out):
        # One piece between two looks at the clock: as many blocks as fit a slice.
        stop = min(len(out), row + max(step, int(pace.room() / row_elements)))
        for start in range(row, stop, step):
            end = min(start + step, stop)
            views = [operand[start:end] for operand in operands]
            if wide:
                block(views, scalar, out[start:end])
            else:
                target = buffer[: end - start]
                block([view.astype(np.float32) for view in views], scalar, target)
                out[start:end] = target
        pace.done(float((stop - row) * row_elements))
        row = stop


def _vector_add(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    np.add(operands[0], operands[1], out=out)


def _vector_mul(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    np.multiply(operands[0], operands[1], out=out)


def _saxpy(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    np.multiply(operands[0], scalar, out=out)
    out += operands[1]


def _scale(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    np.multiply(operands[0], scalar, out=out)


def _relu(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    np.maximum(operands[0], np.float32(0), out=out)


def _gelu(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    (a,) = operands
    np.multiply(a, a, out=out)
    out *= a
    out *= np.float32(GELU_CUBE)
    out += a
    out *= np.float32(GELU_SLOPE)
    np.tanh(out, out=out)
    # Halved before it is multiplied: a·(1 + tanh) would overflow near the largest float.
    out += np.float32(1)
    out *= np.float32(0.5)
    out *= a


def _softmax(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    (a,) = operands
    np.subtract(a, np.max(a, axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= np.sum(out, axis=-1, keepdims=True)


def _layernorm(operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    (a,) = operands
    lost = ~np.isfinite(_normalise(a, out))
    if lost.any():
        # Squares leave float32's range from 1e19 on, where the result itself does not: those rows again, wider.
        rows = a[lost].astype(np.float64)
        wide = np.empty_like(rows)
        _normalise(rows, wide)
        out[lost] = wide


def _normalise(a: Array, out: Array) -> Array:
    """Write the normalised rows; return their variances."""
    columns = a.dtype.type(a.shape[-1])
    # NumPy sums in pairs along the last axis: the bound of the reference counts on it.
    mean = np.sum(a, axis=-1, keepdims=True) / columns
    np.subtract(a, mean, out=out)
    variance = np.sum(out * out, axis=-1, keepdims=True) / columns
    out /= np.sqrt(variance + a.dtype.type(LAYERNORM_EPSILON))
    return variance[..., 0]


BLOCKS: dict[str, Block] = {
    "vector_add": _vector_add,
    "vector_mul": _vector_mul,
    "saxpy": _saxpy,
    "relu": _relu,
    "gelu": _gelu,
    "scale": _scale,
    "softmax": _softmax,
    "layernorm": _layernorm,
}
