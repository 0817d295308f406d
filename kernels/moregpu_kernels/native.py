"""The calls that every submit, every dispatch and every wait make, straight to wgpu-native.

wgpu-py catches errors around each of its calls, makes objects of what lives for one submit, and waits through a thread
that polls: 3 µs a dispatch where the calls take 0.9, 80 µs more a submit, and 120 to 300 µs a wait where the device
needs 40. Everything rarer goes through wgpu-py. Here errors are caught once a submit: the library tells them while its
calls run, and keeps what goes wrong while a submit is recorded until its pass ends or the recording is finished.

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


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Bytes of one buffer on their way to another one, as the library takes them: offsets and size are whole words."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    size_bytes: int


class Native:
    """One open device's fast calls, for the thread that opened it."""

    def __init__(self, device: Any):
        backend: Any = importlib.import_module("wgpu.backends.wgpu_native")
        ffi, lib = self._ffi, self._lib = backend.ffi, backend.lib
        self._device = device._internal
        self._queue = device.queue._internal
        self._errors = _Errors(backend)
        answer = self._answer = [0]

        @ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")
        def mapped(status: int, _message: Any, _first: Any, _second: Any) -> None:
            answer[0] = status

        self._mapped = mapped  # the library calls it as long as it is kept
        self._info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._info.callback = mapped

    def call(self, pipeline: Any, group: Any) -> Call:
        """A dispatch of wgpu-py's objects, which the caller keeps."""
        return Call(pipeline._internal, group._internal)

    def copy(self, source: Any, source_offset: int, target: Any, target_offset: int, size_bytes: int) -> Copy:
        """A copy between wgpu-py's buffers, which the caller keeps."""
        return Copy(source._internal, source_offset, target._internal, target_offset, size_bytes)

    def submit(self, calls: Sequence[tuple[Call, int, int]], copies: Iterable[Copy] = ()) -> float:
        """Submit dispatches over (x, y) workgroups, and copies after them; return when: devices begin before this ends.

        Raises wgpu-py's errors for what the driver refuses; nothing of it is done then.
        """
        lib, none, errors = self._lib, self._ffi.NULL, self._errors
        with errors:
            encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, none)
            try:
                if calls:
                    self._record(encoder, calls)
                for one in copies:
                    lib.wgpuCommandEncoderCopyBufferToBuffer(
                        encoder, one.source, one.source_offset, one.target, one.target_offset, one.size_bytes
                    )
                recorded = lib.wgpuCommandEncoderFinish(encoder, none)
            finally:
                lib.wgpuCommandEncoderRelease(encoder)
            try:
                errors.check()
                started = time.perf_counter()
                lib.wgpuQueueSubmit(self._queue, 1, [recorded])
            finally:
                lib.wgpuCommandBufferRelease(recorded)
        return started

    def _record(self, encoder: Any, calls: Iterable[tuple[Call, int, int]]) -> None:
        """Record one compute pass."""
        set_pipeline = self._lib.wgpuComputePassEncoderSetPipeline
        set_group = self._lib.wgpuComputePassEncoderSetBindGroup
        dispatch = self._lib.wgpuComputePassEncoderDispatchWorkgroups
        none = self._ffi.NULL
        stage = self._lib.wgpuCommandEncoderBeginComputePass(encoder, none)
        try:
            pipeline = None
            for one, x, y in calls:
                if one.pipeline is not pipeline:
                    pipeline = one.pipeline
                    set_pipeline(stage, pipeline)
                set_group(stage, 0, one.group, 0, none)
                dispatch(stage, x, y, 1)
            self._lib.wgpuComputePassEncoderEnd(stage)
        finally:
            self._lib.wgpuComputePassEncoderRelease(stage)
        self._errors.check()

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        """Write whole words to a buffer: they are copied at once, and there before whatever is submitted next."""
        with self._errors, self._ffi.from_buffer(data) as taken:
            self._lib.wgpuQueueWriteBuffer(self._queue, buffer._internal, offset, taken, len(taken))

    def wait(self) -> None:
        """Block until everything submitted is done."""
        with self._errors:
            self._lib.wgpuDevicePoll(self._device, True, self._ffi.NULL)

    def read(self, buffer: Any, size_bytes: int, targets: Iterable[tuple[Any, int]]) -> None:
        """Wait for what a staging buffer is to receive, then fill arrays, each from an offset of its first bytes.

        Raises wgpu-py's errors, or RuntimeError, where the device is lost.
        """
        lib, handle, memmove = self._lib, buffer._internal, self._ffi.memmove
        with self._errors:
            place = self._map(handle, size_bytes)
            try:
                for array, offset in targets:
                    if not 0 <= offset <= size_bytes - array.nbytes:
                        raise ValueError(f"{array.nbytes} bytes at {offset} of {size_bytes} that are mapped")
                    memmove(array, place + offset, array.nbytes)
            finally:
                lib.wgpuBufferUnmap(handle)

    def _map(self, handle: Any, size_bytes: int) -> Any:
        """Wait until a staging buffer can be read; where its first bytes are."""
        lib, answer = self._lib, self._answer
        answer[0] = 0
        lib.wgpuBufferMapAsync(handle, lib.WGPUMapMode_Read, 0, size_bytes, self._info[0])
        self._errors.check()
        for _ in range(_POLLS_LIMIT):
            if answer[0]:
                break
            lib.wgpuDevicePoll(self._device, True, self._ffi.NULL)
        if answer[0] == lib.WGPUMapAsyncStatus_Success:
            place = lib.wgpuBufferGetConstMappedRange(handle, 0, size_bytes)
            if place != self._ffi.NULL:
                return self._ffi.cast("char *", place)
        raise RuntimeError(f"the staging buffer cannot be mapped (status {answer[0]}): is the device lost?")


class _Errors:
    """Catches what the library says is wrong while a block runs; raises it where that is checked, at its end at last.

    wgpu-py hands each error to the slot that its thread has opened last, and keeps one message a slot: after a call
    that may fail, and before the next one, there must be a check.
    """

    def __init__(self, backend: Any):
        helpers: Any = importlib.import_module("wgpu.backends.wgpu_native._helpers")
        self._kinds = helpers.ERROR_TYPES
        self._slots = backend._api.error_handler._get_proxy_stack()  # this thread's
        self._slot = helpers.ErrorSlot("moregpu")

    def __enter__(self) -> None:
        self._slot.message = None
        self._slots.append(self._slot)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._slots.pop()
        if kind is None and self._slot.message is not None:
            self.check()

    def check(self) -> None:
        """Raise what was caught, as wgpu-py would."""
        slot = self._slot
        if slot.message is not None:
            raise self._kinds.get(slot.type, self._kinds[""])(slot.message)
