"""Kernels on the CPU, by NumPy, in slices short enough that the throttle stays in charge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.errors import BadFormula
from moregpu_kernels.evaluate import evaluate, pieces
from moregpu_kernels.formula import parse
from moregpu_kernels.operations import OPERATIONS, OUTPUT

from moregpu.errors import EngineError
from moregpu.worker.engines.numpy_blocks import blockwise
from moregpu.worker.engines.numpy_products import product
from moregpu.worker.engines.pace import Pace
from moregpu.workloads.kernel.custom import CUSTOM
from moregpu.workloads.kernel.formulas import FORMULA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moregpu.workloads.protocol import Array, Slicer


class NumpyEngine:
    """A CPU as a device. Uses as many cores as BLAS was given in the environment of its process."""

    device: str
    memory_budget_bytes: int

    def __init__(self, device: str = "cpu", memory_budget_bytes: int = 1 << 30):
        self.device = device
        self.memory_budget_bytes = memory_budget_bytes
        self.driver = f"numpy {np.__version__}"
        self._speeds: dict[str, float] = {}

    def run(
        self, operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], slicer: Slicer
    ) -> Mapping[str, Array]:
        """Run one operation; `arrays` holds "a" (and "b") of one dtype, the result is "out" of the same.

        Shapes are those of a task: (M, K) and (K, N) for matmul, (rows, columns) for softmax and layernorm, one axis
        for the others. Raises `EngineError` for what it does not know and when memory runs out, `TaskStopped` from
        the slicer.
        """
        if operation in (FORMULA, CUSTOM):  # of a registered kernel: its reference
            return {OUTPUT: self._formula(arrays, str(parameters["text"]), slicer)}
        about = OPERATIONS.get(operation)
        if about is None or not set(about.inputs) <= set(arrays):
            raise EngineError(f"the CPU engine cannot run {operation!r} on {sorted(arrays)}", "Update the worker")
        operands = [arrays[name] for name in about.inputs]
        key = operation + operands[0].dtype.char  # a dtype's name is made by Python: 65 µs where nothing is in cache
        try:
            with np.errstate(all="ignore"):  # NaN and infinity are results, not faults
                if about.form == "product":
                    out = np.empty((operands[0].shape[0], operands[1].shape[1]), operands[0].dtype)
                    total = 2.0 * out.size * operands[0].shape[1]
                    product(operands[0], operands[1], out, Pace(key, total, slicer, self._speeds))
                else:
                    out = np.empty_like(operands[0])
                    scalar = np.float32(parameters.get("scalar", 1.0))
                    blockwise(operation, operands, scalar, out, Pace(key, out.size, slicer, self._speeds))
        except MemoryError:
            raise EngineError(
                "the CPU engine ran out of memory", "Give the worker more, or send smaller jobs"
            ) from None
        return {OUTPUT: out}

    def hold(self, array: Array) -> None:
        """Nothing to keep: what is mapped into this process is what it computes from."""
        del array

    def let_go(self, array: Array) -> None:
        """Nothing was kept."""
        del array

    def _formula(self, arrays: Mapping[str, Array], text: str, slicer: Slicer) -> Array:
        """A formula, piece by piece in the processor's cache."""
        try:
            expression = parse(text)
            dtype = next(iter(arrays.values())).dtype
            out = np.empty(np.broadcast_shapes(*(array.shape for array in arrays.values())), dtype)
            pace = Pace(f"{FORMULA}.{text}.{dtype.char}", out.size, slicer, self._speeds)
            flat = out.reshape(-1)
            with np.errstate(all="ignore"):
                for span, part in pieces(arrays, out.shape):
                    flat[span] = evaluate(expression, part)
                    pace.done(float(span.stop - span.start))
        except BadFormula as error:
            raise EngineError(error.detail, error.hint) from None
        except MemoryError:
            raise EngineError(
                "the CPU engine ran out of memory", "Give the worker more, or send smaller jobs"
            ) from None
        return out
