"""Numbers that hurt, computed by differing devices: whoever is honest passes, and nothing passes that is no number.

Row 8 of the hostile inputs: NaN, infinity, −0, subnormals, zero sizes, byte order.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from moregpu_kernels.operations import OPERATIONS
from moregpu_kernels.reference import FLUSH

from moregpu.jobs import Evidence, Planned
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.worker.engines.unfit import DeviceUnfit
from moregpu.worker.engines.wgpu_engine import WgpuEngine
from moregpu.workloads import workload
from moregpu.workloads.protocol import Cost, Rejected, TaskSpec

Array = np.ndarray[Any, Any]
Device = Callable[[str, dict[str, Array]], Array]
KERNEL = workload("kernel")
SCALAR = 1.5
DTYPES = {"float32": "<f4", "float16": "<f2"}


class Unhurried:
    slice_s = 0.03

    def pause_point(self, share_done: float | None = None) -> None:
        del share_done


def processor(operation: str, arrays: dict[str, Array]) -> Array:
    """NumPy, which keeps subnormals."""
    return NumpyEngine().run(operation, arrays, {"scalar": SCALAR}, Unhurried())["out"]


def flushing(operation: str, arrays: dict[str, Array]) -> Array:
    """A device that takes float32's subnormals for zero, and gives zero where a result is one."""
    return flushed(processor(operation, {name: flushed(array) for name, array in arrays.items()}))


def flushed(array: Array) -> Array:
    return np.where(np.abs(array) < FLUSH, np.zeros_like(array), array)


@pytest.fixture(scope="module")
def adapter() -> WgpuEngine:
    try:
        return WgpuEngine("gpu0", "")
    except DeviceUnfit as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")


@pytest.fixture(params=["processor", "flushing", "adapter"])
def device(request: pytest.FixtureRequest) -> Device:
    if request.param != "adapter":
        return {"processor": processor, "flushing": flushing}[request.param]
    engine: WgpuEngine = request.getfixturevalue("adapter")
    return lambda operation, arrays: engine.run(operation, arrays, {"scalar": SCALAR}, Unhurried())["out"]


def hurtful(operation: str, dtype: str) -> dict[str, Array]:
    """Rows of plain numbers with every special one somewhere, and rows that hold nothing else."""
    info = np.finfo(dtype)
    special = [np.nan, np.inf, -np.inf, -0.0, info.max, -info.max, info.smallest_subnormal, -info.tiny / 4, info.tiny]
    rng = np.random.default_rng(8)
    made: dict[str, Array] = {}
    for name in OPERATIONS[operation].inputs:
        array = rng.standard_normal((12, 12)).astype(DTYPES[dtype])
        if OPERATIONS[operation].form == "product" and name == "b":
            array[: len(special), 0] = special  # other columns are not, or no element of the product were finite
            array[3, 1], array[4, 2] = np.inf, info.max
        else:
            for row, value in enumerate(special):
                array[row, row if name == "a" else (row + 5) % 12] = value
            array[9], array[10], array[11] = -0.0, info.smallest_subnormal, np.inf
            if name == "b":
                array[10, ::2], array[10, 1::2] = np.inf, info.max
        made[name] = array if OPERATIONS[operation].form != "elements" else array.reshape(-1)
    return made


def judged(operation: str, arrays: dict[str, Array], found: Array, dtype: str) -> Evidence | Rejected:
    shape = KERNEL_SHAPES[OPERATIONS[operation].form](arrays)
    task = TaskSpec(
        kind="kernel",
        program=operation.encode(),
        parameters=msgspec.msgpack.encode({"scalar": SCALAR}),
        precision=dtype,  # pyright: ignore[reportArgumentType]
        grains=(0, 1),
        inputs={},
        outputs={"out": Planned(dtype=dtype, shape=shape)},  # pyright: ignore[reportArgumentType]
        cost=Cost(),
    )
    return KERNEL.check(task, arrays, {"out": found}, "spot", os.urandom)


KERNEL_SHAPES: dict[str, Callable[[dict[str, Array]], tuple[int, ...]]] = {
    "elements": lambda arrays: arrays["a"].shape,
    "rows": lambda arrays: arrays["a"].shape,
    "product": lambda arrays: (arrays["a"].shape[0], arrays["b"].shape[1]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_numbers_that_hurt_are_right_on_every_device(device: Device, operation: str, dtype: str) -> None:
    arrays = hurtful(operation, dtype)
    found = device(operation, arrays)
    accepted = judged(operation, arrays, found, dtype)
    assert isinstance(accepted, Evidence) and accepted.kind == "recomputed" and accepted.worst_ratio <= 1.0, accepted
    for lie in (np.nan, 7.0):
        wrong = found.copy()
        at = np.flatnonzero(np.isfinite(found) if np.isnan(lie) else np.isnan(found))
        assert len(at), "some of these are finite, and some are not"
        wrong.flat[at[0]] = lie
        assert isinstance(judged(operation, arrays, wrong, dtype), Rejected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_zero_sizes_are_right_on_every_device(device: Device, operation: str, dtype: str) -> None:
    shape = {"elements": (0,), "rows": (0, 5), "product": (0, 0)}[OPERATIONS[operation].form]
    arrays = {name: np.empty(shape, DTYPES[dtype]) for name in OPERATIONS[operation].inputs}
    assert judged(operation, arrays, device(operation, arrays), dtype) == Evidence(kind="recomputed")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_bytes_in_the_other_order_are_wrong_whatever_they_are_called(operation: str, dtype: str) -> None:
    rng = np.random.default_rng(8)
    shape = (144,) if OPERATIONS[operation].form == "elements" else (12, 12)
    arrays = {name: rng.standard_normal(shape).astype(DTYPES[dtype]) for name in OPERATIONS[operation].inputs}
    right = processor(operation, arrays)
    assert isinstance(judged(operation, arrays, right, dtype), Evidence)
    verdict = judged(operation, arrays, right.astype(right.dtype.newbyteorder(">")), dtype)
    assert isinstance(verdict, Rejected) and verdict.reason.startswith("out is >f")
    assert isinstance(judged(operation, arrays, right.byteswap(), dtype), Rejected)
