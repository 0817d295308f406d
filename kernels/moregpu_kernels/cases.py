"""What `check` holds against references: every operation and variant, odd sizes, both dtypes, data that hurts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from moregpu_kernels.layout import Request, Traits
from moregpu_kernels.plan import candidates
from moregpu_kernels.quantise import BLOCK, FORMATS, quantise
from moregpu_kernels.template import Value

Array = NDArray[Any]

SIZES: Final = (0, 1, 3, 63, 65, 257, 1024)
TWO: Final = ("vector_add", "vector_sub", "vector_mul", "vector_div", "saxpy")
ONE: Final = ("scale", "relu", "gelu", "silu", "sigmoid", "tanh", "exp", "sqrt")
ROWS: Final = ("softmax", "layernorm", "rmsnorm")
REDUCED: Final = ("sum", "mean", "max", "min")
SPLIT: Final = ("shared_32x32_4x4/split3", "direct_4x4/split2")
"""Variants of products that no device has as its default."""

FORMULAS: Final = (
    "exp(-x*x) * sin(y)",
    "where(x > y, log1p(abs(x)), tanh(y))",
    "clip(x / (y*y + 0.5), -2, 2)",
    "minimum(x, y) + maximum(x, 0.25) * floor(4*y)",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run of one operation; `variant` None is the device's own choice."""

    operation: str
    arrays: dict[str, Array]
    dtype: str
    parameters: Mapping[str, Value] = field(default_factory=dict[str, Value])
    variant: str | None = None
    hurts: bool = False

    @property
    def name(self) -> str:
        """What its result is counted under."""
        of = f" {self.variant}" if self.variant else " hard data" if self.hurts else ""
        return f"{self.operation}.{self.dtype}{of}"


def cases(traits: Traits) -> Iterator[Case]:
    """All of them; the variants are those worth trying on a device of these traits."""
    for dtype in ("float32", "float16"):
        yield from _elementwise(dtype)
        yield from _along_rows(dtype)
        yield from _products(dtype, traits)
        yield from _quantised(dtype)
        for text in FORMULAS:
            for size in SIZES:
                arrays = {"x": numbers(size, dtype), "y": numbers(size, dtype, 1)}
                yield Case("formula", arrays, dtype, {"text": text})
        hard = hostile(169, dtype)
        yield Case("formula", {"x": hard, "y": np.sort(hard)}, dtype, {"text": FORMULAS[0]}, hurts=True)


