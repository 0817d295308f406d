"""The calls that every dispatch and every wait make, straight to wgpu-native.

wgpu-py catches errors around each of its calls and waits through a thread that polls: 3 µs a dispatch where the calls
take 0.9, and 120 to 300 µs a wait where the device needs 40. Everything rarer goes through wgpu-py. What goes wrong in
a recorded pass is raised by its `end` or by `finish`, which are wgpu-py's.

Written against the internals of wgpu-py 0.32; `tests/kernels/test_native.py` says whether another version still fits.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_POLLS_LIMIT: Final = 10_000
"""Polls that find nothing left to do, after which a mapping that has not been answered never will be."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One dispatch, as the library takes it: handles that live as long as the pipeline and the group they come from."""

    pipeline: Any
    group: Any
    offsets: Any


class Native:
    """One open device's fast calls."""

    def __init__(self, device: Any):
        backend: Any = importlib.import_module("wgpu.backends.wgpu_native")
        ffi, lib = self._ffi, self._lib = backend.ffi, backend.lib
        self._checked = backend._api.libf  # raises what goes wrong
        self._device = device._internal
        answer = self._answer = [0]

        @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")
        def mapped(status: int, _message: Any, _first: Any, _second: Any) -> None:
            answer[0] = status

        self._mapped = mapped  # the library calls it as long as it is kept
        self._info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = mapped

    def call(self, pipeline: Any, group: Any, offset: int) -> Call:
        """A dispatch of wgpu-py's objects, which the caller keeps; `offset` is that of its uniforms."""
        return Call(pipeline._internal, group._internal, self._ffi.new("uint32_t[]", [offset]))

    def record(self, stage: Any, calls: Iterable[tuple[Call, int, int]]) -> None:
        """Record dispatches over (x, y) workgroups in a compute pass that was just begun."""
        set_pipeline = self._lib.wgpuComputePassEncoderSetPipeline
        set_group = self._lib.wgpuComputePassEncoderSetBindGroup
        dispatch = self._lib.wgpuComputePassEncoderDispatchWorkgroups
        handle = stage._internal
        pipeline = None
        for one, x, y in calls:
            if one.pipeline is not pipeline:
                pipeline = one.pipeline
                set_pipeline(handle, pipeline)
            set_group(handle, 0, one.group, 1, one.offsets)
            dispatch(handle, x, y, 1)

    def wait(self) -> None:
        """Block until everything submitted is done."""
        self._checked.wgpuDevicePoll(self._device, True, self._ffi.NULL)

    @contextmanager
    def reading(self, buffer: Any, size_bytes: int) -> Generator[Any]:
        """Wait for what a staging buffer is to receive, and give its first bytes. Raises RuntimeError when lost."""
        self._answer[0] = 0
        handle = buffer._internal
        self._checked.wgpuBufferMapAsync(handle, self._lib.WGPUMapMode_Read, 0, size_bytes, self._info[0])
        for _ in range(_POLLS_LIMIT):
            if self._answer[0]:
                break
            self.wait()
        if self._answer[0] != self._lib.WGPUMapAsyncStatus_Success:
            raise RuntimeError(f"the staging buffer cannot be mapped (status {self._answer[0]}): is the device lost?")
        try:
            yield self._ffi.buffer(self._checked.wgpuBufferGetConstMappedRange(handle, 0, size_bytes), size_bytes)
        finally:
            self._checked.wgpuBufferUnmap(handle)
