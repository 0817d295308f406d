"""Judge many tiny tasks by one computation: those of one operation laid end to end.

What comes out to the very bit is right, as `check.py` has it. Everything else is left to be judged alone, which also
says what is wrong with it: so nothing is rejected here, and nothing accepted that would not be accepted alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from moregpu_kernels.blocks import compute
from moregpu_kernels.operations import OPERATIONS, OUTPUT

from moregpu.jobs import Evidence
from moregpu.workloads.arrays import NUMPY
from moregpu.workloads.kernel.run import operation_of, parameters_of
from moregpu.workloads.protocol import Inline

if TYPE_CHECKING:
    from collections.abc import Sequence

Kin = tuple[bytes, bytes, str, int]
"""Program, parameters, dtype, and columns: what tasks must share to be computed as one."""


def check_alike(tasks: Sequence[Inline]) -> list[Evidence | None]:
    """Evidence for each task that is right to the bit; None for each that is to be judged alone."""
    kin: dict[Kin, list[int]] = {}
    for at, each in enumerate(tasks):
        task, columns = each.task, _columns(each)
        if columns:
            kin.setdefault((task.program, task.parameters, task.precision, columns), []).append(at)
    found: list[Evidence | None] = [None] * len(tasks)
    for shared, members in kin.items():
        if _is_right([tasks[at] for at in members], shared[-1]):
            for at in members:
                found[at] = RIGHT
    return found


RIGHT = Evidence(kind="recomputed")


def _columns(each: Inline) -> int:
    """Length of the rows in which a task's arrays may follow those of others; 0 when they may not."""
    task = each.task
    about = OPERATIONS.get(task.program.decode("ascii", "replace"))
    if about is None or about.form == "product" or task.precision not in NUMPY:
        return 0
    if set(each.outputs) != {OUTPUT} or not each.outputs[OUTPUT] or set(each.inputs) != set(about.inputs):
        return 0
    planned = task.outputs[OUTPUT]
    if planned.dtype != task.precision:
        return 0
    for tensor in task.inputs.values():
        if tensor.dtype != task.precision or tensor.part_shape != planned.shape:
            return 0
    if about.form == "elements":
        return 1
    return planned.shape[-1] if len(planned.shape) == 2 else 0


def _is_right(kin: Sequence[Inline], columns: int) -> bool:
    task = kin[0].task
    operation, dtype = operation_of(task), NUMPY[task.precision]
    made = b"".join([each.outputs[OUTPUT] for each in kin])
    operands = [
        np.frombuffer(b"".join([each.inputs[name] for each in kin]), dtype).reshape(-1, columns)
        for name in OPERATIONS[operation].inputs
    ]
    again = np.empty_like(operands[0])
    with np.errstate(all="ignore"):
        compute(operation, operands, np.float32(parameters_of(task).get("scalar", 1.0)), again)
    return again.tobytes() == made
