"""Check a large product at a fraction of its price: Gaussian vectors pick rows, recomputing judges them.

For a random X, the residual C X − A (B X) is zero in exact arithmetic when C = A B, and costs three thin products
(Freivalds 1977). In floating point an honest C leaves a residual of the size of its rounding errors, so a row is
*selected* when `not |r| <= tau`, and tau is statistical: it may select honest rows and that costs only time, since a
selected row is judged element by element by the same rigorous bound as everywhere else (`products.judge_product`).
Data alone therefore never condemns an honest worker.

With A (M, K), B (K, N), everything in float64:

    S_k  = √(|B_k·| / |A_·k|), 0 where either norm is 0        balances the K terms: tiny columns times huge rows
    D_j  = max(|S⁻¹ B_·j|, 2⁻⁸⁰ / max_i |A_i S|)               balances the columns: one huge column hides none
    X    = D⁻¹ G, G standard normal                             signs would cancel on a (+d, −d) pair
    tau_i = 4·u·√((|A_i S|·‖S⁻¹ B D⁻¹‖_F)² + K·|C_i D⁻¹|²) + 4·u_out·|C_i D⁻¹| + 8·K·2⁻¹²⁶·|D⁻¹|

S and D are rounded to powers of two, so that scaling is exact. u = 2⁻²⁴ whatever the worker claims; u_out = 2⁻¹¹ where
C is stored as float16. One vector misses an error e in a row (in D⁻¹'s scale) with probability at most 0.8·tau/|e|.
tau leaves out what a device loses where it reads subnormal inputs as 0 (WGSL permits it). It need not hold that: tau
only selects, so where that loss is larger than tau honest rows are selected, judged by the bound that does hold it, and
pass; and a tau that is not raised misses no more wrong rows than before.
Rows of A or C that are not finite are always judged; a B that is not finite, or more than 16 selected rows, means that
the whole product is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

VECTORS = 4
MOST_ROWS = 16
"""Selected rows that are judged alone; more mean that something is wrong, or that the data is beyond tau."""

RANDOM_ROWS = 2
"""Judged whatever the vectors say."""

BLOCK_BYTES = 8 << 20
"""Float64 copies held at a time."""

U = 2.0**-24
U_OUT = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclass(frozen=True)
class Selection:
    """Rows to judge; `everything` when picking rows is pointless."""

    rows: Array
    everything: bool = False


def select_rows(a: Array, b: Array, c: Array, dtype: str, entropy: Callable[[int], bytes]) -> Selection:
    """Pick the rows of C (M, N) that may differ from A (M, K) @ B (K, N), and two random ones.

    `entropy` must not be guessable before C was handed in: the operating system's, drawn here and forgotten.
    """
    rows, inner = a.shape
    rng = np.random.Generator(np.random.Philox(key=np.frombuffer(entropy(16), np.uint64)))
    with np.errstate(all="ignore"):
        always = ~(_finite_rows(a) & _finite_rows(c))
        balance = _balance(a, b, always)
        if balance is None or np.count_nonzero(always) > MOST_ROWS:
            return Selection(np.arange(rows), everything=True)
        scaled_a, columns, frobenius = balance
        x = rng.standard_normal((b.shape[1], VECTORS)) / columns[:, None]
        y = np.concatenate([block @ x for _, block in _blocks(b)]) if inner else np.zeros((0, VECTORS))
        residual, scaled_c = np.empty((rows, VECTORS)), np.empty(rows)
        for span, block in _blocks(c):
            residual[span] = block @ x
            block /= columns
            scaled_c[span] = np.sqrt(np.einsum("ij,ij->i", block, block))
        for span, block in _blocks(a):
            residual[span] -= block @ y
        tau = 4 * U * np.sqrt((scaled_a * frobenius) ** 2 + inner * scaled_c**2)
        tau += 4 * U_OUT[dtype] * scaled_c + 8 * inner * 2.0**-126 * float(np.linalg.norm(1 / columns))
        excess = np.abs(residual).max(axis=1, initial=0.0) / tau
        selected = ~(excess <= 1.0) | always
    if np.count_nonzero(selected) > MOST_ROWS:
        return Selection(np.arange(rows), everything=True)
    chosen = np.union1d(np.flatnonzero(selected), rng.integers(0, rows, RANDOM_ROWS) if rows else [])
    return Selection(chosen.astype(np.intp))


def _balance(a: Array, b: Array, always: Array) -> tuple[Array, Array, float] | None:
    """The norms |A_i S|, D, and ‖S⁻¹ B D⁻¹‖_F; None when B is not finite."""
    rows, inner = a.shape
    squares = np.zeros(inner)
    for span, block in _blocks(a):
        block[always[span]] = 0.0
        squares += np.einsum("ij,ij->j", block, block)
    of_b = np.concatenate([np.einsum("ij,ij->i", block, block) for _, block in _blocks(b)] or [np.zeros(0)])
    if not np.all(np.isfinite(of_b)):
        return None
    ratio = np.sqrt(of_b) / np.sqrt(squares)
    weight = np.where((squares > 0) & (of_b > 0), _power_of_two(np.sqrt(ratio)), 0.0)
    inverse = np.where(weight > 0, 1 / weight, 0.0)
    scaled_a = np.empty(rows)
    for span, block in _blocks(a):
        block *= weight
        scaled_a[span] = np.sqrt(np.einsum("ij,ij->i", block, block))
    largest = float(np.max(scaled_a[~always], initial=0.0))
    of_columns = np.zeros(b.shape[1])
    for span, block in _blocks(b):
        block *= inverse[span, None]
        of_columns += np.einsum("ij,ij->j", block, block)
    least = 2.0**-80 / largest if largest > 0 else 1.0
    columns = _power_of_two(np.maximum(np.sqrt(of_columns), least))
    return scaled_a, columns, float(np.sqrt(np.sum(of_columns / columns**2)))


def _blocks(array: Array) -> Any:
    """Float64 copies of bands of rows, which the caller may overwrite, with the rows they hold."""
    step = max(1, BLOCK_BYTES // (8 * max(1, array.shape[1])))
    for start in range(0, array.shape[0], step):
        span = slice(start, min(start + step, array.shape[0]))
        yield span, array[span].astype(np.float64)


def _finite_rows(array: Array) -> Array:
    """Which rows hold only finite numbers."""
    return np.concatenate([np.isfinite(block).all(axis=1) for _, block in _raw(array)] or [np.zeros(0, bool)])


def _raw(array: Array) -> Any:
    step = max(1, BLOCK_BYTES // (array.itemsize * max(1, array.shape[1])))
    for start in range(0, array.shape[0], step):
        yield slice(start, start + step), array[start : start + step]


def _power_of_two(values: Array) -> Array:
    """The power of two at or above each positive value; 1 where the value is 0 or not finite."""
    fraction, exponent = np.frexp(values)
    good = np.isfinite(values) & (values > 0)
    exponent = np.where(fraction == 0.5, exponent - 1, exponent)
    return np.where(good, np.ldexp(1.0, np.clip(exponent, -1000, 1000)), 1.0)
