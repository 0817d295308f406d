"""Run a kernel task on an engine, on the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from moregpu_kernels.operations import OPERATIONS

from moregpu.errors import InvalidJob
from moregpu.workloads.kernel import data
from moregpu.workloads.kernel.custom import CUSTOM, read_kernel
from moregpu.workloads.kernel.formulas import FORMULA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from moregpu.workloads.protocol import Array, KernelEngine, Slicer, TaskSpec


_parameters = msgspec.msgpack.Decoder(dict[str, Any])


def run_task(task: TaskSpec, inputs: Mapping[str, Array], engine: KernelEngine, slicer: Slicer) -> Mapping[str, Array]:
    """Compute a task's output. Raises `EngineError`, or `TaskStopped` from the slicer."""
    operation = operation_of(task)
    if operation == CUSTOM:
        _refuse_other(task)
    arrays = operands_of(task, inputs, slicer.pause_point)
    return engine.run(operation, arrays, parameters_of(task), slicer)


def operation_of(task: TaskSpec) -> str:
    """The operation that a task names; raises `InvalidJob` for one that there is not."""
    operation = task.program.decode("ascii", "replace").partition(":")[0]
    if operation not in OPERATIONS and operation not in (FORMULA, CUSTOM):
        raise InvalidJob(f"there is no kernel called {operation!r}", f"Kernels: {', '.join(OPERATIONS)}, formula")
    return operation


def _refuse_other(task: TaskSpec) -> None:
    """A registered kernel is named by its digest: raise `InvalidJob` for a text that is another."""
    registered = read_kernel(str(parameters_of(task)["kernel"]))
    if task.program != f"{CUSTOM}:{registered.digest}".encode():
        raise InvalidJob("the kernel's text is not the one that was registered")


def parameters_of(task: TaskSpec) -> dict[str, Any]:
    """A task's parameters."""
    return _parameters.decode(task.parameters)


def operands_of(
    task: TaskSpec, inputs: Mapping[str, Array], pause: Callable[[], None] = lambda: None
) -> Mapping[str, Array]:
    """The arrays that a task computes with: its inputs, or benchmark data made on the spot."""
    parameters = parameters_of(task)
    numbers: dict[str, float] = parameters.get("numbers", {})
    if numbers:
        return {**inputs, **{name: np.asarray(number, np.float32) for name, number in numbers.items()}}
    if "rows" not in parameters:
        return inputs
    about = OPERATIONS[operation_of(task)]
    rows, columns = (int(parameters["rows"][0]), int(parameters["rows"][1])), tuple(parameters["columns"])
    inner = (0, int(parameters["inner"]))
    regions: dict[str, data.Region] = {
        "elements": {"a": (rows,), "b": (rows,)},
        "rows": {"a": (rows, columns)},
        "product": {"a": (rows, inner), "b": (inner, columns)},
    }[about.form]
    return {name: data.make(name, regions[name], task.seed, task.precision, pause) for name in about.inputs}
