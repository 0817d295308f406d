"""Bytes between this process and a device: pooled buffers, uploads in pieces, results through one staging buffer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from moregpu_kernels.device import Device, round_up
from moregpu_kernels.native import Copy, Native

Array = NDArray[Any]

UPLOAD_BYTES: Final = 32 << 20
"""The library copies what is uploaded; after this much it is flushed, so that the copies do not add up."""
STAGING_BYTES: Final = 64 << 20
"""The staging buffer grows to this; larger results come back in several pieces."""
POOLED_SHARE: Final = 0.25
"""Of the budget, what unused buffers may hold."""


class Buffers:
    """Unused buffers of a device by size, and its staging buffer."""

    def __init__(self, device: Device):
        self._device = device
        self._free: dict[int, list[Any]] = {}
        self._staging: Any = None
        self.pooled_bytes = 0

    def take(self, size_bytes: int) -> Any:
        """A buffer of at least `size_bytes`: a pooled one of that size, or a new one."""
        size = round_up(max(size_bytes, 256))
        free = self._free.get(size)
        if free:
            self.pooled_bytes -= size
            return free.pop()
        return self._device.buffer(size)

    def give(self, buffer: Any) -> None:
        """Put a buffer back."""
        if self.pooled_bytes + buffer.size > POOLED_SHARE * self._device.ledger.budget_bytes:
            self._device.free(buffer)
            return
        self._free.setdefault(buffer.size, []).append(buffer)
        self.pooled_bytes += buffer.size

    def staging(self, size_bytes: int) -> Any:
        """The staging buffer, of at least `size_bytes` (at most STAGING_BYTES)."""
        if self._staging is None or self._staging.size < size_bytes:
            if self._staging is not None:
                self._device.free(self._staging)
                self._staging = None
            size = min(1 << max(16, (size_bytes - 1).bit_length()), STAGING_BYTES)
            self._staging = self._device.buffer(max(size, size_bytes), staging=True)
        return self._staging

    def trim(self) -> None:
        """Free everything that is unused."""
        for buffers in self._free.values():
            for buffer in buffers:
                self._device.free(buffer)
        if self._staging is not None:
            self._device.free(self._staging)
        self.forget()

    def forget(self) -> None:
        """Let go of everything, as after a loss: the device's ledger was emptied with it."""
        self._free.clear()
        self._staging = None
        self.pooled_bytes = 0


@dataclass(frozen=True, slots=True)
class Result:
    """An output: where it lies on the device, and what it is."""

    buffer: Any
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Its bytes, without padding."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Results:
    """The outputs of a run. Small ones are copied to the staging buffer in the run's own submit.

    What a fetch needs is put down once: for a small result it took longer than the driver's part of it.
    """

    def __init__(self, results: Mapping[str, Result]):
        self.results = dict(results)
        self._staged: list[_Staged] = []
        self._large: list[str] = []
        self._copies: tuple[Any, list[Copy]] = (None, [])
        total = 0
        for name, result in self.results.items():
            if result.size_bytes and total + result.size_bytes <= STAGING_BYTES:
                self._staged.append((name, total, np.dtype(result.dtype), result.shape))
                total = round_up(total + result.size_bytes)
            else:
                self._large.append(name)
        self._staged_bytes = total

    def copies(self, fast: Native, buffers: Buffers) -> list[Copy]:
        """What a run's last submit copies for `fetch`."""
        if not self._staged:
            return []
        staging = buffers.staging(self._staged_bytes)
        known, copies = self._copies
        if known is not staging:
            staged = [(self.results[name], offset) for name, offset, *_ in self._staged]
            copies = [fast.copy(one.buffer, 0, staging, offset, round_up(one.size_bytes, 4)) for one, offset in staged]
            self._copies = (staging, copies)
        return copies

    def fetch(self, device: Device, buffers: Buffers, between: Callable[[], None] | None = None) -> dict[str, Array]:
        """Wait for the run, and return its outputs; `between` is called between two pieces of a large one."""
        arrays: dict[str, Array] = {}
        if self._staged:
            targets: list[tuple[Array, int]] = []
            for name, offset, kind, shape in self._staged:
                arrays[name] = array = np.empty(shape, kind)
                targets.append((array, offset))
            device.fast.read(buffers.staging(self._staged_bytes), self._staged_bytes, targets)
        if not self._large:
            return arrays
        for name in self._large:
            result = self.results[name]
            arrays[name] = np.empty(result.shape, result.dtype)
            if result.size_bytes:
                _read_large(device, buffers, result, _bytes_of(arrays[name]), between)
        return {name: arrays[name] for name in self.results}


_Staged = tuple[str, int, np.dtype[Any], tuple[int, ...]]
"""Of an output that is staged: its name, offset, dtype and shape."""


def write_array(device: Device, buffer: Any, array: Array, between: Callable[[], None] | None = None) -> None:
    """Write an array to the beginning of a buffer. Its length is padded to whole words of 4 bytes.

    `between` is called between two pieces of a large one.
    """
    if not array.nbytes:
        return
    data = _bytes_of(np.ascontiguousarray(array))
    whole = data.size // 4 * 4
    for first in range(0, whole, UPLOAD_BYTES):
        last = min(whole, first + UPLOAD_BYTES)
        device.fast.write(buffer, first, data[first:last])
        if last < whole:
            device.fast.submit(())
            if between:
                between()
    if whole < data.size:
        tail = np.zeros(4, np.uint8)
        tail[: data.size - whole] = data[whole:]
        device.fast.write(buffer, whole, tail)


def _read_large(
    device: Device,
    buffers: Buffers,
    result: Result,
    target: NDArray[np.uint8],
    between: Callable[[], None] | None,
) -> None:
    staging = buffers.staging(STAGING_BYTES)
    for first in range(0, target.size, STAGING_BYTES):
        if first and between:
            between()
        size = min(STAGING_BYTES, target.size - first)
        device.fast.submit((), [device.fast.copy(result.buffer, first, staging, 0, round_up(size, 4))])
        device.fast.read(staging, round_up(size, 4), [(target[first : first + size], 0)])


def _bytes_of(array: Array) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)
