"""Quantised matrices: ggml's formats, both ways, and how far off they may be."""

from __future__ import annotations

import numpy as np
import pytest
from moregpu_kernels.errors import BadShape
from moregpu_kernels.quantise import dequantise, from_ggml, quantise, to_ggml


@pytest.mark.parametrize(("kind", "steps"), [("q8_0", 127), ("q4_0", 8)])
def test_a_quantised_value_is_within_half_a_step(kind: str, steps: int):
    matrix = np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32)
    blocks = matrix.reshape(5, 3, 32)
    step = np.abs(blocks).max(axis=2, keepdims=True) / steps
    error = np.abs(dequantise(quantise(matrix, kind)).reshape(5, 3, 32) - blocks)
    # q4_0 has 8 steps below 0 and 7 above: the far end of the other sign is a whole step off. The scale is rounded too.
    assert np.all(error <= step * (0.51 if kind == "q8_0" else 1.01) + 1e-3 * np.abs(blocks))


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_ggmls_bytes_go_in_and_out(kind: str):
    quantised = quantise(np.random.default_rng(1).standard_normal((3, 64)), kind)
    data = to_ggml(quantised)
    assert len(data) == 3 * 2 * (34 if kind == "q8_0" else 18)
    again = from_ggml(data, kind, 3, 64)
    np.testing.assert_array_equal(again.quants, quantised.quants)
    np.testing.assert_array_equal(again.scales, quantised.scales)


def test_ggmls_layout_is_byte_for_byte():
    """One block by hand: q8_0 is the scale, then 32 bytes; q4_0 has element j and j + 16 in byte j."""
    row = np.zeros((1, 32), np.float32)
    row[0, 0], row[0, 16] = -8.0, 7.0
    assert to_ggml(quantise(row, "q4_0"))[:3] == np.float16(1.0).tobytes() + bytes([0 | (15 << 4)])
    row[0, 0], row[0, 16] = 127.0, -127.0
    eight = to_ggml(quantise(row, "q8_0"))
    assert (eight[:3], eight[18]) == (np.float16(1.0).tobytes() + bytes([127]), 129)


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


def test_a_wrong_number_of_bytes_is_refused():
    with pytest.raises(BadShape, match="takes 34 bytes, not 33"):
        from_ggml(b"x" * 33, "q8_0", 1, 32)
