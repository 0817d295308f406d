"""Quantised matrices: ggml's blocks, and how far off they may be."""

from __future__ import annotations

import numpy as np
import pytest
from moregpu_kernels.errors import BadShape
from moregpu_kernels.quantise import dequantise, quantise


@pytest.mark.parametrize(("kind", "steps"), [("q8_0", 127), ("q4_0", 8)])
def test_a_quantised_value_is_within_half_a_step(kind: str, steps: int):
    matrix = np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32)
    blocks = matrix.reshape(5, 3, 32)
    step = np.abs(blocks).max(axis=2, keepdims=True) / steps
    error = np.abs(dequantise(quantise(matrix, kind)).reshape(5, 3, 32) - blocks)
    # q4_0 has 8 steps below 0 and 7 above: the far end of the other sign is a whole step off. The scale is rounded too.
    assert np.all(error <= step * (0.51 if kind == "q8_0" else 1.01) + 1e-3 * np.abs(blocks))


def test_ggmls_blocks_are_laid_out_byte_for_byte():
    """One block by hand: q8_0 holds an element a byte; q4_0 has elements j and j + 16 in byte j."""
    row = np.zeros((1, 32), np.float32)
    row[0, 0], row[0, 16] = -8.0, 7.0
    four = quantise(row, "q4_0")
    assert (four.scales.tolist(), four.quants.tobytes()) == ([[1.0]], bytes([0 | (15 << 4)] + [8 | (8 << 4)] * 15))
    row[0, 0], row[0, 16] = 127.0, -127.0
    eight = quantise(row, "q8_0")
    assert eight.scales.tolist() == [[1.0]]
    assert eight.quants.tobytes() == bytes([127, *[0] * 15, 129, *[0] * 15])


def test_zeros_stay_zeros():
    for kind in ("q8_0", "q4_0"):
        assert not dequantise(quantise(np.zeros((2, 32)), kind)).any()


@pytest.mark.parametrize(
    ("matrix", "kind"),
    [
        (np.zeros((2, 33)), "q8_0"),
        (np.zeros(32), "q8_0"),
        (np.zeros((2, 32)), "q3_k"),
        (np.full((1, 32), np.nan), "q4_0"),
    ],
)
def test_what_cannot_be_quantised_is_refused(matrix: np.ndarray, kind: str):
    with pytest.raises(BadShape):
        quantise(matrix, kind)
