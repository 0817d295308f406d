"""Planning of work along the last axis: softmax, norms, reductions; and of transpose and quantised products."""

from __future__ import annotations

import math
from typing import Final

from moregpu_kernels.errors import BadShape
from moregpu_kernels.layout import ITEM_BYTES, OUT, Dispatch, Plan, Request, Shape, Span, Traits, part, row_slices
from moregpu_kernels.plan_elements import cast_dispatches
from moregpu_kernels.template import Value, load_kernel

ROW_OPERATIONS: Final = ("softmax", "layernorm", "rmsnorm")
REDUCTIONS: Final = {"sum": "sum", "mean": "sum", "max": "max", "min": "min"}
QUANTISED: Final = {"gemv_q8_0": 8, "gemv_q4_0": 4}
BLOCK: Final = 32
"""Elements that share one scale in q8_0 and q4_0."""

HELD_LIMIT: Final = 4
"""Vectors of a row that an invocation keeps in registers between passes; longer rows are read again."""
SIZE: Final = 256
PART_ELEMENTS: Final = 1 << 16
"""A reduction cuts rows longer than this into parts when there are too few rows to keep a device busy."""
_EPSILON: Final = 1e-5


def row_candidates(request: Request, traits: Traits) -> tuple[str, ...]:
    """Variants `lanesN` (invocations a row), each also with `/sub` where subgroups may be used; the default first."""
    columns = request.shape("a")[-1] if request.shape("a") else 1
    vectors = max(1, columns // 4 if columns % 4 == 0 else columns)
    wanted = min(SIZE, 1 << max(0, math.ceil(math.log2(vectors)) - (2 if vectors > 32 else 0)))
    default = max(1, min(wanted, 8) if traits.is_software else wanted)
    others = [lanes for lanes in (1, 8, 32, 64, 256) if lanes != default and lanes <= max(default, vectors)]
    names = [f"lanes{lanes}" for lanes in (default, *others)]
    if "subgroup" in traits.features and traits.subgroup_size > 1:
        names += [f"lanes{lanes}/sub" for lanes in (default, *others) if lanes > 1]
    return tuple(names)


def plan_rows(request: Request, traits: Traits, variant: str) -> Plan:
    """Plan softmax, layernorm or rmsnorm along the last axis of `a`; the norms take `weight` and `bias` (columns)."""
    shape = request.shape("a")
    if not shape:
        raise BadShape(f"{request.operation} works along the last axis; a scalar has none")
    rows, columns = math.prod(shape[:-1]), shape[-1]
    extra = tuple(name for name in ("weight", "bias") if name in request.shapes)
    if extra and request.operation == "softmax":
        raise BadShape("softmax takes no weight and no bias")
    for name in extra:
        if request.shape(name) != (columns,):
            raise BadShape(f"{request.operation}: {name} must be {(columns,)}, not {request.shape(name)}")
    if rows == 0 or columns == 0:
        return Plan(variant, shape, request.dtype, ())
    half, item = request.dtype == "float16", ITEM_BYTES[request.dtype]
    vector = 4 if columns % 4 == 0 else 1
    wide = half and vector == 1
    lanes, options = _lanes(variant, traits, request.dtype)
    held = -(-columns // (vector * lanes))
    options |= {"vector": vector, "wide": wide, "held": held if held <= HELD_LIMIT else 0}
    uniforms: tuple[int | float, ...] = ()
    kernel = "softmax"
    if request.operation != "softmax":
        kernel = "normalize"
        options |= {"centred": request.operation == "layernorm", **dict.fromkeys(extra, True)}
        uniforms = (float(request.parameters.get("epsilon", _EPSILON)),)
    out, out_item = ("~wide", 4) if wide else (OUT, item)
    dispatches: list[Dispatch] = []
    for first, last in row_slices(rows, (columns * item, columns * out_item), traits.limits, request.operation):
        spans = (part("a", first, last, columns * item), part(out, first, last, columns * out_item))
        groups = -(-(last - first) // (SIZE // lanes))
        work = 40.0 * (last - first) * columns
        dispatches.append(
            Dispatch(
                load_kernel(kernel),
                tuple(sorted(options.items())),
                (*spans, *(Span(name) for name in extra)),
                (last - first, columns, *uniforms),
                groups,
                work,
            )
        )
    temporaries: tuple[tuple[str, int], ...] = ()
    if wide:
        dispatches += cast_dispatches("~wide", OUT, rows * columns, traits)
        temporaries = (("~wide", rows * columns * 4),)
    moved = 2.0 * rows * columns * item
    return Plan(variant, shape, request.dtype, tuple(dispatches), temporaries, 10.0 * rows * columns, moved)


def plan_reduction(request: Request, traits: Traits, variant: str) -> Plan:
    """Plan sum, mean, max or min along the last axis of `a`: float32 sums, stored in the input's dtype."""
    shape = request.shape("a")
    if not shape:
        raise BadShape(f"{request.operation} works along the last axis; a scalar has none")
    out_shape, rows, columns = shape[:-1], math.prod(shape[:-1]), shape[-1]
    kind = REDUCTIONS[request.operation]
    if columns == 0 and request.operation != "sum" and rows:
        raise BadShape(f"{request.operation} of nothing is not defined", "NumPy refuses it too")
    if rows == 0:
        return Plan(variant, out_shape, request.dtype, ())
    half, item = request.dtype == "float16", ITEM_BYTES[request.dtype]
    lanes, options = _lanes(variant, traits, request.dtype)
    options["kind"] = kind
    parts = -(-columns // PART_ELEMENTS) if rows < 64 and columns > PART_ELEMENTS else 1
    divisor = float(columns) if request.operation == "mean" else 1.0
    final = "~wide" if half else OUT
    first_out = "~parts" if parts > 1 else final
    vector = 4 if columns % 4 == 0 else 1
    dispatches: list[Dispatch] = []
    for first, last in row_slices(rows, (columns * item, parts * 4), traits.limits, request.operation):
        pieces = (last - first) * parts
        dispatches.append(
            Dispatch(
                load_kernel("reduce"),
                tuple(sorted({**options, "vector": vector}.items())),
                (part("a", first, last, columns * item), part(first_out, first, last, parts * 4)),
                (last - first, columns, parts, PART_ELEMENTS if parts > 1 else columns, 1.0 if parts > 1 else divisor),
                -(-pieces // (SIZE // lanes)),
                5.0 * item * (last - first) * columns,
            )
        )
    temporaries: list[tuple[str, int]] = []
    if parts > 1:
        temporaries.append(("~parts", rows * parts * 4))
        joined = {**options, "vector": 1, "joins": True}
        spans = (Span("~parts"), Span(final))
        groups = -(-rows // (SIZE // lanes))
        uniforms = (rows, parts, 1, parts, divisor)
        dispatches.append(
            Dispatch(load_kernel("reduce"), tuple(sorted(joined.items())), spans, uniforms, groups, 20.0 * rows * parts)
        )
    if half:
        temporaries.append(("~wide", rows * 4))
        dispatches += cast_dispatches("~wide", OUT, rows, traits)
    flops, moved = float(rows * columns), float(item * rows * columns)
    return Plan(variant, out_shape, request.dtype, tuple(dispatches), tuple(temporaries), flops, moved)


def plan_transpose(request: Request, traits: Traits, variant: str) -> Plan:
    """Plan the exchange of the last two axes of `a`; axes before them are a batch."""
    shape = request.shape("a")
    if len(shape) < 2:
        raise BadShape("transpose takes at least two axes", "Reshape the array")
    batch, rows, columns = math.prod(shape[:-2]), shape[-2], shape[-1]
    out_shape: Shape = (*shape[:-2], columns, rows)
    count = batch * rows * columns
    if count == 0:
        return Plan(variant, out_shape, request.dtype, ())
    half, item = request.dtype == "float16", ITEM_BYTES[request.dtype]
    out, out_item = ("~wide", 4) if half else (OUT, item)
    each = rows * columns
    tiles = -(-rows // 32) * -(-columns // 32)
    dispatches = [
        Dispatch(
            load_kernel("transpose"),
            (("dtype", request.dtype), ("wide", half)),
            (part("a", first, last, each * item), part(out, first, last, each * out_item)),
            (rows, columns),
            tiles * (last - first),
            8.0 * item * each * (last - first),
        )
        for first, last in row_slices(batch, (each * item, each * out_item), traits.limits, "transpose")
    ]
    temporaries: tuple[tuple[str, int], ...] = ()
    if half:
        dispatches += cast_dispatches("~wide", OUT, count, traits)
        temporaries = (("~wide", count * 4),)
    return Plan(variant, out_shape, request.dtype, tuple(dispatches), temporaries, 0.0, 2.0 * item * count)


def plan_quantised(request: Request, traits: Traits, variant: str) -> Plan:
    """Plan W·x, W in blocks: `quants` (rows, words) uint32, `scales` (rows, blocks) float16, `x` (blocks·32)."""
    bits = QUANTISED[request.operation]
    quants, scales, x = request.shape("quants"), request.shape("scales"), request.shape("x")
    words = BLOCK * bits // 32
    if len(scales) != 2 or quants != (scales[0], scales[1] * words) or x != (scales[1] * BLOCK,):
        raise BadShape(
            f"{request.operation}: quants {quants}, scales {scales} and x {x} do not fit",
            f"They are (rows, blocks·{words}), (rows, blocks) and (blocks·{BLOCK},)",
        )
    rows, blocks = scales
    if rows == 0:
        return Plan(variant, (rows,), request.dtype, ())
    half = request.dtype == "float16"
    out = "~wide" if half else OUT
    lanes, options = _lanes(variant, traits, request.dtype)
    options["bits"] = bits
    # Scales are halves and bound whole: the first of a slice is found by its number, not by an offset.
    dispatches = [
        Dispatch(
            load_kernel("gemv_quantised"),
            tuple(sorted(options.items())),
            (part("quants", first, last, blocks * words * 4), Span("scales"), Span("x"), part(out, first, last, 4)),
            (last - first, blocks, first * blocks),
            -(-(last - first) // (SIZE // lanes)),
            6.0 * (last - first) * blocks * BLOCK,
        )
        for first, last in row_slices(rows, (blocks * words * 4, 4), traits.limits, request.operation)
    ]
    temporaries: tuple[tuple[str, int], ...] = ()
    if half:
        dispatches += cast_dispatches("~wide", OUT, rows, traits)
        temporaries = (("~wide", rows * 4),)
    flops, moved = 2.0 * rows * blocks * BLOCK, float(rows * blocks * (words * 4 + 2))
    return Plan(variant, (rows,), request.dtype, tuple(dispatches), temporaries, flops, moved)


def quantised_candidates(request: Request, traits: Traits) -> tuple[str, ...]:
    """Variants of the quantised product: invocations a row."""
    return ("lanes8", "lanes64", "lanes32") if traits.is_software else ("lanes64", "lanes32", "lanes8")


def _lanes(variant: str, traits: Traits, dtype: str) -> tuple[int, dict[str, Value]]:
    name, _, sub = variant.partition("/")
    lanes = int(name.removeprefix("lanes"))
    subgroup = traits.subgroup_size if sub else 0
    return lanes, {"lanes": lanes, "size": SIZE, "subgroup": subgroup, "dtype": dtype}