def numbers(shape: int | tuple[int, ...], dtype: str, seed: int = 0, scale: float = 2.0) -> Array:
    """Plain data around 0."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def hostile(size: int, dtype: str) -> Array:
    """NaN, infinities, zeros of both signs, the smallest, the largest, and plain numbers between."""
    info = np.finfo(dtype)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, -info.max, info.tiny, -info.tiny, 1.0, -1.0, 88.0, -104.0]
    return np.resize(np.asarray(special, dtype), size)


def _elementwise(dtype: str) -> Iterator[Case]:
    left, right = np.repeat(hostile(13, dtype), 13), np.tile(hostile(13, dtype), 13)
    for operation in (*TWO, *ONE):
        takes_scalar = operation in ("saxpy", "scale")
        plain: dict[str, Value] = {"scalar": 1.7} if takes_scalar else {}
        for size in SIZES:
            second = {"b": numbers(size, dtype, 1)} if operation in TWO else {}
            yield Case(operation, {"a": numbers(size, dtype), **second}, dtype, plain)
        hard = {"a": left, "b": right} if operation in TWO else {"a": left}
        for scalar in (1.7, float("inf"), float("nan"), 0.0) if takes_scalar else (None,):
            yield Case(operation, hard, dtype, {} if scalar is None else {"scalar": scalar}, hurts=True)


def _along_rows(dtype: str) -> Iterator[Case]:
    for operation in (*ROWS, *REDUCED, "transpose"):
        for size in SIZES:
            yield Case(operation, {"a": numbers((7, size) if size else (0, 7), dtype)}, dtype)
        if operation != "transpose":
            for columns in (5, 64, 300):
                yield Case(operation, {"a": _spoilt(columns, dtype)}, dtype, hurts=True)
    for columns in (7, 256):
        a, weight, bias = (numbers(shape, dtype, seed) for seed, shape in enumerate([(6, columns), columns, columns]))
        yield Case("layernorm", {"a": a, "weight": weight, "bias": bias}, dtype)
        yield Case("rmsnorm", {"a": a, "weight": weight}, dtype, {"epsilon": 1e-6})


def _spoilt(columns: int, dtype: str) -> Array:
    """Rows of which some hold a value that is not finite, or only the largest there is."""
    a = numbers((9, columns), dtype)
    a[0, 1], a[1, 2], a[2, 0], a[3] = np.nan, np.inf, -np.inf, -np.inf
    a[4, :2] = [np.inf, -np.inf]
    a[5], a[6] = 0.0, np.finfo(dtype).max
    return a


def _products(dtype: str, traits: Traits) -> Iterator[Case]:
    for size in SIZES:
        yield Case("matmul", {"a": numbers((size, 65), dtype), "b": numbers((65, size), dtype, 1)}, dtype)
    for m, k, n in ((70, 600, 68), (1, 1031, 130), (257, 300, 1)):
        arrays = {"a": numbers((m, k), dtype), "b": numbers((k, n), dtype, 1)}
        request = Request("matmul", {name: array.shape for name, array in arrays.items()}, dtype)
        rare = () if min(m, n) == 1 else (*SPLIT, "naive") if dtype == "float32" else SPLIT
        for variant in (*candidates(request, traits), *rare):
            yield Case("matmul", arrays, dtype, variant=variant)
    a, b = numbers((33, 1030), dtype, scale=0.5), numbers((1030, 66), dtype, 1, 0.5)
    for epilogue in ("bias", "relu", "gelu", "silu", "residual", "bias+gelu+residual"):
        more = {"bias": numbers(66, dtype, 2)} if "bias" in epilogue else {}
        more |= {"residual": numbers((33, 66), dtype, 3)} if "residual" in epilogue else {}
        yield Case("matmul", {"a": a, "b": b, **more}, dtype, {"epilogue": epilogue})
    # Constants, rank one, a huge column, what is not finite: what a relative tolerance would condemn or let pass.
    rng = np.random.default_rng(3)
    constant = np.full((8, 1500), 0.1, dtype)
    rank_one = np.outer(rng.random(8), rng.random(1500)).astype(dtype)
    infinite = rng.standard_normal((8, 1500)).astype(dtype)
    infinite[::2, 5], infinite[1, 7] = np.inf, np.nan
    huge = rng.standard_normal((1500, 12)).astype(dtype)
    huge[:, 3] *= 1e3 if dtype == "float16" else 1e7
    for left in (constant, rank_one, infinite):
        for right in (np.full((1500, 12), 0.1, dtype), huge):
            yield Case("matmul", {"a": left, "b": right}, dtype, hurts=True)


def _quantised(dtype: str) -> Iterator[Case]:
    for kind in FORMATS:
        for rows, columns in ((1, BLOCK), (3, 63 * BLOCK), (65, 9 * BLOCK), (257, BLOCK), (130, 4096)):
            arrays = _packed(numbers((rows, columns), "float32"), kind)
            yield Case(f"gemv_{kind}", {**arrays, "x": numbers(columns, dtype, 1)}, dtype)
        matrix = numbers((5, 96), "float32")
        matrix[0], matrix[1, :32] = 0.0, 6e4  # a scale of 0, and one that is large
        for place, value in ((3, np.nan), (40, np.inf), (95, -np.inf)):
            x = numbers(96, dtype, 1)
            x[place] = value
            yield Case(f"gemv_{kind}", {**_packed(matrix, kind), "x": x}, dtype, hurts=True)


def _packed(matrix: Array, kind: str) -> dict[str, Array]:
    quantised = quantise(matrix, kind)
    return {"quants": quantised.quants, "scales": quantised.scales}
