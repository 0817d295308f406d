"""Do two workers' outputs of one kernel task agree: so near that both can be right.

Two results that are each within the judge's bound of the truth (`moregpu_kernels.reference`) are within twice the bound
of one another, so honest workers always agree, whatever device and order of summation. For products the bound itself is
bounded by norms, |A_i|·|B_j| ≤ ‖A_i‖·‖B_j‖, so that nobody has to multiply again. Elements that are further apart may
both be right all the same, where sums leave the range of numbers in one order and not in another, or where nobody can
say what is right: those few meet the judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.evaluate import pieces
from moregpu_kernels.operations import OPERATIONS, OUTPUT
from moregpu_kernels.reference import FLUSH, U32, Expected, expect, expect_long_row, product_length
from moregpu_kernels.reference_formula import expect_formula

from moregpu.workloads.arrays import misfit
from moregpu.workloads.kernel.check import BAND_ELEMENTS, LONG_ROW
from moregpu.workloads.kernel.custom import CUSTOM
from moregpu.workloads.kernel.formulas import FORMULA, expression_of
from moregpu.workloads.kernel.products import may_be_right
from moregpu.workloads.kernel.run import operands_of, operation_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moregpu.workloads.protocol import Array, TaskSpec

U16 = 2.0**-11


def agree(task: TaskSpec, inputs: Mapping[str, Array], one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Whether both outputs of a task could be right together; one of another shape or dtype agrees with nothing."""
    if misfit(one, task.outputs) or misfit(other, task.outputs):
        return False
    first, second = one[OUTPUT], other[OUTPUT]
    if first.size == 0 or first.tobytes() == second.tobytes():
        return True
    operation, arrays = operation_of(task), operands_of(task, inputs)
    if operation in (FORMULA, CUSTOM):
        return _formula(arrays, parameters_of(task), first, second, task.precision)
    if OPERATIONS[operation].form == "product":
        return _products(arrays["a"], arrays["b"], first, second, task.precision)
    return _bands(operation, arrays, parameters_of(task), first, second, task.precision)


def _products(a: Array, b: Array, first: Array, second: Array, dtype: str) -> bool:
    inner = a.shape[1]
    with np.errstate(all="ignore"):
        columns = np.sqrt(np.square(b, dtype=np.float64).sum(axis=0))
        low_columns = np.sqrt(_low_squares(b).sum(axis=0))
        step = max(1, BAND_ELEMENTS // max(1, first.shape[1]))
        for row in range(0, len(first), step):
            band = slice(row, row + step)
            rows = np.sqrt(np.square(a[band], dtype=np.float64).sum(axis=1))
            bound = product_length(inner) * U32 * np.outer(rows, columns) + max(1, inner) * FLUSH
            if low_columns.any():
                bound += np.outer(rows, low_columns)
            low_rows = np.sqrt(_low_squares(a[band]).sum(axis=1))
            if low_rows.any():
                bound += np.outer(low_rows, columns)
            apart = _apart(first[band], second[band], bound, dtype)
            if apart.any() and not all(may_be_right(a[band], b, each[band], dtype, apart) for each in (first, second)):
                return False
    return True


def _low_squares(array: Array) -> Array:
    """Squares of what a device may read as 0, in float64, where 2⁻²⁹⁸ is still a number; 0 for the others."""
    low = np.abs(array) < FLUSH
    return np.square(np.where(low, array, 0), dtype=np.float64) if low.any() else np.zeros(array.shape)


def _formula(
    arrays: Mapping[str, Array], parameters: Mapping[str, Any], first: Array, second: Array, dtype: str
) -> bool:
    expression = expression_of(str(parameters["text"]))
    one, other = first.reshape(-1), second.reshape(-1)
    return all(
        _both_right(one[span], other[span], expect_formula(expression, part, dtype))
        for span, part in pieces(arrays, first.shape, BAND_ELEMENTS)
    )


def _bands(
    operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], first: Array, second: Array, dtype: str
) -> bool:
    about = OPERATIONS[operation]
    step = max(1, BAND_ELEMENTS // max(1, first.size // len(first)))
    for row in range(0, len(first), step):
        band = slice(row, row + step)
        operands = {name: arrays[name][band] for name in about.inputs}
        if about.form == "rows" and operands["a"].size > LONG_ROW:
            for span, expected in expect_long_row(operation, operands["a"][0], dtype):
                if not _both_right(first[row, span], second[row, span], expected):
                    return False
        elif not _both_right(first[band], second[band], expect(operation, operands, parameters, dtype)):
            return False
    return True


def _both_right(first: Array, second: Array, expected: Expected) -> bool:
    """Each element near the other's, or both such as the judge lets pass."""
    apart = _apart(first, second, expected.bound, expected.dtype)
    if not apart.any():
        return True
    return all(bool(np.all((expected.ratio(each) <= 1.0) | ~apart)) for each in (first, second))


def _apart(first: Array, second: Array, bound: Array, dtype: str) -> Array:
    """Which elements are neither within twice their bound of the other's, nor the same infinity, nor both NaN."""
    with np.errstate(all="ignore"):
        one, other = first.astype(np.float64), second.astype(np.float64)
        stored = U16 * (np.abs(one) + np.abs(other)) if dtype == "float16" else 0.0
        near = np.abs(one - other) <= 2.0 * bound + stored
    # Where the bound is no number, the truth is none either: only the very same says the same there.
    alike = (one == other) | (np.isnan(one) & np.isnan(other))
    return ~(near & np.isfinite(one) & np.isfinite(other) | alike)
