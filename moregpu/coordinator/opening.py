"""Tensors opened and sealed on the coordinator: what a judge reads, what a combiner writes.

Everything here blocks (files, ciphers); callers run it off the event loop unless it is small and inline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from moregpu.blobs.format import RECORD_BYTES, open_range, sealed_size
from moregpu.blobs.local import BlobFiles, Reader, Upload
from moregpu.blobs.regions import read_part, spans
from moregpu.blobs.stream import SealStream
from moregpu.errors import DigestMismatch, NotFound
from moregpu.jobs import Blob, Tensor, size_bytes
from moregpu.wire.statement import OutputsDigest
from moregpu.workloads.arrays import as_array
from moregpu.workloads.protocol import Plan

Plain = bytes | bytearray | memoryview

INLINE_RESULT_BYTES = 16 * 1024
"""Outputs up to this size stay inline in their job's result: an answer without a second round trip."""


class StoredTensor:
    """A tensor whose plain bytes can be read in windows: inline, or a sealed blob on this coordinator's disk."""

    def __init__(self, tensor: Tensor, blobs: BlobFiles) -> None:
        self.dtype: str = tensor.dtype
        self.shape: tuple[int, ...] = tensor.shape
        self.size_bytes: int = tensor.whole_bytes
        self._data = tensor.data
        self._blobs = blobs

    def read(self, start: int, stop: int) -> bytes:
        """Plain bytes [start, stop). Raises `DigestMismatch` where they are not what was sealed, or gone."""
        if not isinstance(self._data, Blob):
            return self._data[start:stop]
        out = bytearray(stop - start)
        with _reader(self._data, self._blobs) as reader:
            open_range(self._data, reader.read_at, start, stop, out)
        return bytes(out)


def plain_part(tensor: Tensor, blobs: BlobFiles) -> Plain:
    """The plain bytes of a tensor, or of its region, row-major.

    Raises `DigestMismatch` where they are not what their name says, have another length, or are gone.
    """
    blob = tensor.data
    _refuse_length(tensor)
    if not isinstance(blob, Blob):
        return blob if tensor.region is None else read_part(tensor, _never)
    with _reader(blob, blobs) as reader:
        return read_part(tensor, lambda start, stop, out: open_range(blob, reader.read_at, start, stop, out))


def windows(tensor: Tensor, blobs: BlobFiles) -> Iterator[Plain]:
    """The same bytes a record at a time, in one buffer that the next window overwrites: never held together.

    For what lies together in its tensor; scattered parts cost a record each. Raises what `plain_part` raises.
    """
    blob = tensor.data
    if not isinstance(blob, Blob):
        yield plain_part(tensor, blobs)
        return
    _refuse_length(tensor)
    buffer = memoryview(bytearray(min(RECORD_BYTES, tensor.part_bytes)))
    with _reader(blob, blobs) as reader:
        for at, end in spans(tensor.shape, tensor.dtype, tensor.region):
            while at < end:
                stop = min(at - at % RECORD_BYTES + RECORD_BYTES, end)
                window = buffer[: stop - at]
                open_range(blob, reader.read_at, at, stop, window)
                yield window
                at = stop


def open_arrays(tensors: Mapping[str, Tensor], blobs: BlobFiles) -> dict[str, Any]:
    """Several tensors as NumPy arrays, by name."""
    return {name: array_of(tensor, plain_part(tensor, blobs)) for name, tensor in tensors.items()}


def open_windows(tensors: Mapping[str, Tensor], blobs: BlobFiles) -> dict[str, Iterator[Plain]]:
    """Several tensors' bytes as `windows`, by name."""
    return {name: windows(tensor, blobs) for name, tensor in tensors.items()}


def array_of(tensor: Tensor, plain: Plain) -> Any:
    """The plain bytes of a tensor (or its region) as a NumPy array, without a copy."""
    return as_array(plain, tensor.dtype, tensor.part_shape)


def cut_inline(tensor: Tensor) -> Tensor:
    """An inline tensor with a region becomes that region alone: a task is not sent what it does not need."""
    if isinstance(tensor.data, Blob) or tensor.region is None:
        return tensor
    return msgspec.structs.replace(tensor, shape=tensor.part_shape, region=None, data=bytes(read_part(tensor, _never)))


