"""Planning, pure: (operation, shapes, dtype, device, choices) → dispatches. Nothing is allocated, no device touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from moregpu_kernels.errors import BadShape
from moregpu_kernels.formula import Expression
from moregpu_kernels.fuse import FORMULAS
from moregpu_kernels.layout import Plan, Request, Traits
from moregpu_kernels.plan_elements import plan_elements
from moregpu_kernels.plan_product import plan_product, product_candidates, product_sizes
from moregpu_kernels.plan_rows import (
    QUANTISED,
    REDUCTIONS,
    ROW_OPERATIONS,
    plan_quantised,
    plan_reduction,
    plan_rows,
    plan_transpose,
    quantised_candidates,
    row_candidates,
)

ELEMENTS_LIMIT: Final = 2**32 - 2**16
"""Kernels count elements in 32 bits."""

Choices = Mapping[str, str]
"""Variants that were measured to be the best: bucket → variant."""

_Planner = Callable[[Request, Traits, str], Plan]
_PLANNERS: Final[dict[str, _Planner]] = {
    "matmul": plan_product,
    "transpose": plan_transpose,
    **dict.fromkeys(ROW_OPERATIONS, plan_rows),
    **dict.fromkeys(REDUCTIONS, plan_reduction),
    **dict.fromkeys(QUANTISED, plan_quantised),
}

OPERATIONS: Final = (*sorted({*_PLANNERS, *FORMULAS}), "formula")
"""Every operation that this library can run."""


def plan(
    request: Request,
    traits: Traits,
    choices: Choices | None = None,
    *,
    variant: str | None = None,
    expression: Expression | None = None,
) -> Plan:
    """Plan one operation: with `variant`, with what `choices` says for its bucket, or with the device's default.

    Raises
    ------
    BadShape
        Unknown operation, shapes that do not fit, tensors that this device cannot bind in slices.
    BadFormula
        A formula that cannot be understood, or names what is not given.

    """
    if request.dtype not in ("float32", "float16"):
        raise BadShape(f"Kernels work on float32 and float16, not {request.dtype}", "Convert the array")
    for name, shape in request.shapes.items():
        if any(size < 0 for size in shape) or math.prod(shape) > ELEMENTS_LIMIT:
            raise BadShape(
                f"{name} has {math.prod(shape):,} elements; a kernel counts to 2^32", "Cut it along its first axis"
            )
    if expression is not None or request.operation == "formula" or request.operation in FORMULAS:
        return plan_elements(request, traits, expression)
    if request.operation not in _PLANNERS:
        raise BadShape(f"There is no operation {request.operation!r}", f"There are: {', '.join(OPERATIONS)}")
    known = candidates(request, traits)
    wanted = variant or (choices or {}).get(bucket(request), known[0])
    if variant is None and wanted not in known:
        wanted = known[0]
    return _PLANNERS[request.operation](request, traits, wanted)


def candidates(request: Request, traits: Traits) -> tuple[str, ...]:
    """The variants worth measuring for a request, the device's default first."""
    if request.operation == "matmul":
        return product_candidates(request, traits)
    if request.operation in QUANTISED:
        return quantised_candidates(request, traits)
    if request.operation in ROW_OPERATIONS or request.operation in REDUCTIONS:
        return row_candidates(request, traits)
    return ("tile32",) if request.operation == "transpose" else ("elementwise",)


def bucket(request: Request) -> str:
    """The class of requests that one measured choice serves: sizes to the nearest power of two, and their evenness."""
    if request.operation == "matmul":
        sizes = product_sizes(request)
        even = "".join("4" if size % 4 == 0 else "1" for size in sizes[1:])
        epilogue = "e" if request.parameters.get("epilogue") else ""
        return f"matmul.{request.dtype}.{_powers(sizes)}.v{even}{epilogue}"
    primary = request.shapes.get("a") or request.shapes.get("scales") or (1,)
    rows, columns = math.prod(primary[:-1]), primary[-1]
    return f"{request.operation}.{request.dtype}.{_powers((rows, columns))}.v{4 if columns % 4 == 0 else 1}"


def _powers(sizes: tuple[int, ...]) -> str:
    return "x".join(str(round(math.log2(size))) if size else "0" for size in sizes)
