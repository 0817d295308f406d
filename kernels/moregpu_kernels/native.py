"""The calls that every submit, every dispatch and every wait make, straight to wgpu-native.

wgpu-py catches errors around each of its calls, makes objects of what lives for one submit, and waits through a thread
that polls: 3 µs a dispatch where the calls take 0.9, 80 µs more a submit, and 120 to 300 µs a wait where the device
needs 40. Everything rarer goes through wgpu-py. The library keeps what goes wrong while a submit is recorded until its
pass ends or the recording is finished: those calls are checked.

Written against the internals of wgpu-py 0.32; `tests/kernels/test_native.py` says whether another version still fits.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Sequence
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


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Bytes of one buffer on their way to another one: offsets and size are whole words of 4 bytes."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    size_bytes: int


class Native:
    """One open device's fast calls."""

    def __init__(self, device: Any):
        backend: Any = importlib.import_module("wgpu.backends.wgpu_native")
        ffi, lib = self._ffi, self._lib = backend.ffi, backend.lib
        self._checked = backend._api.libf  # raises what goes wrong
        self._device = device._internal
        self._queue = device.queue._internal
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

    def submit(self, calls: Sequence[tuple[Call, int, int]], copies: Iterable[Copy] = ()) -> float:
        """Submit dispatches over (x, y) workgroups, and copies after them; return when: devices begin before this ends.

        Raises wgpu-py's errors for what the driver refuses; nothing of it is done then.
        """
        lib, none = self._lib, self._ffi.NULL
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, none)
        try:
            if calls:
                self._record(encoder, calls)
            for one in copies:
                source, target = one.source._internal, one.target._internal
                lib.wgpuCommandEncoderCopyBufferToBuffer(
                    encoder, source, one.source_offset, target, one.target_offset, one.size_bytes
                )
            recorded = self._checked.wgpuCommandEncoderFinish(encoder, none)
        finally:
            lib.wgpuCommandEncoderRelease(encoder)
        started = time.perf_counter()
        try:
            self._checked.wgpuQueueSubmit(self._queue, 1, [recorded])
        finally:
            lib.wgpuCommandBufferRelease(recorded)
        return started

    def _record(self, encoder: Any, calls: Iterable[tuple[Call, int, int]]) -> None:
        """Record one compute pass."""
        set_pipeline = self._lib.wgpuComputePassEncoderSetPipeline
        set_group = self._lib.wgpuComputePassEncoderSetBindGroup
        dispatch = self._lib.wgpuComputePassEncoderDispatchWorkgroups
        stage = self._lib.wgpuCommandEncoderBeginComputePass(encoder, self._ffi.NULL)
        try:
            pipeline = None
            for one, x, y in calls:
                if one.pipeline is not pipeline:
                    pipeline = one.pipeline
                    set_pipeline(stage, pipeline)
                set_group(stage, 0, one.group, 1, one.offsets)
                dispatch(stage, x, y, 1)
            self._checked.wgpuComputePassEncoderEnd(stage)
        finally:
            self._lib.wgpuComputePassEncoderRelease(stage)

    def wait(self) -> None:
        """Block until everything submitted is done."""
        self._checked.wgpuDevicePoll(self._device, True, self._ffi.NULL)

    def reading(self, buffer: Any, size_bytes: int) -> Reading:
        """Wait for what a staging buffer is to receive, and give its first bytes. Raises RuntimeError when lost."""
        return Reading(self, buffer._internal, size_bytes)

    def map(self, handle: Any, size_bytes: int) -> Any:
        """Wait until a staging buffer can be read; its first bytes. See `reading`."""
        lib, answer = self._lib, self._answer
        answer[0] = 0
        self._checked.wgpuBufferMapAsync(handle, lib.WGPUMapMode_Read, 0, size_bytes, self._info[0])
        for _ in range(_POLLS_LIMIT):
            if answer[0]:
                break
            lib.wgpuDevicePoll(self._device, True, self._ffi.NULL)
        if answer[0] == lib.WGPUMapAsyncStatus_Success:
            place = lib.wgpuBufferGetConstMappedRange(handle, 0, size_bytes)
            if place != self._ffi.NULL:
                return self._ffi.buffer(place, size_bytes)
        raise RuntimeError(f"the staging buffer cannot be mapped (status {answer[0]}): is the device lost?")

    def unmap(self, handle: Any) -> None:
        """End what `map` began."""
        self._lib.wgpuBufferUnmap(handle)


class Reading:
    """A staging buffer's bytes, as long as the block lasts."""

    __slots__ = ("_handle", "_native", "_size_bytes")

    def __init__(self, native: Native, handle: Any, size_bytes: int):
        self._native, self._handle, self._size_bytes = native, handle, size_bytes

    def __enter__(self) -> Any:
        return self._native.map(self._handle, self._size_bytes)

    def __exit__(self, *_: object) -> None:
        self._native.unmap(self._handle)
