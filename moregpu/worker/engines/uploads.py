"""What stays on a graphics adapter: arrays that come again, uploaded once, the least recently used freed first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from moregpu_kernels.compiled import Resident
from moregpu_kernels.errors import BudgetExceeded
from moregpu_kernels.executor import Executor

if TYPE_CHECKING:
    from moregpu.workloads.protocol import Array

SHARE = 0.4
"""Of the device's budget: the rest is for a task's own tensors."""

LEAST_BYTES = 64 << 10
"""Smaller ones are uploaded each time: that costs less than a run prepared for each of them."""


class Uploads:
    """The arrays that an engine was told to hold."""

    def __init__(self, executor: Executor):
        self._executor = executor
        self._limit_bytes = int(SHARE * executor.device.ledger.budget_bytes)
        self._held: dict[int, Array] = {}
        self._there: OrderedDict[int, Resident] = OrderedDict()
        self.used_bytes = 0

    def hold(self, array: Array) -> None:
        """Be told that this very array will come again."""
        self._held[id(array)] = array

    def let_go(self, array: Array) -> None:
        """It will not."""
        if self._held.pop(id(array), None) is not None and id(array) in self._there:
            self._free(id(array))

    def feeds(self, tensors: Mapping[str, Array]) -> dict[str, Array | Resident]:
        """A run's inputs: those that are held as what lies on the device, uploaded now where they do not yet."""
        needed = {id(array) for array in tensors.values()}
        return {name: self._feed(array, needed) for name, array in tensors.items()}

    def clear(self) -> bool:
        """Free everything; whether there was anything. What is held is uploaded again when it comes."""
        had = bool(self._there)
        for name in list(self._there):
            self._free(name)
        self._executor.trim()
        return had

    def _feed(self, array: Array, needed: Container[int]) -> Array | Resident:
        name, size = id(array), array.nbytes
        there = self._there.get(name)
        if there is not None:
            self._there.move_to_end(name)
            return there
        if name not in self._held or not LEAST_BYTES <= size <= self._limit_bytes:
            return array
        for other in list(self._there):
            if self.used_bytes + size > self._limit_bytes and other not in needed:
                self._free(other)
        if self.used_bytes + size > self._limit_bytes:
            return array
        try:
            there = self._there[name] = self._executor.upload(array)
        except BudgetExceeded:
            return array
        self.used_bytes += size
        return there

    def _free(self, name: int) -> None:
        resident = self._there.pop(name)
        self.used_bytes -= resident.array.nbytes
        self._executor.release(resident)
