"""Planning of matrix products: which variant, which tiles, how K and the rows are cut.

Every variant sums K in blocks of at most 256 into a second accumulator, or in a tree that is flatter still: the check
of large products relies on the bound that this gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moregpu_kernels.errors import BadShape
from moregpu_kernels.layout import ITEM_BYTES, OUT, Dispatch, Plan, Request, Span, Traits, part, row_slices
from moregpu_kernels.plan_elements import cast_dispatches
from moregpu_kernels.template import Value, load_kernel

K_BLOCK: Final = 256
K_STEP: Final = 16
"""Terms of K that a tile in workgroup memory holds."""
EPILOGUES: Final = ("bias", "residual", "relu", "gelu", "silu")

TILES: Final[dict[str, dict[str, Value]]] = {
    "shared_64x64_8x8": {"tile_m": 64, "tile_n": 64, "rows": 8, "columns": 8},
    "shared_64x64_4x4": {"tile_m": 64, "tile_n": 64, "rows": 4, "columns": 4},
    "shared_128x64_8x8": {"tile_m": 128, "tile_n": 64, "rows": 8, "columns": 8},
    "shared_32x32_4x4": {"tile_m": 32, "tile_n": 32, "rows": 4, "columns": 4},
    "direct_8x16": {"tile_m": 64, "tile_n": 128, "rows": 8, "columns": 16, "shared": False},
    "direct_8x8": {"tile_m": 64, "tile_n": 64, "rows": 8, "columns": 8, "shared": False},
    "direct_4x4": {"tile_m": 32, "tile_n": 32, "rows": 4, "columns": 4, "shared": False},
    "subgroup_8x4": {"tile_m": 8, "tile_n": 64, "rows": 8, "columns": 4, "shared": False, "lanes": 8},
}
"""Variants of `matmul_tile`: a workgroup's tile, and the rows × columns that one invocation keeps in registers.

