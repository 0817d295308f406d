"""Judge a kernel task's output in full: every element is recomputed, in blocks, and compared with its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.operations import OPERATIONS, OUTPUT
from moregpu_kernels.reference import expect

from moregpu.jobs import Check, Evidence
from moregpu.workloads.arrays import misfit
from moregpu.workloads.kernel.run import operands_of, operation_of, parameters_of
from moregpu.workloads.protocol import Array, Rejected, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK_ELEMENTS = 1 << 16
"""Elements recomputed at a time: their float64 arrays stay in the processor's cache."""


def check_task(
    task: TaskSpec, inputs: Mapping[str, Array], outputs: Mapping[str, Array], level: Check
) -> Evidence | Rejected:
    """Recompute a task and compare; only level "none" leaves it unchecked.

    An output of other names, dtype, byte order or shape is rejected unseen.
    """
    if level == "none":
        return Evidence(kind="unchecked")
    wrong = misfit(outputs, task.outputs)
    if wrong:
        return Rejected(reason=wrong, worst_ratio=float("inf"))
    operation = operation_of(task)
    arrays = operands_of(task, inputs)
    output = outputs[OUTPUT]
    parameters = parameters_of(task)
    worst = 0.0
    for place, operands in _blocks(operation, arrays, output):
        expected = expect(operation, operands, parameters, task.precision)
        ratio = expected.ratio(output[place])
        peak = float(ratio.max(initial=0.0))
        if not peak <= 1.0:
            return _rejected(place, output[place], expected.value, expected.bound, ratio)
        worst = max(worst, peak)
    return Evidence(kind="recomputed", worst_ratio=worst)


def _blocks(
    operation: str, arrays: Mapping[str, Array], output: Array
) -> Iterator[tuple[tuple[slice, ...], dict[str, Array]]]:
    product = OPERATIONS[operation].form == "product"
    width = output.shape[1] if output.ndim > 1 else 1
    step = max(1, BLOCK_ELEMENTS // max(1, width))
    for row in range(0, output.shape[0], step):
        place = (slice(row, row + step),)
        yield place, {name: array if product and name == "b" else array[place] for name, array in arrays.items()}


def _rejected(place: tuple[slice, ...], found: Array, value: Array, bound: Array, ratio: Array) -> Rejected:
    at = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    where = [int(index) for index in at]
    where[0] += place[0].start
    detail: Any = (float(found[at]), float(value[at]), float(bound[at]))
    return Rejected(
        reason="element {} is {:.9g}, should be {:.9g} ± {:.3g}".format(tuple(where), *detail),
        worst_ratio=float(ratio[at]),
    )
