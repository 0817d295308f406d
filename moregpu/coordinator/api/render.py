"""Results as files that other programs read: `.npy` and `.safetensors`, streamed, from tensors opened in windows.

Formats: NumPy's NEP 1 (version 1.0 headers), and safetensors (8 bytes of header length, JSON header, data).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from moregpu.coordinator.api.ask import preferred
from moregpu.coordinator.api.problems import NotAcceptable
from moregpu.coordinator.protocol import Offload, OpenTensor

Form = Literal["npy", "safetensors"]
MEDIA_TYPES: dict[Form, str] = {"npy": "application/x-npy", "safetensors": "application/x-safetensors"}
WINDOW_BYTES = 1 << 20
"""One record of a sealed blob: a window reads at most two."""
INLINE_WINDOW_BYTES = 64 * 1024
"""Below, opening takes less than a thread hop."""

_NPY = {
    "float32": "<f4", "float16": "<f2", "float64": "<f8", "int8": "|i1", "int16": "<i2", "int32": "<i4",
    "int64": "<i8", "uint8": "|u1", "bool": "|b1",
}  # fmt: skip
_SAFETENSORS = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int8": "I8", "int16": "I16",
    "int32": "I32", "int64": "I64", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def form_for(accept: str, wanted: str, names: Sequence[str], output: str | None) -> tuple[Form, tuple[str, ...]]:
    """Which form, and which outputs go into it.

    `wanted` (`?format=`) goes before `accept`; without either, one output is an `.npy`, several a `.safetensors`.
    Raises `NotAcceptable`.
    """
    chosen = names if output is None else [name for name in names if name == output]
    if not chosen:
        raise NotAcceptable(f"there is no output {str(output)[:80]!r}", f"outputs: {', '.join(names)}")
    form = _asked(accept, wanted) or ("npy" if len(chosen) == 1 else "safetensors")
    if form == "npy" and len(chosen) > 1:
        raise NotAcceptable("an .npy file holds one array", f"choose one: ?output={chosen[0]}, or ask for .safetensors")
    return form, tuple(chosen)


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header of an `.npy` file, padded so that the data begins at a multiple of 64."""
    if dtype not in _NPY:
        raise NotAcceptable(f"NumPy has no {dtype}", "ask for .safetensors: Accept: application/x-safetensors")
    text = f"{{'descr': '{_NPY[dtype]}', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    padding = -(10 + len(text) + 1) % 64
    body = text + b" " * padding + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def safetensors_header(tensors: Mapping[str, OpenTensor]) -> bytes:
    """The header of a `.safetensors` file whose tensors follow in this order."""
    entries: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        entries[name] = {
            "dtype": _SAFETENSORS[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + tensor.size_bytes],
        }
        at += tensor.size_bytes
    body = msgspec.json.encode(entries)
    body += b" " * (-len(body) % 8)
    return len(body).to_bytes(8, "little") + body


def rendered(form: Form, tensors: Mapping[str, OpenTensor], offload: Offload) -> tuple[int, AsyncGenerator[bytes]]:
    """Length and bytes of the file; raises `NotAcceptable` before anything is read."""
    if form == "npy":
        (tensor,) = tensors.values()
        header = npy_header(tensor.dtype, tuple(tensor.shape))
    else:
        header = safetensors_header(tensors)
    length = len(header) + sum(tensor.size_bytes for tensor in tensors.values())
    return length, _pieces(header, list(tensors.values()), offload)


async def _pieces(header: bytes, tensors: list[OpenTensor], offload: Offload) -> AsyncGenerator[bytes]:
    yield header
    for tensor in tensors:
        for start in range(0, tensor.size_bytes, WINDOW_BYTES):
            stop = min(start + WINDOW_BYTES, tensor.size_bytes)
            if stop - start <= INLINE_WINDOW_BYTES:
                yield tensor.read(start, stop)
            else:
                yield await offload(_reading(tensor, start, stop))


def _reading(tensor: OpenTensor, start: int, stop: int) -> Callable[[], bytes]:
    return lambda: tensor.read(start, stop)


def _asked(accept: str, wanted: str) -> Form | None:
    if wanted:
        for form in MEDIA_TYPES:
            if wanted.lower().lstrip(".") == form:
                return form
        raise NotAcceptable(f"there is no format {wanted[:40]!r}", "npy or safetensors")
    kinds = preferred(accept)
    for kind in kinds:
        for form, media_type in MEDIA_TYPES.items():
            if kind in (media_type, f"application/{form}", f"application/vnd.{form}"):
                return form
    open_kinds = ("*/*", "application/*", "application/octet-stream")
    if kinds and not any(kind in open_kinds for kind in kinds):
        raise NotAcceptable(
            f"the result has no form {accept[:80]!r}",
            f"Accept: {' or '.join(MEDIA_TYPES.values())}; ?sealed=1 for JSON",
        )
    return None
