"""Planning of elementwise work: named operations, formulas and fused chains; flat where shapes agree or broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from moregpu_kernels.errors import BadFormula, BadShape, TooLargeToBind
from moregpu_kernels.formula import Expression, check_names, names_of
from moregpu_kernels.fuse import Layout, elementwise_kernel, expression_of
from moregpu_kernels.layout import ITEM_BYTES, OUT, Dispatch, Plan, Request, Shape, Span, Traits, part, row_slices
from moregpu_kernels.template import load_kernel

_INVOCATIONS: Final = 64
_SLICE_ELEMENTS: Final = 256
"""Elementwise slices begin at multiples of this: whole vectors, aligned for every dtype."""


def plan_elements(request: Request, traits: Traits, expression: Expression | None = None) -> Plan:
    """Plan an elementwise operation; arrays broadcast as NumPy's do, scalars are parameters of their name."""
    tree = expression or expression_of(request.operation, request.parameters)
    if tree is None:
        raise BadShape(f"{request.operation} is not elementwise")
    text = str(request.parameters.get("text", request.operation))
    check_names(text, tree, {**request.shapes, **{name: 0 for name in request.parameters if name != "text"}})
    names = names_of(tree)
    arrays = [name for name in names if name in request.shapes]
    if not arrays:
        raise BadFormula("The formula uses no array", hint="Name at least one array in it")
    if request.operation not in ("formula", "fused"):
        _same_shapes(request, arrays)
    shape = broadcast_shape(request, arrays)
    count = math.prod(shape)
    moved = float(ITEM_BYTES[request.dtype] * (count + sum(math.prod(request.shapes[name]) for name in arrays)))
    if count == 0:
        return Plan("elementwise", shape, request.dtype, ())
    axes = merged_axes(shape, [request.shapes[name] for name in arrays])
    layouts = {name: _layout(request.shapes[name], shape, axes) for name in arrays}
    inputs = tuple((name, layouts.get(name, Layout("scalar"))) for name in names)
    kernel = elementwise_kernel(tree, tuple((n, Layout(ly.kind)) for n, ly in inputs), len(axes))
    scalars = tuple(_scalar(request, name) for name, layout in inputs if layout.kind == "scalar")
    is_strided = any(layout.kind == "strided" for layout in layouts.values())
    half = request.dtype == "float16"
    item = ITEM_BYTES[request.dtype]
    dispatches: list[Dispatch] = []
    if is_strided:
        wide = half
        sizes = tuple(math.prod(shape[first:last]) for first, last in axes)
        strides = tuple(s for _, layout in inputs if layout.kind == "strided" for s in layout.strides)
        spans = (*(Span(name) for name in arrays), Span("~wide" if wide else OUT))
        largest = max(count * (4 if wide else item), *(math.prod(request.shapes[n]) * item for n in arrays))
        if largest > traits.limits.max_binding_bytes:
            raise TooLargeToBind(
                f"A broadcast of {largest:,} bytes; this device binds {traits.limits.max_binding_bytes:,}",
                "Cut the first axis into smaller pieces",
            )
        options = tuple(sorted({"dtype": request.dtype, "wide": wide}.items()))
        groups = -(-count // _INVOCATIONS)
        dispatches.append(Dispatch(kernel, options, spans, (count, *scalars, *sizes, *strides), groups, moved * 8.0))
        if wide:
            dispatches += cast_dispatches("~wide", OUT, count, traits)
            return Plan("elementwise", shape, request.dtype, tuple(dispatches), (("~wide", count * 4),), 0.0, moved)
        return Plan("elementwise", shape, request.dtype, tuple(dispatches), (), float(count), moved)
    options = (("dtype", request.dtype),)
    for first, last in row_slices(count, (item,), traits.limits, request.operation, _SLICE_ELEMENTS):
        spans = tuple(part(name, first, last, item) for name in (*arrays, OUT))
        groups = -(-(last - first) // (4 * _INVOCATIONS))
        work = 4.0 * item * (last - first) * (len(arrays) + 1)
        dispatches.append(Dispatch(kernel, options, spans, (last - first, *scalars), groups, work))
    return Plan("elementwise", shape, request.dtype, tuple(dispatches), (), float(count), moved)


def cast_dispatches(source: str, target: str, count: int, traits: Traits) -> list[Dispatch]:
    """Float32 to float16, all `count` elements."""
    kernel = load_kernel("cast")
    return [
        Dispatch(
            kernel,
            (("dtype", "float16"),),
            (part(source, first, last, 4), part(target, first, last, 2)),
            (last - first,),
            -(-(last - first) // (4 * _INVOCATIONS)),
            24.0 * (last - first),
        )
        for first, last in row_slices(count, (4, 2), traits.limits, "cast", _SLICE_ELEMENTS)
    ]


def broadcast_shape(request: Request, arrays: list[str]) -> Shape:
    """The output's shape by NumPy's rules. Raises BadShape where shapes do not fit."""
    shapes = [request.shapes[name] for name in arrays]
    rank = max(len(shape) for shape in shapes)
    result: list[int] = []
    for axis in range(rank):
        sizes = {shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0} - {1}
        if len(sizes) > 1:
            listed = ", ".join(f"{name} {request.shapes[name]}" for name in arrays)
            raise BadShape(
                f"{request.operation}: shapes do not fit each other: {listed}", "See NumPy's broadcasting rules"
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def merged_axes(shape: Shape, shapes: list[Shape]) -> list[tuple[int, int]]:
    """Group the output's axes into runs (first, last) over which every input is laid out alike."""
    rank = len(shape)
    present = [
        tuple(axis - rank + len(one) >= 0 and one[axis - rank + len(one)] != 1 for one in shapes)
        for axis in range(rank)
    ]
    runs: list[tuple[int, int]] = []
    for axis in range(rank):
        if runs and (present[axis] == present[axis - 1] or shape[axis] == 1):
            runs[-1] = (runs[-1][0], axis + 1)
        else:
            runs.append((axis, axis + 1))
    return runs


def _layout(own: Shape, shape: Shape, axes: list[tuple[int, int]]) -> Layout:
    if math.prod(own) == math.prod(shape):
        return Layout("full")
    rank = len(shape)
    padded = (1,) * (rank - len(own)) + own
    strides: list[int] = []
    for first, last in axes:
        inner = math.prod(padded[last:])
        strides.append(inner if math.prod(padded[first:last]) > 1 else 0)
    return Layout("strided", tuple(strides))


def _same_shapes(request: Request, arrays: list[str]) -> None:
    shapes: Mapping[str, Shape] = {name: request.shapes[name] for name in arrays}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise BadShape(f"{request.operation} takes arrays of one shape, not {listed}", "A formula broadcasts")


def _scalar(request: Request, name: str) -> float:
    value = request.parameters.get(name)
    if isinstance(value, bool | str) or value is None:
        raise BadShape(f"{name} must be a number, not {value!r}")
    return float(value)
