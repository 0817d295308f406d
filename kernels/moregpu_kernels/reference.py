"""The truth about each operation: its value in float64, and how far an honest float32 result may be from it.

`expect` gives an `Expected`; `Expected.ratio(output)` judges. The bounds hold for any order of summation that is named
in them and for results with or without fused multiply-add. u = 2⁻²⁴ is float32's unit roundoff; results stored as
float16 get half a unit of that on top. Nothing is relative to the result alone, so cancellation condemns nobody.

What overflows is part of the truth: where a partial sum may leave float32's range, an honest result may be infinite
(or NaN, where it may leave on both sides). There, and only there, such results are let through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moregpu_kernels.operations import LAYERNORM_EPSILON, OPERATIONS, OUTPUT

__all__ = [
    "LAYERNORM_EPSILON",
    "OPERATIONS",
    "OUTPUT",
    "Expected",
    "bound",
    "expect",
    "expect_long_row",
    "product_length",
    "reference",
]

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]

U32 = 2.0**-24
FLUSH = 2.0**-126
"""Devices may flush subnormal results to zero (WGSL permits it): an absolute error of at most this an operation.

They may read subnormal inputs as zero, too, and then lose what those would have been multiplied by: see `_flushed`."""

PIECE_ELEMENTS = 1 << 16
"""Elements of a long row that are looked at together."""

FLOAT32_LIMIT = 2.0**128 - 2.0**103
"""From here on a value rounds to infinity in float32 …"""
FLOAT16_LIMIT = 65520.0
"""… and in float16."""


@dataclass(frozen=True)
class Expected:
    """What an honest output looks like, element by element.

    `value` is the float64 reference (NaN and infinities as IEEE arithmetic gives them), `bound` the largest honest
    distance from it where it is finite, `computed` the part of it that arises before the result is stored. `highest`
    and `lowest` are how far intermediate values may rise and fall.
    """

    value: Floats
    bound: Floats
    computed: Floats
    highest: Floats
    lowest: Floats
    dtype: str

    def of_one_row(self) -> Expected:
        """The same, as an array of one row."""
        fields = (self.value, self.bound, self.computed, self.highest, self.lowest)
        return Expected(*(each[None] for each in fields), dtype=self.dtype)

    def ratio(self, output: Array) -> Floats:
        """|output − value| / bound for each element; at most 1 is right, infinite is not even comparable.

        Never NaN: what cannot be compared is wrong unless it is what NaN and infinity should be.
        """
        with np.errstate(all="ignore"):
            found = output.astype(np.float64)
            error = np.abs(found - self.value)
            ratio = np.where(error == 0.0, 0.0, error / self.bound)
            limit = FLOAT16_LIMIT if self.dtype == "float16" else FLOAT32_LIMIT
            # A value that cannot but round to infinity has no finite neighbour, however near.
            finite = np.isfinite(found) & (np.abs(self.value) - self.computed < limit)
            if finite.all():
                return np.where(np.isnan(ratio), np.inf, ratio)
            rises = (self.highest >= FLOAT32_LIMIT) | (self.value + self.computed >= limit)
            falls = (self.lowest <= -FLOAT32_LIMIT) | (self.value - self.computed <= -limit)
            # +inf of the inputs, or of sums that rise past the range; NaN where they meet their opposites.
            up, down = self.value == np.inf, self.value == -np.inf
            number = np.isfinite(self.value)
            right = np.isnan(self.value) & np.isnan(found)
            right |= (found == np.inf) & (up | (number & rises))
            right |= (found == -np.inf) & (down | (number & falls))
            right |= np.isnan(found) & ((rises & falls & number) | (up & falls) | (down & rises))
            return np.where(finite & ~np.isnan(ratio), ratio, np.where(right, 0.0, np.inf))


def expect(operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], dtype: str) -> Expected:
    """Reference and bound of `operation` on `arrays` ("a", and "b" where it takes two), stored as `dtype`.

    Products take (M, K) and (K, N); the others any shape, softmax and layernorm along the last axis. `parameters`
    holds "scalar" for saxpy and scale; it is rounded to float32 first, as every engine does.
    """
    with np.errstate(all="ignore"):
        operands: list[Any] = [arrays[name].astype(np.float64) for name in OPERATIONS[operation].inputs]
        if OPERATIONS[operation].takes_scalar:
            operands.insert(0, np.float64(np.float32(parameters.get("scalar", 1.0))))
        return _expected(*_RULES[operation](*operands), dtype)


def expect_long_row(operation: str, row: Array, dtype: str) -> Iterator[tuple[slice, Expected]]:
    """The same for one row (C,) of softmax or layernorm, piece by piece: a few megabytes, however long the row."""
    with np.errstate(all="ignore"):
        rule = _softmax_pieces if operation == "softmax" else _layernorm_pieces
        for span, value, error in rule(row):
            yield span, _expected(value, error, value, value, dtype)


def _expected(value: Floats, error: Floats, highest: Floats, lowest: Floats, dtype: str) -> Expected:
    number = np.isfinite(value)
    computed = np.where(number, error + FLUSH, 0.0)
    stored = computed
    if dtype == "float16":
        # The float32 result v is within `computed` of the value; rounding adds 2⁻¹¹|v|, or half a subnormal step.
        stored = np.where(number, computed + 2.0**-11 * (np.abs(value) + computed) + 2.0**-25, 0.0)
    return Expected(value, stored, computed, highest, lowest, dtype)


def reference(
    operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], dtype: str
) -> dict[str, Floats]:
    """The operation in float64."""
    return {OUTPUT: expect(operation, arrays, parameters, dtype).value}


def bound(operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], dtype: str) -> dict[str, Floats]:
    """The largest distance from `reference` that an honest result may have, element by element."""
    return {OUTPUT: expect(operation, arrays, parameters, dtype).bound}


def product_length(inner: int) -> float:
    """Units of roundoff that a sum of `inner` products may be off, L in |error| ≤ L·u·(|A||B|).

    Any order of K terms stays within K·u (Jeannerod and Rump, SIAM J. Matrix Anal. Appl. 34, 2013, theorem 3.1). Blocks
    of at most 512 terms added up in another accumulator stay within 512 + K/512.
    """
    return float(min(inner, 512.0 + inner / 256.0))


# ---- one rule an operation: value, bound, and the range of intermediates ---------------------------------------------

_Rule = Callable[..., tuple[Floats, Floats, Floats, Floats]]


def _matmul(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    inner = a.shape[1]
    value = a @ b
    plain, undecided = value, np.False_
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        undecided = np.isinf(a) @ _low(b) + _low(a) @ np.isinf(b)
        # Where an input is not finite, the partial sums of the other terms still count for what may overflow.
        a, b = np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0)
        plain = a @ b
    total = np.abs(a) @ np.abs(b)
    # inner·2⁻⁵³ is what the float64 reference itself may be off.
    error = (product_length(inner) * U32 + inner * 2.0**-53) * total + max(inner - 1, 0) * FLUSH
    # Each term whose factor is read as 0 is lost whole; the rest are fewer and no larger than those that `total` holds.
    low_a, low_b = _flushed(a), _flushed(b)
    if low_a.any():
        error += low_a @ np.abs(b)
    if low_b.any():
        error += np.abs(a) @ low_b
    high, low = (total + plain) / 2 + error, (plain - total) / 2 - error
    return value, error, np.where(undecided, np.inf, high), np.where(undecided, -np.inf, low)


def _elementwise(value: Floats, error: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    return value, error, value, value


def _vector_add(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    value = a + b
    return _elementwise(value, U32 * np.abs(value) + _flushed(a) + _flushed(b))


def _vector_mul(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    return _product_of(a, b)


def _scale(scalar: np.float64, a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    return _product_of(scalar, a)


def _product_of(a: Any, b: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    value, undecided = a * b, _undecided(a, b)
    error = U32 * np.abs(value) + _lost(a, b)
    return value, error, np.where(undecided, np.inf, value), np.where(undecided, -np.inf, value)


def _saxpy(scalar: np.float64, a: Floats, b: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    # Two roundings, or one where they are fused; the product alone may overflow.
    product = scalar * a
    value = product + b
    error = U32 * ((1 + U32) * np.abs(product) + np.abs(value)) + FLUSH + _lost(scalar, a) + _flushed(b)
    finite = np.where(np.isfinite(product), product, 0.0)
    high, low, undecided = np.maximum(finite, 0.0), np.minimum(finite, 0.0), _undecided(scalar, a)
    return (
        value,
        error,
        np.where(undecided, np.inf, high * (1 + U32)),
        np.where(undecided, -np.inf, low * (1 + U32)),
    )


def _low(a: Any) -> Any:
    """Which inputs a device may read as 0."""
    size = np.abs(a)
    return (size < FLUSH) & (size > 0)


def _flushed(a: Floats) -> Floats:
    """The magnitude of each of those, and 0 for the others."""
    return np.where(_low(a), np.abs(a), 0.0)


def _lost(a: Any, b: Any) -> Any:
    """What a product a·b loses where a factor is read as 0: all of it."""
    return np.where((_low(a) | _low(b)) & np.isfinite(a) & np.isfinite(b), np.abs(a * b), 0.0)


def _undecided(a: Any, b: Any) -> Any:
    """Where a subnormal meets infinity: infinity in truth, NaN where the subnormal is read as 0."""
    return (_low(a) & np.isinf(b)) | (np.isinf(a) & _low(b))


def _relu(a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    value = np.maximum(a, 0.0)
    return _elementwise(value, np.zeros_like(value))


def _gelu(a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    value = 0.5 * a * (1.0 + np.tanh(GELU_SLOPE * (a + GELU_CUBE * (a * a * a))))
    # tanh within 1e-6 of the truth (WGSL's promise is 1e-5 only for unbounded arguments; engines clamp). Its argument z
    # is off by at most 8u|z|, which moves tanh by 8u·|z|/cosh²z ≤ 3.6u; two more roundings follow.
    error = 0.5 * np.abs(a) * (1e-6 + 4 * U32) + 3 * U32 * np.abs(value)
    return _elementwise(value, error)


def _softmax(a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    columns = a.shape[-1]
    shifted = a - np.max(a, axis=-1, keepdims=True) if columns else a
    value = np.exp(shifted)
    value /= np.sum(value, axis=-1, keepdims=True)
    far = _far(shifted)
    typical = np.sum(value * far, axis=-1, keepdims=True) if columns else far
    return _elementwise(value, _softmax_error(value, far, typical, columns))


def _softmax_error(value: Floats, far: Floats, typical: Any, columns: int) -> Floats:
    """How far a float32 softmax may be off; `far` is t = |x − m|, `typical` its mean weighted by the values.

    exp within 3 + 2t units in the last place (WGSL's promise), so (6 + 4t)·u, and its argument rounded once, t·u; both
    here and, weighted by the values, in the sum; a sum in any order, a quotient.
    """
    return value * (5 * (far + typical) + columns + 16) * U32


def _far(shifted: Floats) -> Floats:
    return np.where(np.isfinite(shifted), np.abs(shifted), 0.0)


def _layernorm(a: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    columns = a.shape[-1]
    if not columns:
        return _elementwise(a, a)
    apart = a - np.mean(a, axis=-1, keepdims=True)
    spread = np.sqrt(np.mean(apart * apart, axis=-1, keepdims=True) + LAYERNORM_EPSILON)
    value = apart / spread
    size = np.mean(np.abs(a), axis=-1, keepdims=True)
    return _elementwise(value, _layernorm_error(value, size, spread, columns))


def _layernorm_error(value: Floats, size: Any, spread: Any, columns: int) -> Floats:
    """How far a float32 layernorm in two passes may be off; `size` is mean|x|. Sums in 8 lanes or more and a tree.

    Such a sum is within S = C/8 + 11 units. With d = x − mean, s² = variance + ε, the computed mean is off by
    δ ≤ S·u·mean|x|, each d by δ + u|d|, the variance relatively by (S+5)·u, plus δ² (Σd = 0 cancels the cross term). So
    y = d/s is off by (δ + u|d|)/s + |y|·((S+5)/2·u + δ²/2s² + 3u), and a little for products of errors. An input
    that is read as 0 moves its d by less than 2⁻¹²⁶.
    """
    units = (columns / 8 + 11) * U32
    off = (units * size + FLUSH) / spread
    return (off + np.abs(value) * (units / 2 + off * off / 2 + 8 * U32)) * (1 + 4 * units + off)


def _softmax_pieces(row: Array) -> Iterator[tuple[slice, Floats, Floats]]:
    columns = len(row)
    peak = np.max([np.max(piece) for _, piece in _pieces(row)])
    total = weighted = np.float64(0.0)
    for _, piece in _pieces(row):
        value = np.exp(piece - peak)
        total += np.sum(value)
        weighted += np.sum(value * _far(piece - peak))
    for span, piece in _pieces(row):
        value = np.exp(piece - peak) / total
        yield span, value, _softmax_error(value, _far(piece - peak), weighted / total, columns)


def _layernorm_pieces(row: Array) -> Iterator[tuple[slice, Floats, Floats]]:
    columns = len(row)
    mean = sum(np.sum(piece) for _, piece in _pieces(row)) / columns
    size = sum(np.sum(np.abs(piece)) for _, piece in _pieces(row)) / columns
    variance = sum(np.sum((piece - mean) ** 2) for _, piece in _pieces(row)) / columns
    spread = np.sqrt(variance + LAYERNORM_EPSILON)
    for span, piece in _pieces(row):
        value = (piece - mean) / spread
        yield span, value, _layernorm_error(value, size, spread, columns)


def _pieces(row: Array) -> Iterator[tuple[slice, Floats]]:
    for start in range(0, len(row), PIECE_ELEMENTS):
        span = slice(start, min(start + PIECE_ELEMENTS, len(row)))
        yield span, row[span].astype(np.float64)


GELU_SLOPE = 0.7978845608028654  # √(2/π)
GELU_CUBE = 0.044715

_RULES: dict[str, _Rule] = {
    "matmul": _matmul,
    "vector_add": _vector_add,
    "vector_mul": _vector_mul,
    "saxpy": _saxpy,
    "relu": _relu,
    "gelu": _gelu,
    "scale": _scale,
    "softmax": _softmax,
    "layernorm": _layernorm,
}
