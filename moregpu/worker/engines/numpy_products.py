"""Matrix products on the CPU: NumPy's BLAS, with long sums split where that BLAS needs it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.reference import product_length

if TYPE_CHECKING:
    from moregpu.worker.engines.pace import Pace

Array = np.ndarray[Any, Any]

LONG_BLOCK = 8192
"""Terms that go through BLAS in one call. Measured with OpenBLAS 0.3.31 on constants (the worst data there is): 57
units of roundoff for 8192 terms, where checking allows 544; splitting at 512 instead costs 6 to 20 %."""

SAFE_BLOCK = 256
"""Terms a call where BLAS does worse: within the bound whatever its order of summation."""

SMALL = 1 << 21
"""Multiplications up to which sums are always split, in one stacked call, as those with vectors are: OpenBLAS has other
kernels for products below 10⁶ and for vectors, whose sums are five times as long (307 units for 8192 terms)."""

MOST_BANDS = 4
"""Ways to cut columns that are weighed."""

THINNEST = 16
"""Rows that a piece of a product keeps, so that BLAS stays efficient; columns are cut before."""


def product(a: Array, b: Array, out: Array, pace: Pace) -> None:
    """Write a @ b to `out`, with sums in float32; arrays are float32, or float16 that is widened piece by piece."""
    (rows, inner), columns = a.shape, b.shape[1]
    if inner == 0 or out.size == 0:
        out[...] = 0
        return
    block = min(inner, sum_block())
    # Widened once: every band of rows needs all of b.
    right = b if b.dtype == np.float32 else _widen(b, pace)
    column = 0
    while column < columns:
        # Float16 rows are widened once a band of columns: as few of these as can be.
        bands = MOST_BANDS if a.dtype == np.float32 else 1
        width = _width(rows, columns - column, pace.room() / (2.0 * block), bands)
        row = 0
        while row < rows:
            height = _even(rows - row, int(pace.room() / (2.0 * block * width)))
            place = slice(row, row + height), slice(column, column + width)
            _tile(a[place[0]], right[:, place[1]], out[place], block, pace)
            row += height
        column += width


def _width(rows: int, columns: int, area: float, bands: int) -> int:
    """Columns of the next band, where a piece may have `area` elements of the product.

    BLAS packs its operands for each piece anew, all of the rows and the columns that it takes: what is chosen has least
    to pack. Pieces of 768 rows and 512 columns do that with a sixth less than those of 308 rows and 1536 columns.
    """
    fewest = -(-columns // max(1, min(columns, int(area / min(THINNEST, rows)))))
    widths = [_even(columns, -(-columns // count)) for count in range(fewest, min(fewest + bands, columns + 1))]
    return min(widths, key=lambda width: _packed(rows, columns, width, area))


def _packed(rows: int, columns: int, width: int, area: float) -> float:
    height = _even(rows, int(area / width))
    return -(-rows // height) * -(-columns // width) * (height + width)


def _even(left: int, most: int) -> int:
    """Rows of the next piece: of as few pieces as there must be, equal ones, since BLAS is slow on a thin last one."""
    return -(-left // -(-left // max(1, min(left, most))))


def _tile(a: Array, b: Array, out: Array, block: int, pace: Pace) -> None:
    left = a if a.dtype == np.float32 else a.astype(np.float32)
    total = out if out.dtype == np.float32 else np.empty(out.shape, np.float32)
    _sum(left[:, :block], b[:block], total)
    pace.done(2.0 * total.size * block)
    inner = left.shape[1]
    part = np.empty(total.shape, np.float32) if inner > block else total
    for start in range(block, inner, block):
        stop = min(start + block, inner)
        _sum(left[:, start:stop], b[start:stop], part)
        total += part
        pace.done(2.0 * total.size * (stop - start))
    if total is not out:
        out[...] = total


def _sum(a: Array, b: Array, out: Array) -> None:
    """One call's worth of terms."""
    (rows, inner), columns = a.shape, b.shape[1]
    thin = min(rows, columns) == 1 or rows * inner * columns <= SMALL
    if inner <= 2 * SAFE_BLOCK or not thin:
        np.matmul(a, b, out=out)
        return
    whole = inner - inner % SAFE_BLOCK
    stack = np.matmul(
        a[:, :whole].reshape(rows, -1, SAFE_BLOCK).transpose(1, 0, 2), b[:whole].reshape(-1, SAFE_BLOCK, columns)
    )
    np.sum(stack, axis=0, out=out)
    if whole < inner:
        out += a[:, whole:] @ b[whole:]


def _widen(array: Array, pace: Pace) -> Array:
    wide = np.empty(array.shape, np.float32)
    step = max(1, (1 << 20) // max(1, array.shape[1]))
    for row in range(0, len(array), step):
        wide[row : row + step] = array[row : row + step]
        pace.done(0.0)
    return wide


@cache
def sum_block() -> int:
    """How many terms this machine's BLAS may sum in one call, measured once a process (5 ms).

    Constants show how long the chains of additions are, since their rounding errors all point one way. Half of the
    bound must be left, because the shapes tried here are not all there are.
    """
    allowed = product_length(LONG_BLOCK) / 2
    worst = 0.0
    for rows, columns in ((2, 150), (150, 2), (17, 17), (64, 64)):
        a, b = np.empty((rows, LONG_BLOCK), np.float32), np.empty((LONG_BLOCK, columns), np.float32)
        for constant in (0.1, 0.7):
            a[:], b[:] = constant, constant
            exact = LONG_BLOCK * float(np.float32(constant)) ** 2
            worst = max(worst, float(np.max(np.abs((a @ b) - exact))) / (exact * 2.0**-24))
    return LONG_BLOCK if worst <= allowed else SAFE_BLOCK
