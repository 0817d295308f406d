"""Cutting an operation on the host, where its tensors are more than a device binds, buffers or may hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from numpy.typing import NDArray

from moregpu_kernels.errors import BadShape, BudgetExceeded
from moregpu_kernels.fuse import FORMULAS
from moregpu_kernels.layout import ITEM_BYTES, Plan, Request, Shape, Traits
from moregpu_kernels.plan_product import product_sizes
from moregpu_kernels.plan_rows import QUANTISED, REDUCTIONS, ROW_OPERATIONS

Array = NDArray[Any]

BUDGET_SHARE: Final = 0.45
"""Of the budget, what one piece's tensors may take: room for pooled buffers and staging."""

Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class HostPiece:
    """A part of the work: which part of each input it takes (all of those not named), and where its output goes.

    `flat` pieces index arrays as one row of elements.
    """

    inputs: dict[str, Index]
    output: Index
    flat: bool = False

    def take(self, name: str, array: Array) -> Array:
        """The part of an input."""
        if name not in self.inputs:
            return array
        return (array.reshape(-1) if self.flat else array)[self.inputs[name]]

    def share(self, out: Array) -> float:
        """How much of the output it makes."""
        return (out.reshape(-1) if self.flat else out)[self.output].size / out.size

    def put(self, out: Array, part: Array) -> None:
        """Write the part's output to its place."""
        (out.reshape(-1) if self.flat else out)[self.output] = part


@dataclass(frozen=True, slots=True)
class HostPieces:
    """All parts, in order, and the shape of the whole output."""

    out_shape: Shape
    pieces: Iterator[HostPiece]


def host_slices(request: Request, traits: Traits, budget_bytes: int, planned: Plan | None) -> HostPieces | None:
    """Cut a request into parts that fit; None where it fits whole. No plan: it is too large to be planned.

    Raises
    ------
    BudgetExceeded
        The smallest part is more than the budget allows.
    BadShape
        This operation cannot be cut.

    """
    item = ITEM_BYTES[request.dtype]
    room = int(budget_bytes * BUDGET_SHARE)
    # One tensor of a piece: what a buffer holds, or a binding where whole tensors cannot be bound in slices.
    largest = traits.limits.max_buffer_bytes
    if planned is None:
        largest = min(largest, traits.limits.max_binding_bytes)
    else:
        tensors = [math.prod(shape) * item for shape in (*request.shapes.values(), planned.out_shape)]
        total = sum(tensors) + sum(size for _, size in planned.temporaries)
        if total <= budget_bytes * (2 * BUDGET_SHARE) and max(tensors) <= largest:
            return None
    cut = _CUTTERS.get(request.operation)
    if cut is None:
        raise BadShape(
            f"{request.operation} on tensors of this size does not fit this device", "Cut the arrays yourself"
        )
    return cut(request, room, largest)


def _elements(request: Request, room: int, largest: int) -> HostPieces:
    names = list(request.shapes)
    shape = request.shapes[names[0]]
    if any(request.shapes[name] != shape for name in names):
        raise BadShape("A broadcast of tensors of this size does not fit this device", "Cut the first axis yourself")
    count = math.prod(shape)
    item = ITEM_BYTES[request.dtype]
    step = _whole(min(room // (item * (len(names) + 1)), largest // item), room, 1024)
    return HostPieces(
        shape,
        (
            HostPiece(
                dict.fromkeys(names, (slice(first, min(count, first + step)),)), (slice(first, first + step),), True
            )
            for first in range(0, count, step)
        ),
    )


def _rows(request: Request, room: int, largest: int) -> HostPieces:
    """Rows lie one after the other, so a number of whole rows is a flat range, but must keep its shape."""
    shape = request.shape("a")
    is_reduction = request.operation in REDUCTIONS
    if len(shape) != 2:
        raise BadShape(
            f"{request.operation} on {len(shape)} axes of this size does not fit this device",
            "Reshape to (rows, columns)",
        )
    row_bytes = max(1, ITEM_BYTES[request.dtype] * shape[1] * 2)
    step = _whole(min(room // (2 * row_bytes), largest // row_bytes), row_bytes)
    out_shape = shape[:-1] if is_reduction else shape
    return HostPieces(
        out_shape,
        (
            HostPiece({"a": (slice(first, first + step),)}, (slice(first, first + step),))
            for first in range(0, shape[0], step)
        ),
    )


def _product(request: Request, room: int, largest: int) -> HostPieces:
    """Strips of rows of A times strips of columns of B, as square as the room allows."""
    m, k, n = product_sizes(request)
    item = ITEM_BYTES[request.dtype]
    side = 1 << 14
    while side >= 1:
        rows, columns = min(side, m), min(side, n)
        # Float16 may need a float32 copy of its output besides.
        total = item * (rows * k + k * columns) + 2 * 4 * rows * columns
        if total <= room and max(item * rows * k, item * k * columns, 4 * rows * columns) <= largest:
            break
        side //= 2
    else:
        raise BudgetExceeded(2 * item * k, 0, min(room, largest))

    def pieces() -> Iterator[HostPiece]:
        for row in range(0, m, side):
            for column in range(0, n, side):
                rows, columns = slice(row, min(m, row + side)), slice(column, min(n, column + side))
                inputs: dict[str, Index] = {"a": (rows,), "b": (slice(None), columns)}
                if "bias" in request.shapes:
                    inputs["bias"] = (columns,)
                if "residual" in request.shapes:
                    inputs["residual"] = (rows, columns)
                yield HostPiece(inputs, (rows, columns))

    return HostPieces((m, n), pieces())


def _transpose(request: Request, room: int, largest: int) -> HostPieces:
    shape = request.shape("a")
    if len(shape) != 2:
        raise BadShape("A batch of transposes of this size does not fit this device", "Transpose one matrix at a time")
    rows, columns = shape
    step = _whole(min(room // max(1, 12 * rows), largest // max(1, 4 * rows)), 12 * rows)
    return HostPieces(
        (columns, rows),
        (
            HostPiece({"a": (slice(None), slice(first, first + step))}, (slice(first, first + step),))
            for first in range(0, columns, step)
        ),
    )


def _quantised(request: Request, room: int, largest: int) -> HostPieces:
    rows, words = request.shape("quants")
    row_bytes = max(1, words * 4 + request.shape("scales")[1] * 2 + 8)
    step = _whole(min(room, largest) // row_bytes, row_bytes)
    return HostPieces(
        (rows,),
        (
            HostPiece(
                {"quants": (slice(first, first + step),), "scales": (slice(first, first + step),)},
                (slice(first, first + step),),
            )
            for first in range(0, rows, step)
        ),
    )


def _whole(count: int, needed: int, multiple: int = 1) -> int:
    if count < 1:
        raise BudgetExceeded(needed, 0, max(count, 0))
    return max(count // multiple * multiple, min(count, multiple))


_CUTTERS: Final[dict[str, Callable[[Request, int, int], HostPieces]]] = {
    "matmul": _product,
    "transpose": _transpose,
    "formula": _elements,
    **dict.fromkeys(FORMULAS, _elements),
    **dict.fromkeys((*ROW_OPERATIONS, *REDUCTIONS), _rows),
    **dict.fromkeys(QUANTISED, _quantised),
}