`direct` ones use no workgroup memory: on software adapters it is no faster than the rest, and barriers cost. Measured
on Mesa's llvmpipe 22 at 512³, as multiples of the naive kernel: direct_8x16 18, direct_8x8 14, shared_64x64_8x8 7,
shared_32x32_4x4 3. `subgroup` ones load each of their rows of A once for all `lanes` of a subgroup, and pass it round:
llvmpipe loads lane by lane, also where all lanes read one place, which is most of a product's time there. On Mesa 25:
subgroup_8x4 13, direct_8x8 and direct_8x16 5, shared_64x64_8x8 4.
"""

GROUPS_WANTED: Final = {"software": 4, "integrated": 32, "discrete": 128, "unknown": 64}
"""Fewer workgroups than this leave a device idle; then K is split among workgroups too."""


def product_candidates(request: Request, traits: Traits) -> tuple[str, ...]:
    """Names of the variants that can compute a product here, the default first."""
    m, k, n = product_sizes(request)
    if n == 1 and not _stages(request):
        return ("gemv_rows",)
    item = ITEM_BYTES[request.dtype]
    has_row = m == 1 and not _stages(request) and k * n * item <= traits.limits.max_binding_bytes
    names = [name for name, tile in TILES.items() if _fits(tile, traits)]
    default = "shared_64x64_8x8"
    if traits.is_software:
        default = "subgroup_8x4" if "subgroup_8x4" in names else "direct_8x16"
    if min(m, n) <= 32 or m * n <= 128 * 128:
        default = "direct_4x4" if traits.is_software else "shared_32x32_4x4"
    names.sort(key=lambda name: name != default)
    splits = _splits_wanted(m, k, n, TILES[names[0]], traits)
    split = (f"{names[0]}/split{splits}",) if splits > 1 else ()
    return (*(("gemv_columns",) if has_row else ()), *split, *names)


def plan_product(request: Request, traits: Traits, variant: str) -> Plan:
    """Plan a (M, K) @ b (K, N), with `bias` (N) and `residual` (M, N) where the epilogue names them."""
    m, k, n = product_sizes(request)
    flops = 2.0 * m * k * n
    moved = ITEM_BYTES[request.dtype] * float(m * k + k * n + m * n)
    if m == 0 or n == 0:
        return Plan(variant, (m, n), request.dtype, ())
    if variant == "gemv_rows":
        dispatches, temporaries = _gemv(request, traits, m, k)
    elif variant == "gemv_columns":
        dispatches, temporaries = _row_times_matrix(request, traits, k, n)
    elif variant == "naive":
        dispatches, temporaries = _naive(request, m, k, n)
    else:
        dispatches, temporaries = _tiled(request, traits, variant, (m, k, n))
    return Plan(variant, (m, n), request.dtype, tuple(dispatches), tuple(temporaries), flops, moved)


def product_sizes(request: Request) -> tuple[int, int, int]:
    """M, K and N. Raises BadShape where the inputs do not fit each other."""
    a, b = request.shape("a"), request.shape("b")
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise BadShape(f"matmul takes a (M, K) and b (K, N), not {a} and {b}", "Reshape or transpose an input")
    wanted = {"bias": (b[1],), "residual": (a[0], b[1])}
    for stage in _stages(request):
        if stage in wanted and request.shape(stage) != wanted[stage]:
            raise BadShape(f"The epilogue's {stage} must be {wanted[stage]}, not {request.shape(stage)}")
    return a[0], a[1], b[1]


def epilogue_lines(stages: tuple[str, ...]) -> str:
    """WGSL of an epilogue on `x`: four neighbours of a row, at element `at`, from column `column` on."""
    lines = {"bias": "x = x + quad_bias(column, left);", "residual": "x = x + quad_residual(at, left);"}
    return "\n".join("  " + lines.get(stage, f"x = {stage}(x);") for stage in stages)


def _stages(request: Request) -> tuple[str, ...]:
    text = str(request.parameters.get("epilogue", ""))
    stages = tuple(text.split("+")) if text else ()
    for stage in stages:
        if stage not in EPILOGUES or stages.count(stage) > 1:
            raise BadShape(
                f"The epilogue {text!r} is not understood", f"Join with +, each once: {', '.join(EPILOGUES)}"
            )
    return stages


def _fits(tile: dict[str, Value], traits: Traits) -> bool:
    if int(tile.get("lanes", 0)) > (traits.subgroup_size if "subgroup" in traits.features else 0):
        return False
    invocations = int(tile["tile_m"]) // int(tile["rows"]) * (int(tile["tile_n"]) // int(tile["columns"]))
    shared = (int(tile["tile_m"]) * 5 + 4 * int(tile["tile_n"])) * 16 if tile.get("shared", True) else 0
    return invocations <= traits.limits.invocations and shared <= traits.limits.workgroup_bytes


def _splits_wanted(m: int, k: int, n: int, tile: dict[str, Value], traits: Traits) -> int:
    groups = -(-m // int(tile["tile_m"])) * -(-n // int(tile["tile_n"]))
    splits = min(-(-GROUPS_WANTED[traits.kind] // groups), k // (2 * K_BLOCK)) if groups else 1
    return splits if splits > 1 and splits * m * n * 4 <= traits.limits.max_binding_bytes else 1


def _gemv(request: Request, traits: Traits, m: int, k: int) -> tuple[list[Dispatch], list[tuple[str, int]]]:
    """A matrix times one column: a row is shared by many invocations, and summed in a tree."""
    half = request.dtype == "float16"
    item = ITEM_BYTES[request.dtype]
    out = "~wide" if half else OUT
    options = {"vector": 4 if k % 4 == 0 else 1, "wide": half, "dtype": request.dtype}
    dispatches: list[Dispatch] = []
    for first, last in row_slices(m, (k * item, 4), traits.limits, "matmul"):
        spans = (part("a", first, last, k * item), Span("b"), part(out, first, last, 4))
        work = 2.0 * (last - first) * k + 4.0 * item * (last - first) * k
        dispatches.append(
            Dispatch(load_kernel("gemv_rows"), _items(options), spans, (last - first, k), -(-(last - first) // 4), work)
        )
    return (dispatches + cast_dispatches("~wide", OUT, m, traits), [("~wide", m * 4)]) if half else (dispatches, [])


def _row_times_matrix(request: Request, traits: Traits, k: int, n: int) -> tuple[list[Dispatch], list[tuple[str, int]]]:
    """One row times a matrix: each invocation has four columns, sixteen share K."""
    vector = 4 if n % 4 == 0 else 1
    wide = request.dtype == "float16" and vector == 1
    options = {"vector_n": vector, "wide": wide, "dtype": request.dtype}
    spans = (Span("a"), Span("b"), Span("~wide" if wide else OUT))
    work = (2.0 + 4.0 * ITEM_BYTES[request.dtype]) * k * n
    dispatches = [Dispatch(load_kernel("gemv_columns"), _items(options), spans, (n, k), _ceil_div(n, 64), work)]
    if not wide:
        return dispatches, []
    return [*dispatches, *cast_dispatches("~wide", OUT, n, traits)], [("~wide", n * 4)]


def _naive(request: Request, m: int, k: int, n: int) -> tuple[list[Dispatch], list[tuple[str, int]]]:
    """One invocation an element, for comparison only."""
    if request.dtype != "float32" or _stages(request):
        raise BadShape("The naive product knows float32 without an epilogue only")
    spans = (Span("a"), Span("b"), Span(OUT))
    return [Dispatch(load_kernel("matmul_naive"), (), spans, (m, n, k), -(-m // 8) * -(-n // 8), 2.0 * m * n * k)], []


def _tiled(
    request: Request, traits: Traits, variant: str, sizes: tuple[int, int, int]
) -> tuple[list[Dispatch], list[tuple[str, int]]]:
    m, k, n = sizes
    name, _, split = variant.partition("/split")
    tile, splits = TILES[name], int(split or 1)
    stages = _stages(request)
    item = ITEM_BYTES[request.dtype]
    vector_n = 4 if n % 4 == 0 else 1
    k_slices = list(row_slices(k, (n * item,), traits.limits, "matmul", K_BLOCK)) or [(0, 0)]
    if len(k_slices) > 1:
        splits = 1
    half = request.dtype == "float16"
    # A float16 output is stored in whole vectors only, and K slices add up in float32.
    wide = half and splits == 1 and (vector_n == 1 or len(k_slices) > 1)
    out = "~partial" if splits > 1 else "~wide" if wide else OUT
    out_item = 4 if out != OUT else item
    temporaries: list[tuple[str, int]] = []
    if out != OUT:
        temporaries.append((out, splits * m * n * 4))
    base: dict[str, Value] = {
        **tile, "vector_k": 4 if k % 4 == 0 else 1, "vector_n": vector_n, "dtype": request.dtype,
        "wide": out_item != item, "blocked": k > K_BLOCK, "splits": splits > 1,
        "whole": k % (K_STEP if tile.get("shared", True) else 4) == 0,
    }  # fmt: skip
    chunk = _ceil_div(_ceil_div(k, splits), K_BLOCK) * K_BLOCK
    extra = tuple(name for name in ("bias", "residual") if name in stages)
    dispatches: list[Dispatch] = []
    sliced_rows = (k * item, n * out_item, *((n * item,) if "residual" in stages else ()))
    for first, last in row_slices(m, sliced_rows, traits.limits, "matmul"):
        for k_first, k_last in k_slices:
            is_last = k_last == k and splits == 1
            options = dict(base)
            if k_first > 0:
                options |= {"accumulate": True, "blocked": True}
            if is_last:
                options |= dict.fromkeys(extra, True)
                options["epilogue"] = epilogue_lines(stages)
            tiles_m, tiles_n = -(-(last - first) // int(tile["tile_m"])), -(-n // int(tile["tile_n"]))
            spans = [part("a", first, last, k * item), part("b", k_first, k_last, n * item)]
            spans.append(part(out, first, last, n * out_item) if splits == 1 else Span(out))
            if is_last:
                spans += [Span("bias") if name == "bias" else part(name, first, last, n * item) for name in extra]
            uniforms = (last - first, n, k, k_first, k_last, chunk, tiles_m, tiles_n)
            work = 2.0 * (last - first) * n * max(k_last - k_first, 1)
            dispatches.append(
                Dispatch(
                    load_kernel("matmul_tile"),
                    _items(options),
                    tuple(spans),
                    uniforms,
                    tiles_m * tiles_n * splits,
                    work,
                )
            )
    if splits > 1:
        dispatches += _split_sum(request, traits, (m, n), splits, stages, temporaries)
    elif wide:
        dispatches += cast_dispatches("~wide", OUT, m * n, traits)
    return dispatches, temporaries


def _split_sum(
    request: Request,
    traits: Traits,
    sizes: tuple[int, int],
    splits: int,
    stages: tuple[str, ...],
    temporaries: list[tuple[str, int]],
) -> list[Dispatch]:
    """Add the parts of a split product in their fixed order, then the epilogue."""
    m, n = sizes
    vector = 4 if n % 4 == 0 else 1
    wide = request.dtype == "float16" and vector == 1
    options: dict[str, Value] = {
        "vector_n": vector, "splits": splits, "dtype": request.dtype, "wide": wide, "epilogue": epilogue_lines(stages),
        **{name: True for name in ("bias", "residual") if name in stages},
    }  # fmt: skip
    out = "~wide" if wide else OUT
    spans = (Span("~partial"), Span(out), *(Span(name) for name in ("bias", "residual") if name in stages))
    quads = m * -(-n // 4)
    work = 4.0 * splits * m * n * 4
    dispatches = [Dispatch(load_kernel("split_sum"), _items(options), spans, (m, n), -(-quads // 64), work)]
    if wide:
        temporaries.append(("~wide", m * n * 4))
        dispatches += cast_dispatches("~wide", OUT, m * n, traits)
    return dispatches


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _items(options: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(options.items()))
