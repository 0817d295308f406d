"""NumPy arrays to tensors and back, without a copy too many. The only module of the client that imports NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np

from moregpu.blobs.transfer import BlobHTTP
from moregpu.client.programs import Named
from moregpu.errors import InvalidJob, MoreGPUError
from moregpu.jobs import Blob, Tensor, size_bytes
from moregpu.wire.api import TensorView

Array = np.ndarray[Any, Any]

INLINE_BYTES = 16 * 1024
"""Arrays up to this size travel inside the request; larger ones as sealed blobs beside it."""

_STORED: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"), "float16": np.dtype("<f2"), "float64": np.dtype("<f8"),
    "int8": np.dtype("i1"), "int16": np.dtype("<i2"), "int32": np.dtype("<i4"), "int64": np.dtype("<i8"),
    "uint8": np.dtype("u1"), "bool": np.dtype("?"),
}  # fmt: skip
"""dtype names to NumPy's; never `np.dtype(text)`."""


def plain(value: Any, name: str) -> Array:
    """As NumPy's array. Raises `InvalidJob` for what is none.

    Masked elements would be computed with; and a tensor of the pool is a kernel's input, but not everybody's.
    """
    if isinstance(value, Tensor | TensorView | Named):
        raise InvalidJob(f"{name} is on the pool, and must be an array here", "pool.fetch(tensor) brings a tensor here")
    if np.ma.is_masked(value):
        raise InvalidJob(f"{name} has masked elements, and kernels compute with all", "fill them first: a.filled(0)")
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:  # rows of several lengths
        raise InvalidJob(
            f"{name} is no array: {error}", "its rows must be of one length, its elements numbers"
        ) from error


def as_floats(value: Any, name: str) -> np.ndarray[Any, Any]:
    """What a kernel takes: float16 stays, everything else that is a real number becomes float32, here and once.

    So the check multiplies exactly what the workers multiplied. Raises `InvalidJob` for text, objects, complex numbers.
    """
    array = plain(value, name)
    if array.dtype.kind not in "fiub":
        raise InvalidJob(f"{name} holds {array.dtype}, and kernels take real numbers", "pass float32 or float16")
    kind = "<f2" if is_half(array) else "<f4"
    with np.errstate(over="ignore"):  # a float64 beyond float32's range becomes infinity, as NumPy's own astype gives
        return np.asarray(array, dtype=kind, order="C")


def is_half(array: Array) -> bool:
    """Whether it holds float16, in whichever order of bytes."""
    return array.dtype.newbyteorder("=") == np.float16


def common_floats(arrays: dict[str, Any], tensors: Mapping[str, Tensor] | None = None) -> dict[str, Array]:
    """All arrays of one kernel in one dtype: that of its `tensors`, else float16 only where all are."""
    of_source: dict[int, Array] = {}  # A @ A converts and travels once
    for name, value in arrays.items():
        if id(value) not in of_source:
            of_source[id(value)] = as_floats(value, name)
    floats = {name: of_source[id(value)] for name, value in arrays.items()}
    kinds = {tensor.dtype for tensor in (tensors or {}).values()}
    # A plain number takes the type of the arrays beside it, as NumPy has it.
    kinds = kinds or {floats[name].dtype.name for name, value in arrays.items() if not isinstance(value, int | float)}
    wanted = next(iter(kinds)) if len(kinds) == 1 else "float32"
    if tensors and (len(kinds) > 1 or wanted not in ("float16", "float32")):
        raise InvalidJob(
            f"tensors of {' and '.join(sorted(kinds))}", "kernels take float32, or float16, for all inputs"
        )
    return {name: array.astype(_STORED[wanted], copy=False) for name, array in floats.items()}


def send(arrays: dict[str, np.ndarray[Any, Any]], blobs: BlobHTTP, threads: Executor) -> dict[str, Tensor]:
    """Make tensors of arrays: small ones inline, large ones uploaded side by side; the same array only once."""
    uploads = {
        id(array): threads.submit(blobs.upload_stream, buffer_of(array))
        for array in {id(array): array for array in arrays.values() if array.nbytes > INLINE_BYTES}.values()
    }
    tensors: dict[str, Tensor] = {}
    failure: Exception | None = None
    for name, array in arrays.items():
        try:
            data: Blob | bytes = uploads[id(array)].result() if id(array) in uploads else array.tobytes()
        except (MoreGPUError, OSError) as error:  # let the other threads end before the buffers go
            failure = failure or error
            continue
        tensors[name] = Tensor(dtype=array.dtype.name, shape=array.shape, data=data)
    if failure is not None:
        raise failure
    return tensors


def receive(tensor: Tensor, blobs: BlobHTTP) -> np.ndarray[Any, Any]:
    """Open a tensor straight into a fresh array."""
    return next(iter(receive_all([tensor], blobs)))


def receive_all(tensors: Iterable[Tensor], blobs: BlobHTTP) -> Iterable[np.ndarray[Any, Any]]:
    """Open tensors one after the other. Raises `InvalidJob` for a type that NumPy lacks (bfloat16)."""
    for tensor in tensors:
        if tensor.dtype not in _STORED:
            raise InvalidJob(f"NumPy has no {tensor.dtype}", "fetch the sealed result and open it elsewhere")
        array = np.empty(tensor.shape, _STORED[tensor.dtype])
        if isinstance(tensor.data, Blob):
            blobs.download_into(tensor.data, buffer_of(array))
        else:
            if len(tensor.data) != size_bytes(tensor.dtype, tensor.shape):
                raise InvalidJob(f"a result of shape {tensor.shape} came with {len(tensor.data)} bytes")
            buffer_of(array)[:] = tensor.data
        yield array


def buffer_of(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of a contiguous array, not copied. NumPy's buffers of empty arrays cannot be cast."""
    return array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(bytearray())
