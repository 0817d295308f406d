"""Kernels on a graphics adapter, by the WGSL library: Vulkan, Metal or Direct3D 12, in submits of at most 20 ms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.catalogue import read_operation
from moregpu_kernels.device import open_device
from moregpu_kernels.errors import BadKernel, BudgetExceeded, DeviceLost, KernelError, NoAdapter
from moregpu_kernels.executor import Executor
from moregpu_kernels.operations import OPERATIONS, OUTPUT
from moregpu_kernels.tune import TuneCache, default_folder

from moregpu.errors import EngineError, InvalidJob
from moregpu.worker.engines.unfit import DeviceUnfit
from moregpu.worker.engines.uploads import Uploads
from moregpu.workloads.kernel.custom import CUSTOM
from moregpu.workloads.kernel.formulas import FORMULA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moregpu.workloads.protocol import Array, Slicer

WARM_SIDE = 128
"""Side of the arrays that pipelines are built with before the first task: building takes up to half a second each."""


_TAKEN = ("text", OUTPUT)
"""What the library calls a formula itself among its numbers, and its result among its arrays."""


def _own_names(text: str, arrays: Mapping[str, Array]) -> tuple[str, Mapping[str, Array]]:
    """A formula and its inputs, of which none has a name that the library has given already."""
    for taken in _TAKEN:
        if taken in arrays:
            other = f"{taken}_"
            while other in arrays:
                other += "_"
            arrays = {other if name == taken else name: array for name, array in arrays.items()}
            text = re.sub(rf"\b{taken}\b", other, text, flags=re.ASCII)
    return text, arrays


class WgpuEngine:
    """One adapter as a device. Must be used from the thread that made it."""

    device: str
    memory_budget_bytes: int

    def __init__(self, device: str, adapter: str, memory_budget_bytes: int = 0):
        """Open `adapter`, a key of `moregpu_kernels.device` (empty: the best there is).

        A budget of 0 is the library's own careful one.
        Raises `DeviceUnfit` where there is no such adapter or it does not open.
        """
        self.device = device
        try:
            opened = open_device(adapter or None, budget_bytes=memory_budget_bytes or None)
        except NoAdapter as error:
            raise DeviceUnfit(error.detail, error.hint) from None
        self.memory_budget_bytes = opened.ledger.budget_bytes
        info = opened.info
        self.driver = f"{info.backend} {info.driver}".strip()
        choices = TuneCache(default_folder(), info.identity).choices()
        self.executor = Executor(opened, choices=dict(choices))
        self.uploads = Uploads(self.executor)

    @property
    def is_software(self) -> bool:
        """Whether a CPU plays GPU here."""
        return self.executor.device.info.is_software

    def close(self) -> None:
        """Let the device go."""
        self.executor.device.close()

    def warm_up(self) -> None:
        """Build the pipelines that first tasks need. Raises `DeviceUnfit` where even that fails."""
        ones = np.ones((WARM_SIDE, WARM_SIDE), np.float32)
        for operation, about in OPERATIONS.items():
            self._apply(operation, dict.fromkeys(about.inputs, ones), {"scalar": 1.0} if about.takes_scalar else {})

    def run(
        self, operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], slicer: Slicer
    ) -> Mapping[str, Array]:
        """Run one operation; as `NumpyEngine.run`, and within the same bounds.

        Raises `EngineError` for what the device cannot do, `InvalidJob` for WGSL that does not compile, `DeviceUnfit`
        where it is lost for good, `TaskStopped` from the slicer, which is asked between two submits.
        """
        if operation == FORMULA:
            text, named = _own_names(str(parameters["text"]), arrays)
            # What has one element is a number to the kernel: no buffer, no index.
            scalars = {name: float(array.reshape(())) for name, array in named.items() if array.ndim == 0}
            tensors = {name: array for name, array in named.items() if array.ndim > 0}
            given: dict[str, Any] = {"text": text, **scalars}
        elif operation == CUSTOM:
            operation = self._registered(str(parameters["kernel"]))
            given = {name: float(array.reshape(())) for name, array in arrays.items() if name in parameters["numbers"]}
            tensors = {name: array for name, array in arrays.items() if name not in given}
        elif operation in OPERATIONS:
            about = OPERATIONS[operation]
            tensors = {name: arrays[name] for name in about.inputs}
            given = {"scalar": float(np.float32(parameters.get("scalar", 1.0)))} if about.takes_scalar else {}
        else:
            raise EngineError(f"the GPU engine cannot run {operation!r}", "Update the worker")
        return {OUTPUT: self._apply(operation, tensors, given, slicer)}

    def hold(self, array: Array) -> None:
        """Upload this array when it is first computed with, and leave it there."""
        self.uploads.hold(array)

    def let_go(self, array: Array) -> None:
        """Free what was uploaded of it."""
        self.uploads.let_go(array)

    def _registered(self, source: str) -> str:
        """The name under which a kernel's text is known here: its own and its digest, for names are given anew."""
        try:
            operation = read_operation(source)
            name = f"{operation.name}-{operation.digest}"
            self.executor.catalogue.keep(name, operation)
        except KernelError as error:
            raise InvalidJob(error.detail, error.hint) from None
        return name

    def _apply(
        self, operation: str, tensors: Mapping[str, Array], given: Mapping[str, Any], slicer: Slicer | None = None
    ) -> Array:
        between = None if slicer is None else lambda: slicer.pause_point(self.executor.share_done)
        try:
            try:
                return self.executor.apply(operation, self.uploads.feeds(tensors), given, between=between)
            except BudgetExceeded:
                if not self.uploads.clear():
                    raise
                return self.executor.apply(operation, tensors, given, between=between)
        except (DeviceLost, NoAdapter) as error:
            raise DeviceUnfit(error.detail, error.hint) from None
        except BadKernel as error:  # a registered kernel's text is at fault, and no device
            raise InvalidJob(error.detail, error.hint) from None
        except KernelError as error:
            raise EngineError(error.detail, error.hint) from None
