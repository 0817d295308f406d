"""The elementwise and row-wise operations in float32, on one block of elements or rows, by NumPy.

The CPU engine computes with these; checking compares with them first, since a result with the same bits needs no
further thought: each stays within the bound of `moregpu_kernels.reference`. Sums, products and maxima are rounded as
IEEE 754 says; NumPy's float32 exp and tanh are within 4 units in the last place (its own test suite holds them to
that), where the bounds allow 3 + 2|x| for exp and 1e-6 for tanh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from moregpu_kernels.operations import LAYERNORM_EPSILON
from moregpu_kernels.reference import GELU_CUBE, GELU_SLOPE

Array = np.ndarray[Any, Any]
Block = Callable[[Sequence[Array], np.float32, Array], None]
"""Reads float32 operands (and the scalar), writes a float32 block."""

BLOCK_ELEMENTS = 1 << 18
"""1 MiB an array: the later passes of an operation find the block in cache, and calls cost little. Measured: 2¹⁷ to 2¹⁸
are best for all nine; a tenth of that costs single-pass operations 20 to 70 %."""

STREAM_ELEMENTS = 1 << 20
"""Of operations that pass over their data once: nothing is found in cache again, and fewer calls cost less."""

STREAMED = frozenset(("vector_add", "vector_mul", "relu", "scale"))


def compute(operation: str, operands: Sequence[Array], scalar: np.float32, out: Array) -> None:
    """Compute one block; float16 operands are widened, and the result is narrowed once."""
    block = BLOCKS[operation]
    if out.dtype == np.float32:
        block(operands, scalar, out)
    else:
        wide = np.empty(out.shape, np.float32)
        block([operand.astype(np.float32) for operand in operands], scalar, wide)
        out[...] = wide


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
