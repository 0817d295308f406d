"""Quantised matrices: blocks of 32 small integers that share a float16 scale, q8_0 and q4_0 of ggml.

The formats are those of https://github.com/ggml-org/ggml (`block_q8_0`, `block_q4_0`, `quantize_row_*_ref`). On a
device scales and integers lie apart, so that both are aligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from moregpu_kernels.errors import BadShape

Array = NDArray[Any]

BLOCK: Final = 32
FORMATS: Final = {"q8_0": 8, "q4_0": 4}


@dataclass(frozen=True, slots=True)
class Quantised:
    """A matrix (rows, blocks·32). `quants` is uint32 (rows, blocks·words), `scales` float16 (rows, blocks)."""

    format: str
    quants: NDArray[np.uint32]
    scales: NDArray[np.float16]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix it stands for."""
        return self.scales.shape[0], self.scales.shape[1] * BLOCK


def quantise(matrix: Array, kind: str) -> Quantised:
    """Quantise a matrix as ggml's reference does: q8_0 by the largest size of a block, q4_0 by its signed extreme.

    Raises
    ------
    BadShape
        Not two axes, or columns that are no multiple of 32; an unknown format; values that are not finite.

    """
    if kind not in FORMATS:
        raise BadShape(f"There is no format {kind!r}", f"There are: {', '.join(FORMATS)}")
    if matrix.ndim != 2 or matrix.shape[1] % BLOCK:
        raise BadShape(f"{kind} takes (rows, columns) with columns a multiple of {BLOCK}, not {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise BadShape(f"{kind} cannot hold what is not finite", "Replace NaN and infinity first")
    rows, columns = matrix.shape
    blocks = matrix.astype(np.float32).reshape(rows, columns // BLOCK, BLOCK)
    if kind == "q8_0":
        scales = np.abs(blocks).max(axis=2, initial=0.0) / np.float32(127)
        levels = np.clip(np.rint(blocks * _inverse(scales)), -128, 127).astype(np.int8).view(np.uint8)
        packed = levels
    else:
        extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)[..., 0]
        scales = extreme / np.float32(-8)
        levels = np.clip(np.floor(blocks * _inverse(scales) + np.float32(8.5)), 0, 15).astype(np.uint8)
        packed = levels[..., :16] | (levels[..., 16:] << 4)
    quants = np.ascontiguousarray(packed.reshape(rows, -1)).view(np.uint32)
    with np.errstate(over="ignore"):
        return Quantised(kind, quants, scales.astype(np.float16))


def _inverse(scales: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(divide="ignore"):
        return np.where(scales == 0, np.float32(0), np.float32(1) / scales)[..., None]


def dequantise(matrix: Quantised) -> NDArray[np.float32]:
    """The matrix that the integers stand for. Exact: 11 bits of scale times at most 8 of integer."""
    rows, blocks = matrix.scales.shape
    raw = np.ascontiguousarray(matrix.quants).view(np.uint8).reshape(rows, blocks, -1)
    if matrix.format == "q8_0":
        levels = raw.view(np.int8).astype(np.float32)
    else:
        levels = np.concatenate([raw & 15, raw >> 4], axis=2).astype(np.float32) - 8
    return (levels * matrix.scales.astype(np.float32)[..., None]).reshape(rows, blocks * BLOCK)
