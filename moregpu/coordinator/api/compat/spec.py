"""From a 1.x submission to a JobSpec: their kernels, their default shapes."""

from __future__ import annotations

import math
from typing import NamedTuple

from moregpu.coordinator.api.compat.body import Number, SubmitBody, number, said, whole
from moregpu.errors import InvalidRequest
from moregpu.jobs import Tensor
from moregpu.workloads import JobSpec
from moregpu.workloads.kernel.spec import KERNELS, KernelSpec, Operation

ROW = 128
MAX_MATMUL = 16_384
MAX_ELEMENTS = 10**9
"""What a benchmark may have; `GET /device` tells."""
_SMALLEST = 16
_SMALL_WORK = 4e9
"""Operations of a second or two of one core. 1.x had four jobs in work at once, and all its programs share one token:
what somebody waits for must not stand behind what takes minutes."""
_ELEMENT_WORK = 100.0
"""What an element of the other kernels costs, in the operations of a product: it is moved more than computed."""
_TWO_INPUTS = frozenset({"matmul", "vector_add", "vector_mul", "saxpy"})
_ROWS = frozenset({"softmax", "layernorm"})
ITEM_BYTES = 4


class Weight(NamedTuple):
    """A resident weight."""

    tensor: Tensor
    rows: int
    columns: int


def spec_of(body: SubmitBody, weight: Weight | None) -> JobSpec:
    """The job that a submission asks for. Raises `InvalidRequest`."""
    operation = _operation(body.kernel)
    scalar = number(body.scalar, "scalar", 1.0)
    if body.a is None:
        if body.b is not None or body.bRef is not None:
            raise InvalidRequest("b is there without a", "send both, or a size alone for a benchmark")
        size = _benchmark_size(body.size, operation)
        elements = size * ROW if operation in _ROWS else size
        work = 2.0 * size**3 if operation == "matmul" else elements * _ELEMENT_WORK
        return KernelSpec(operation=operation, size=size, scalar=scalar, priority=_priority(work))
    if len(body.a) % ITEM_BYTES or len(body.b or b"") % ITEM_BYTES:
        raise InvalidRequest("a and b must hold whole float32 values: a multiple of four bytes each")
    inputs = _product(body, weight) if operation == "matmul" else _others(body, operation)
    elements = math.prod(inputs["a"].shape)
    work = 2.0 * elements * inputs["b"].shape[1] if operation == "matmul" else elements * _ELEMENT_WORK
    return KernelSpec(operation=operation, inputs=inputs, scalar=scalar, priority=_priority(work))


def _priority(work: float) -> int:
    """A point for small ones: they go before large ones of the same token, unless those have waited for an hour."""
    return 1 if work <= _SMALL_WORK else 0


def _operation(kernel: str | None) -> Operation:
    if kernel is None:
        return "matmul"
    if kernel not in KERNELS:
        raise InvalidRequest(f"unknown kernel {said(kernel)}", f"kernels: {', '.join(KERNELS)}")
    return kernel


def _benchmark_size(size: Number, operation: Operation) -> int:
    """As asked for, within what a benchmark may have: a script that asks for more gets the most, as in 1.x."""
    if operation == "matmul":
        default, most = 512, MAX_MATMUL
    else:
        default, most = 1_000_000, MAX_ELEMENTS // ROW if operation in _ROWS else MAX_ELEMENTS
    return max(_SMALLEST, min(most, whole(size, "size", default)))


def _product(body: SubmitBody, weight: Weight | None) -> dict[str, Tensor]:
    a = body.a or b""
    length = len(a) // ITEM_BYTES
    if weight is not None:
        inner, columns = weight.rows, weight.columns
        rows = whole(body.M, "M", length // inner)
        _agree("K", body.K, inner)
        _agree("N", body.N, columns)
    else:
        rows = whole(body.M, "M", round(math.sqrt(length)))
        inner = whole(body.K, "K", rows)
        columns = whole(body.N, "N", inner)
    if rows * inner != length:
        raise InvalidRequest(f"a holds {length} values; M × K = {rows} × {inner} takes {rows * inner}")
    if weight is not None:
        return {"a": _tensor(a, (rows, inner)), "b": weight.tensor}
    b = body.b if body.b is not None else bytes(inner * columns * ITEM_BYTES)
    if len(b) != inner * columns * ITEM_BYTES:
        raise InvalidRequest(
            f"b holds {len(b) // ITEM_BYTES} values; K × N = {inner} × {columns} takes {inner * columns}"
        )
    return {"a": _tensor(a, (rows, inner)), "b": _tensor(b, (inner, columns))}


def _others(body: SubmitBody, operation: str) -> dict[str, Tensor]:
    a = body.a or b""
    length = len(a) // ITEM_BYTES
    if body.bRef is not None:
        raise InvalidRequest("bRef is for matmul alone")
    if operation in _ROWS:
        width = whole(body.N, "N", ROW)
        if width == 0 or length % width:
            raise InvalidRequest(
                f"a holds {length} values: the last row of {width} is not whole", "say N: the row width"
            )
        return {"a": _tensor(a, (length // width, width))}
    inputs = {"a": _tensor(a, (length,))}
    if operation in _TWO_INPUTS:
        b = body.b if body.b is not None else bytes(len(a))
        if len(b) != len(a):
            raise InvalidRequest(f"a holds {length} values, b {len(b) // ITEM_BYTES}")
        inputs["b"] = _tensor(b, (length,))
    return inputs


def _agree(name: str, given: Number, known: int) -> None:
    if given is not None and whole(given, name) != known:
        raise InvalidRequest(f"{name}={given} does not fit the resident weight, whose {name} is {known}")


def _tensor(data: bytes, shape: tuple[int, ...]) -> Tensor:
    return Tensor(dtype="float32", shape=shape, data=data)
