"""Check products at about the price of computing them: float32 proves most elements right, float64 judges the rest.

The judge is `moregpu_kernels.reference`: an output C is right where |C − AB| ≤ L·u·(|A||B|) + K·2⁻¹²⁶ + F (and half a
unit of float16 where it is stored so), with L = `product_length(K)` and u = 2⁻²⁴; F ≥ 0 is what is lost where a device
reads subnormal inputs as 0. Asking it for every element takes two
products in float64, four times the work of the product itself. So each element first meets a test that is cheaper and
stricter:

    |C − R| ≤ (L − g)·u·m·(1 − 2⁻¹⁰) + K·2⁻¹²⁷

R is our own product, summed in blocks of k terms into another float32 accumulator. Whatever order BLAS takes within a
block, |R − AB| ≤ g·u·(|A||B|) + K·2⁻¹⁴⁹ with g = k + ⌈K/k⌉: k·u for the block (Jeannerod and Rump 2013, any order), and
one rounding for each block after it. m is a lower bound of |A||B|, the larger of two: the same sum over some n of the
K terms, all of them positive, less the e^(n·u) − 1 that float32 may have rounded it up; and |R| / (1 + g·u), since
|R| ≤ |AB| + g·u·(|A||B|) and |AB| ≤ |A||B|. Then

    |C − AB| ≤ |C − R| + |R − AB| ≤ (L − g)·u·(|A||B|) + g·u·(|A||B|) + K·2⁻¹²⁶ = L·u·(|A||B|) + K·2⁻¹²⁶,

so whatever passes is right by the judge's own bound, for any A, B and C, with nothing of F used. (R itself is computed
here, where subnormals are kept; what a device lost with them fails this test and meets the judge, who adds F.)
1 − 2⁻¹⁰ pays for the few float32 roundings of the test itself. Nothing overflows: tiles where K·max|A|·max|B| reaches
2¹²⁶, or that hold NaN or infinity, go to the judge at once. What fails is not wrong yet: it meets the test again with
all K terms in m, and then the judge. Measured on two idle cores: 1.4 to 1.5 times NumPy's product at 1024 and 2048.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from moregpu_kernels.reference import U32, Expected, expect, product_length

Array = np.ndarray[Any, Any]

TILE = 512
"""Rows and columns of the output that are tested at a time: four float32 arrays of it fit the second-level cache."""

SLACK = 1 - 2.0**-10

FEW_ROWS = 8
"""Rows with doubtful elements that go to the judge at once; more meet the test again, with all terms."""

CAREFUL_BYTES = 16 << 20
"""Float64 copies of operands that the judge holds at a time."""


@dataclass(frozen=True)
class Verdict:
    """Worst |error| / bound seen; with `wrong`, the element that is proven wrong, what it is and what it should be."""

    worst: float
    wrong: tuple[int, int] | None = None
    value: float = 0.0
    bound: float = 0.0


def judge_product(a: Array, b: Array, output: Array, dtype: str) -> Verdict:
    """Judge every element of `output` (M, N) against a (M, K) @ b (K, N), K ≥ 1; stops at the first proven wrong.

    Peak memory beyond the arguments: float32 copies of float16 operands, and some 64 MiB.
    """
    left, right = _float32(a), _float32(b)
    rows, columns = output.shape
    bands = [slice(at, min(at + TILE, columns)) for at in range(0, columns, TILE)]
    worst = 0.0
    with np.errstate(all="ignore"):
        heavy = _Heavy(left, right)
        reaches = [_reach(right[:, band]) for band in bands]
        desk = _Desk(min(TILE, rows), min(TILE, columns))
        for row in range(0, rows, TILE):
            high = slice(row, min(row + TILE, rows))
            reach = _reach(left[high]) * left.shape[1]
            for band, reach_b in zip(bands, reaches, strict=True):
                tile = _Tile(left[high], right[:, band], output[high, band], dtype, desk)
                ratio = None
                if reach * reach_b < 2.0**126:
                    ratio = tile.test(heavy.left[high], heavy.right[:, band])
                verdict = _settle(tile, ratio)
                worst = max(worst, verdict.worst)
                if verdict.wrong is not None:
                    at = verdict.wrong[0] + row, verdict.wrong[1] + band.start
                    return Verdict(verdict.worst, at, verdict.value, verdict.bound)
    return Verdict(worst)


def may_be_right(a: Array, b: Array, output: Array, dtype: str, asked: Array) -> bool:
    """Whether the judge lets pass all those elements of `output` that `asked` names: a mask of its shape."""
    with np.errstate(all="ignore"):
        for rows, columns in _pieces(asked, a.shape[1]):
            expected = expect("matmul", {"a": a[rows], "b": b[:, columns]}, {}, dtype)
            places = np.ix_(rows, columns)
            if not np.all(expected.ratio(output[places])[asked[places]] <= 1.0):
                return False
    return True


class _Heavy:
    """The few of the K terms that weigh most, by a glance at some rows and columns: which ones decides speed alone."""

    def __init__(self, left: Array, right: Array):
        inner = left.shape[1]
        count = min(inner, max(32, inner // 24))
        if count < inner:
            weight = np.abs(left[:: max(1, len(left) // 64)]).sum(axis=0)
            weight *= np.abs(right[:, :: max(1, right.shape[1] // 64)]).sum(axis=1)
            chosen = np.sort(np.argpartition(weight, inner - count)[inner - count :])
            left, right = left[:, chosen], right[chosen]
        self.left, self.right = np.abs(left), np.abs(right)


class _Desk:
    """Room for one tile's arrays, used again and again: fresh pages would cost as much as the arithmetic on them."""

    def __init__(self, rows: int, columns: int):
        self._arrays = np.empty((3, rows, columns), np.float32)

    def place(self, rows: int, columns: int) -> Array:
        return self._arrays[:, :rows, :columns]