def shaped(outputs: Mapping[str, Tensor], plan: Plan) -> dict[str, Tensor]:
    """One task's outputs as the whole job's: the same bytes in the shape that the job promised."""
    return {
        name: msgspec.structs.replace(tensor, shape=planned.shape)
        if (planned := plan.outputs.get(name)) is not None
        and planned.shape != tensor.shape
        and size_bytes(tensor.dtype, planned.shape) == tensor.whole_bytes
        else tensor
        for name, tensor in outputs.items()
    }


class SealedWriter:
    """Writes a job's outputs, streaming: small ones stay inline, large ones go to sealed blobs, record by record.

    The `OutputWriter` of `moregpu.workloads.protocol`. An output is visible in the blob folder once it is whole.
    """

    def __init__(
        self,
        blobs: BlobFiles,
        principal: str,
        entropy: Callable[[int], bytes],
        inline_bytes: int = INLINE_RESULT_BYTES,
    ) -> None:
        self.written: list[tuple[str, int]] = []
        """(digest, sealed bytes) of each blob that was made durable."""
        self._blobs = blobs
        self._principal = principal
        self._entropy = entropy
        self._inline_bytes = inline_bytes
        self._digest = OutputsDigest()
        self._outputs: dict[str, Tensor] = {}
        self._open: _Inline | _Blob | None = None

    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Start an output; the bytes that follow are its row-major content. Raises `OutOfSpace`."""
        self._end_output()
        self._digest.begin(name, dtype, shape)
        about = Tensor(dtype=dtype, shape=shape, data=b"")  # pyright: ignore[reportArgumentType]
        if size_bytes(dtype, shape) <= self._inline_bytes:
            self._open = _Inline(name, about)
        else:
            self._open = _Blob(name, about, self._blobs, self._principal, self._entropy)

    def write(self, data: Any) -> None:
        """Append bytes (any buffer) to the output begun last. Raises `OutOfSpace`."""
        if self._open is None:
            raise ValueError("write before begin")
        plain = memoryview(data).cast("B")
        self._digest.update(plain)
        self._open.write(plain)

    def finish(self) -> tuple[dict[str, Tensor], str]:
        """End the last output; returns all of them, and the content digest in hex. Raises `OutOfSpace`."""
        self._end_output()
        return self._outputs, self._digest.hex()

    def abort(self) -> None:
        """Leave nothing half-written."""
        stream, self._open = self._open, None
        if isinstance(stream, _Blob):
            stream.upload.abort()

    def _end_output(self) -> None:
        if self._open is None:
            return
        tensor = self._open.end()
        self._outputs[self._open.name] = tensor
        if isinstance(tensor.data, Blob):
            self.written.append((tensor.data.digest, sealed_size(tensor.data.size_bytes)))
        self._open = None


class _Inline:
    """An output that stays in its job's row."""

    def __init__(self, name: str, about: Tensor) -> None:
        self.name = name
        self._about = about
        self._plain = bytearray()

    def write(self, plain: memoryview) -> None:
        self._plain += plain

    def end(self) -> Tensor:
        if len(self._plain) != self._about.whole_bytes:
            raise ValueError(f"{len(self._plain)} of {self._about.whole_bytes} bytes of {self.name} were written")
        return msgspec.structs.replace(self._about, data=bytes(self._plain))


class _Blob:
    """An output on its way into a sealed blob: one record is held at a time."""

    def __init__(
        self, name: str, about: Tensor, blobs: BlobFiles, principal: str, entropy: Callable[[int], bytes]
    ) -> None:
        self.name = name
        self._about = about
        self.upload: Upload = blobs.begin(principal, None, sealed_size(about.whole_bytes))
        self._stream = SealStream(about.whole_bytes, self.upload.write, entropy)

    def write(self, plain: memoryview) -> None:
        self._stream.write(plain)

    def end(self) -> Tensor:
        blob = self._stream.finish()
        self.upload.finish()
        return msgspec.structs.replace(self._about, data=blob)


def _refuse_length(tensor: Tensor) -> None:
    held = tensor.data.size_bytes if isinstance(tensor.data, Blob) else len(tensor.data)
    if held != tensor.whole_bytes:
        raise DigestMismatch(f"{held} bytes where {tensor.dtype} of shape {tensor.shape} takes {tensor.whole_bytes}")


def _reader(blob: Blob, blobs: BlobFiles) -> Reader:
    try:
        return blobs.open_reader(blob.digest)
    except NotFound as error:
        raise DigestMismatch(f"the blob {blob.digest[:12]}… is not here any more") from error


def _never(start: int, stop: int, out: memoryview) -> None:
    raise AssertionError("an inline tensor is not read from a file")
