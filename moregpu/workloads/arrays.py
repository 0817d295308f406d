"""Between the bytes of a `Tensor` and NumPy arrays: the one table of dtypes, and nothing that copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from moregpu.jobs import size_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moregpu.jobs import Planned

NUMPY: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"), "float16": np.dtype("<f2"), "float64": np.dtype("<f8"),
    "int8": np.dtype("i1"), "int16": np.dtype("<i2"), "int32": np.dtype("<i4"), "int64": np.dtype("<i8"),
    "uint8": np.dtype("u1"), "bool": np.dtype("?"),
}  # fmt: skip
"""NumPy's dtype for ours (there is none for bfloat16). A stranger's text is looked up here, never given to NumPy."""


def as_array(buffer: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """View plain row-major bytes as an array, without a copy; `ValueError` when the length or the dtype is wrong."""
    if dtype not in NUMPY:
        raise ValueError(f"no array holds {dtype}")
    held = memoryview(buffer).nbytes
    if held != size_bytes(dtype, shape):
        raise ValueError(f"{held} bytes are not a {dtype} of shape {shape}")
    return np.frombuffer(buffer, NUMPY[dtype]).reshape(shape)


def as_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """View an array's content as row-major bytes; copies only what is not contiguous."""
    # A memoryview cannot cast shapes with a zero, and knows no float16: a flat view of bytes serves all alike.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def misfit(arrays: Mapping[str, Any], planned: Mapping[str, Planned]) -> str:
    """Say how arrays differ from what was planned (names, dtype, byte order, shape); "" when they fit."""
    if set(arrays) != set(planned):
        return f"outputs {sorted(arrays)}, expected {sorted(planned)}"
    for name, plan in planned.items():
        array = arrays[name]
        if not isinstance(array, np.ndarray) or array.dtype != NUMPY.get(plan.dtype):
            return f"{name} is {getattr(array, 'dtype', type(array).__name__)}, expected {plan.dtype}"
        if array.shape != plan.shape:
            return f"{name} has shape {array.shape}, expected {plan.shape}"
    return ""