class _Tile:
    """A part of the output with the rows and columns it comes from."""

    def __init__(self, a: Array, b: Array, output: Array, dtype: str, desk: _Desk):
        self.a, self.b, self.output, self.dtype = a, b, output, dtype
        self._again, self._size, self._allowed = desk.place(*output.shape)
        self._length = 0.0

    def test(self, left: Array, right: Array) -> Array:
        """|C − R| over the test's right side, with absolute values of some terms for m; valid until the next tile."""
        self._length = _recompute(self.a, self.b, self._again, self._allowed)
        np.abs(self._again, out=self._size)
        self._again -= self.output
        np.abs(self._again, out=self._again)
        return self.against(left, right)

    def against(self, left: Array, right: Array) -> Array:
        """The same test again with other terms."""
        inner = self.a.shape[1]
        spare = max(0.0, product_length(inner) - self._length) * U32 * SLACK
        allowed = np.matmul(left, right, out=self._allowed)
        allowed *= np.float32(spare * math.exp(-left.shape[1] * U32))
        known = np.multiply(self._size, np.float32(spare / (1 + self._length * U32)))
        np.maximum(allowed, known, out=allowed)
        constant = inner * 2.0**-127
        if self.dtype == "float16":
            # Stored as float16: 2⁻¹¹|AB| more. |R| may exceed |AB| by g·u·(|A||B|), which 2⁻¹¹·L·u·(|A||B|) pays for.
            allowed += np.multiply(self._size, np.float32(2.0**-11 * SLACK), out=known)
            constant += 2.0**-25 * SLACK
        allowed += np.float32(constant)
        return np.divide(self._again, allowed, out=allowed)


def _recompute(a: Array, b: Array, out: Array, part: Array) -> float:
    """Our own product, and g: the units of roundoff that it may be off, whatever BLAS does within a block."""
    inner = a.shape[1]
    if inner < 8:
        # So short a sum leaves no room between g and L in float32.
        out[...] = a.astype(np.float64) @ b.astype(np.float64)
        return 1 + inner * 2.0**-29
    block = 256 if inner >= 512 else (inner + 1) // 2
    np.matmul(a[:, :block], b[:block], out=out)
    for start in range(block, inner, block):
        np.matmul(a[:, start : start + block], b[start : start + block], out=part)
        out += part
    return float(block + -(-inner // block))


def _reach(array: Array) -> float:
    """The largest magnitude; NaN where there is one."""
    high, low = float(array.max()), float(array.min())
    return high if high > -low else -low


def _settle(tile: _Tile, ratio: Array | None) -> Verdict:
    """Judge what the first test left open."""
    worst = 0.0
    if ratio is None:
        doubtful = np.ones(tile.output.shape, bool)
    else:
        worst = float(ratio.max())
        if worst <= 1.0:
            return Verdict(worst)
        if np.count_nonzero(~(ratio <= 1.0).all(axis=1)) > FEW_ROWS:
            ratio = tile.against(np.abs(tile.a), np.abs(tile.b))
        doubtful = ~(ratio <= 1.0)
        worst = float(np.max(ratio, where=~doubtful, initial=0.0))
    for rows, columns in _pieces(doubtful, tile.a.shape[1]):
        expected = expect("matmul", {"a": tile.a[rows], "b": tile.b[:, columns]}, {}, tile.dtype)
        verdict = _worst(expected, tile.output[np.ix_(rows, columns)])
        worst = max(worst, verdict.worst)
        if verdict.wrong is not None:
            at = int(rows[verdict.wrong[0]]), int(columns[verdict.wrong[1]])
            return Verdict(verdict.worst, at, verdict.value, verdict.bound)
    return Verdict(worst)


def _pieces(doubtful: Array, inner: int) -> Iterator[tuple[Array, Array]]:
    """Rows and columns that hold doubtful elements, few enough at a time for float64 copies of their operands."""
    step = max(1, min(TILE, CAREFUL_BYTES // (8 * max(1, inner))))
    rows = np.flatnonzero(doubtful.any(axis=1))
    for row in range(0, len(rows), step):
        band = rows[row : row + step]
        columns = np.flatnonzero(doubtful[band].any(axis=0))
        for column in range(0, len(columns), step):
            yield band, columns[column : column + step]


def _worst(expected: Expected, found: Array) -> Verdict:
    ratio = expected.ratio(found)
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    worst = float(ratio[at])
    if worst <= 1.0:
        return Verdict(worst)
    return Verdict(worst, (int(at[0]), int(at[1])), float(expected.value[at]), float(expected.bound[at]))


def _float32(array: Array) -> Array:
    return array if array.dtype == np.float32 else array.astype(np.float32)
