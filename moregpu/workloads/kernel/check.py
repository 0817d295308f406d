"""Judge a kernel task's output in full: recomputed in blocks, every element compared with its bound.

The largest products alone are met by random vectors first, which pick the rows to recompute (`freivalds.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.blocks import compute
from moregpu_kernels.evaluate import evaluate, pieces
from moregpu_kernels.operations import OPERATIONS, OUTPUT
from moregpu_kernels.reference import Expected, expect, expect_long_row
from moregpu_kernels.reference_formula import expect_formula

from moregpu.jobs import Check, Evidence
from moregpu.workloads.arrays import misfit
from moregpu.workloads.kernel.custom import CUSTOM
from moregpu.workloads.kernel.formulas import FORMULA, expression_of
from moregpu.workloads.kernel.freivalds import VECTORS, select_rows
from moregpu.workloads.kernel.products import judge_product
from moregpu.workloads.kernel.run import operands_of, operation_of, parameters_of
from moregpu.workloads.protocol import Array, Rejected, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BAND_ELEMENTS = 1 << 16
"""Elements judged at a time: what the judge needs in float64 for them stays in a few megabytes."""

LONG_ROW = 1 << 20
"""A longer row is a band of its own, judged in pieces."""


FREIVALDS_FLOPS = 1 << 33
"""Products of this many float operations and more are checked by vectors, which then cost a third of recomputing or
less (`freivalds.py`; the two are even at 2³¹). Level "full" recomputes everything all the same."""


def check_task(
    task: TaskSpec,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    level: Check,
    entropy: Callable[[int], bytes],
) -> Evidence | Rejected:
    """Recompute a task and compare; only level "none" leaves it unchecked.

    An output of other names, dtype, byte order or shape is rejected unseen. `entropy` must not be known to the worker
    before it handed its result in.
    """
    if level == "none":
        return Evidence(kind="unchecked")
    wrong = misfit(outputs, task.outputs)
    if wrong:
        return Rejected(reason=wrong, worst_ratio=float("inf"))
    operation = operation_of(task)
    arrays = operands_of(task, inputs)
    output = outputs[OUTPUT]
    if operation in (FORMULA, CUSTOM):
        return _formula(arrays, parameters_of(task), output, task.precision)
    if OPERATIONS[operation].form == "product" and output.size and arrays["a"].size:
        return _product(arrays, output, task.precision, level, entropy)
    if output.size == 0:
        return Evidence(kind="recomputed")
    return _bands(operation, arrays, parameters_of(task), output, task.precision)


def _product(
    arrays: Mapping[str, Array], output: Array, dtype: str, level: Check, entropy: Callable[[int], bytes]
) -> Evidence | Rejected:
    a, b = arrays["a"], arrays["b"]
    if level != "full" and 2 * output.size * b.shape[0] >= FREIVALDS_FLOPS:
        selection = select_rows(a, b, output, dtype, entropy)
        if not selection.everything:
            rows = selection.rows
            verdict = judge_product(a[rows], b, output[rows], dtype)
            if verdict.wrong is None:
                return Evidence(kind="freivalds", vectors=VECTORS, rows=len(rows), worst_ratio=verdict.worst)
            at = int(rows[verdict.wrong[0]]), verdict.wrong[1]
            return _rejected(at, output[at], verdict.value, verdict.bound, verdict.worst)
    verdict = judge_product(a, b, output, dtype)
    if verdict.wrong is None:
        return Evidence(kind="recomputed", worst_ratio=verdict.worst)
    return _rejected(verdict.wrong, output[verdict.wrong], verdict.value, verdict.bound, verdict.worst)


def _formula(
    arrays: Mapping[str, Array], parameters: Mapping[str, Any], output: Array, dtype: str
) -> Evidence | Rejected:
    """Judge a formula, piece by piece: our own bits, or within the running bound of its arithmetic."""
    expression = expression_of(str(parameters["text"]))
    flat = output.reshape(-1)
    worst = 0.0
    for span, part in pieces(arrays, output.shape, BAND_ELEMENTS):
        found = flat[span]
        with np.errstate(all="ignore"):
            ours = evaluate(expression, part).astype(found.dtype)
        # By bytes too: no NaN is equal to itself.
        if ours.tobytes() == found.tobytes() or np.array_equal(ours, found):
            continue
        expected = expect_formula(expression, part, dtype)
        ratio = expected.ratio(found)
        at = int(np.argmax(ratio))
        if not ratio[at] <= 1.0:
            value, bound = (float(np.broadcast_to(each, found.shape)[at]) for each in (expected.value, expected.bound))
            place = tuple(int(index) for index in np.unravel_index(span.start + at, output.shape))
            return _rejected(place, found[at], value, bound, float(ratio[at]))
        worst = max(worst, float(ratio[at]))
    return Evidence(kind="recomputed", worst_ratio=worst)


def _bands(
    operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], output: Array, dtype: str
) -> Evidence | Rejected:
    """Judge elementwise and row-wise operations, and products over no terms, a band of rows at a time."""
    about = OPERATIONS[operation]
    scalar = np.float32(parameters.get("scalar", 1.0))
    step = max(1, BAND_ELEMENTS // max(1, output.size // len(output)))
    again = np.empty((step, *output.shape[1:]), output.dtype)
    worst = 0.0
    for row in range(0, len(output), step):
        band = slice(row, row + step)
        found = output[band]
        operands = {
            name: arrays[name] if about.form == "product" and name == "b" else arrays[name][band]
            for name in about.inputs
        }
        if about.form != "product":
            ours = again[: len(found)]
            with np.errstate(all="ignore"):
                compute(operation, [operands[name] for name in about.inputs], scalar, ours)
            # The very bits, or numbers, that we get are within the bound. (Comparing bytes costs a tiny task's check a
            # third of what comparing arrays does.)
            if ours.tobytes() == found.tobytes() or np.array_equal(ours, found):
                continue
        for place, expected in _expectations(operation, operands, parameters, dtype):
            part = found[place]
            ratio = expected.ratio(part)
            peak = float(ratio.max())
            if not peak <= 1.0:
                at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
                start = [each.start or 0 for each in place]
                where = tuple(int(index) + first for index, first in zip(at, [start[0] + row, *start[1:]], strict=True))
                return _rejected(where, part[at], expected.value[at], expected.bound[at], peak)
            worst = max(worst, peak)
    return Evidence(kind="recomputed", worst_ratio=worst)


def _expectations(
    operation: str, operands: Mapping[str, Array], parameters: Mapping[str, Any], dtype: str
) -> Iterator[tuple[tuple[slice, ...], Expected]]:
    """What a band should be: at once, or a single long row in pieces."""
    a = operands["a"]
    if OPERATIONS[operation].form == "rows" and a.size > LONG_ROW:
        for span, expected in expect_long_row(operation, a[0], dtype):
            yield (slice(0, 1), span), expected.of_one_row()
    else:
        whole = (slice(0, None),) * (2 if OPERATIONS[operation].form != "elements" else 1)
        yield whole, expect(operation, operands, parameters, dtype)


def _rejected(where: tuple[int, ...], found: Any, value: float, bound: float, ratio: float) -> Rejected:
    place = ", ".join(map(str, where))
    return Rejected(
        reason=f"element ({place}) is {found:.9g}, should be {value:.9g} ± {bound:.3g}", worst_ratio=float(ratio)
    )
