"""Tensors of which tasks read columns, opened whole and once for all of them.

A sealed record holds whole rows, so a task that needs some columns has every record opened: with five tasks a matrix
would be opened five times. Here it is opened once, and let go when as many bytes were read as it has: the tasks of a
job that read each column once leave nothing behind. What others leave goes when nothing was checked for a moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict

import numpy as np
from msgspec.structs import replace

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.opening import Plain, array_of, plain_part
from moregpu.jobs import Blob, Tensor

LIMIT_BYTES = 128 << 20
"""Most that is open at a time; a larger tensor is opened in parts, as often as it takes."""

REST_S = 1.0
"""Before the system is given freed pages back (`shell.ThreadOffload`)."""

LEAST_BYTES = 1 << 20
"""One record is opened as a whole anyway."""


class _Whole:
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.left_bytes = size_bytes
        self.plain: Plain | None = None
        self.opening = threading.Lock()


class Wholes:
    """What is open now. `part` blocks, and is safe from several threads; `rest_soon` is the loop's."""

    def __init__(self, blobs: BlobFiles, limit_bytes: int = LIMIT_BYTES) -> None:
        self._blobs = blobs
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, bytes], _Whole] = OrderedDict()  # the least recently used first
        self._resting: asyncio.TimerHandle | None = None

    def part(self, tensor: Tensor) -> Plain:
        """As `plain_part`, and raising what it raises."""
        blob = tensor.data
        if not isinstance(blob, Blob) or not self._pays(tensor):
            return plain_part(tensor, self._blobs)
        assert tensor.region is not None  # noqa: S101 — else it would not pay
        whole = self._take(blob, tensor.part_bytes)
        with whole.opening:
            if whole.plain is None:
                whole.plain = plain_part(replace(tensor, region=None), self._blobs)
        array = array_of(replace(tensor, region=None), whole.plain)
        part = np.ascontiguousarray(array[tuple(slice(*span) for span in tensor.region)])
        return part.reshape(-1).view(np.uint8).data

    def rest_soon(self) -> None:
        """Let everything go in a moment, unless this is said again before."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._open:
            self._resting = asyncio.get_running_loop().call_later(REST_S, self._let_go)

    def _let_go(self) -> None:
        self._resting = None
        with self._lock:
            self._open.clear()

    @property
    def open_bytes(self) -> int:
        """Bytes of all that is open."""
        with self._lock:
            return sum(whole.size_bytes for whole in self._open.values())

    def _pays(self, tensor: Tensor) -> bool:
        """Whether its part is scattered: not whole rows of the first axis."""
        region, shape = tensor.region, tensor.shape
        if region is None or len(region) != len(shape) or not LEAST_BYTES <= tensor.whole_bytes <= self._limit_bytes:
            return False
        is_inside = all(0 <= start < stop <= size for (start, stop), size in zip(region, shape, strict=True))
        return is_inside and region[1:] != tuple((0, size) for size in shape[1:])

    def _take(self, blob: Blob, part_bytes: int) -> _Whole:
        name = (blob.digest, blob.key)
        with self._lock:
            whole = self._open.pop(name, None) or _Whole(blob.size_bytes)
            whole.left_bytes -= part_bytes
            if whole.left_bytes > 0:
                self._open[name] = whole
                while sum(one.size_bytes for one in self._open.values()) > self._limit_bytes:
                    self._open.popitem(last=False)
        return whole
