"""Every operation against its float64 reference, within its bound: odd sizes, both dtypes, values that hurt."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from moregpu_kernels.executor import Executor
from moregpu_kernels.layout import Request
from moregpu_kernels.plan import candidates
from moregpu_kernels.plan_product import TILES
from moregpu_kernels.quantise import quantise
from moregpu_kernels.reference_others import expect_any

Arrays = dict[str, np.ndarray[Any, Any]]

DTYPES = ["float32", "float16"]
SIZES = [0, 1, 3, 63, 65, 257, 10_000]
ELEMENTWISE = [
    "vector_add",
    "vector_sub",
    "vector_mul",
    "vector_div",
    "saxpy",
    "scale",
    "relu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "exp",
    "sqrt",
]
TWO_INPUTS = ["vector_add", "vector_sub", "vector_mul", "vector_div", "saxpy"]
ROWS = [(0, 4), (1, 1), (3, 3), (5, 63), (7, 64), (65, 257), (2, 1000), (70, 128), (3, 4096)]


def judge(
    executor: Executor, operation: str, arrays: Arrays, dtype: str, variant: str | None = None, **parameters: Any
) -> None:
    out = executor.apply(operation, arrays, parameters, variant=variant)
    expected = expect_any(operation, arrays, parameters, dtype)
    assert out.shape == expected.value.shape
    assert out.dtype == np.dtype(dtype)
    ratio = expected.ratio(out)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape) if ratio.size else ()
    assert np.all(ratio <= 1.0), (
        f"{operation}: {out[worst]} for {expected.value[worst]} ± {expected.bound[worst]} at {worst}"
    )


def numbers(shape: tuple[int, ...] | int, dtype: str, seed: int = 0, scale: float = 2.0) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def hostile(size: int, dtype: str) -> np.ndarray[Any, Any]:
    """NaN, infinities, zeros of both signs, the smallest, the largest, and plain numbers between."""
    info = np.finfo(dtype)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, -info.max, info.tiny, -info.tiny, 1.0, -1.0, 88.0, -104.0]
    return np.resize(np.asarray(special, dtype), size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", ELEMENTWISE)
def test_elementwise_operations_at_every_size(executor: Executor, operation: str, dtype: str):
    for size in SIZES:
        arrays = {"a": numbers(size, dtype)} | ({"b": numbers(size, dtype, 1)} if operation in TWO_INPUTS else {})
        parameters: dict[str, Any] = {"scalar": 1.7} if operation in ("saxpy", "scale") else {}
        judge(executor, operation, arrays, dtype, **parameters)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", ELEMENTWISE)
def test_elementwise_operations_give_numpys_answer_for_what_is_not_finite(
    executor: Executor, operation: str, dtype: str
):
    arrays = {"a": np.repeat(hostile(13, dtype), 13)}
    if operation in TWO_INPUTS:
        arrays["b"] = np.tile(hostile(13, dtype), 13)
    for scalar in (1.7, float("inf"), float("nan"), 0.0):
        parameters: dict[str, Any] = {"scalar": scalar} if operation in ("saxpy", "scale") else {}
        judge(executor, operation, arrays, dtype, **parameters)
        if not parameters:
            break


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", ["softmax", "layernorm", "rmsnorm", "sum", "mean", "max", "min", "transpose"])
def test_row_operations_at_odd_shapes(executor: Executor, operation: str, dtype: str):
    for shape in ROWS:
        judge(executor, operation, {"a": numbers(shape, dtype) + np.asarray(1, dtype)}, dtype)
    judge(executor, operation, {"a": numbers((2, 3, 5, 8), dtype)}, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", ["softmax", "layernorm", "rmsnorm", "sum", "mean", "max", "min"])
def test_one_value_that_is_not_finite_spoils_exactly_what_it_does_in_numpy(
    executor: Executor, operation: str, dtype: str
):
    for columns in (5, 64, 300):
        a = numbers((9, columns), dtype)
        a[0, 1], a[1, 2], a[2, 0], a[3] = np.nan, np.inf, -np.inf, -np.inf
        a[4, :2] = [np.inf, -np.inf]
        a[5], a[6] = 0.0, np.finfo(dtype).max
        judge(executor, operation, {"a": a}, dtype)


@pytest.mark.parametrize("operation", ["layernorm", "rmsnorm", "softmax"])
def test_sizes_far_from_one_do_not_overflow(executor: Executor, operation: str):
    for size in (1e-38, 1e-20, 1e15, 1e30, 3e38):
        judge(
            executor,
            operation,
            {"a": (numbers((4, 200), "float32", scale=0.2) * np.float32(size)).clip(-3e38, 3e38)},
            "float32",
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_take_weight_and_bias(executor: Executor, dtype: str):
    for columns in (7, 256):
        a, weight, bias = numbers((6, columns), dtype), numbers(columns, dtype, 1), numbers(columns, dtype, 2)
        judge(executor, "layernorm", {"a": a, "weight": weight, "bias": bias}, dtype)
        judge(executor, "rmsnorm", {"a": a, "weight": weight}, dtype, epsilon=1e-6)


def test_a_long_row_is_reduced_in_parts(executor: Executor):
    for columns in (100_000, 200_003):
        a = numbers((2, columns), "float32")
        for operation in ("sum", "mean", "max", "min"):
            judge(executor, operation, {"a": a}, "float32")


@pytest.mark.parametrize("operation", ["softmax", "layernorm", "sum", "max"])
def test_every_variant_of_a_row_operation_is_right(executor: Executor, operation: str):
    for columns in (1000,):
        a = numbers((5, columns), "float32")
        for variant in candidates(Request(operation, {"a": a.shape}), executor.device.traits):
            judge(executor, operation, {"a": a}, "float32", variant)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [
        (0, 3, 2),
        (2, 0, 3),
        (1, 1, 1),
        (3, 3, 3),
        (63, 65, 257),
        (64, 64, 64),
        (65, 257, 63),
        (257, 300, 5),
        (5, 1000, 1),
        (1, 1000, 7),
        (8, 3000, 8),
    ],
)
def test_products_at_odd_shapes(executor: Executor, shape: tuple[int, int, int], dtype: str):
    m, k, n = shape
    judge(executor, "matmul", {"a": numbers((m, k), dtype), "b": numbers((k, n), dtype, 1)}, dtype)


@pytest.mark.parametrize(
    "variant",
    [
        "shared_64x64_8x8",
        "shared_64x64_4x4",
        "shared_128x64_8x8",
        "shared_32x32_4x4",
        "direct_8x16",
        "direct_8x8",
        "direct_4x4",
        "subgroup_8x4",
        "shared_32x32_4x4/split3",
        "direct_4x4/split2",
        "subgroup_8x4/split2",
        "naive",
    ],
)
def test_every_variant_of_the_product_is_right(executor: Executor, variant: str):
    lanes = TILES.get(variant.partition("/")[0], {}).get("lanes", 0)
    if int(lanes) > executor.device.traits.subgroup_size:
        pytest.skip(f"missing: a device whose subgroups have {lanes} invocations or more")
    # Whole steps of K, and ends of M, N and K that fill no tile, no step and no vector.
    for (m, k, n), dtype in itertools.product(((70, 600, 68), (9, 1030, 131)), DTYPES):
        if variant != "naive" or dtype == "float32":
            arrays = {"a": numbers((m, k), dtype), "b": numbers((k, n), dtype, 1)}
            judge(executor, "matmul", arrays, dtype, variant)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epilogue", ["bias", "relu", "gelu", "silu", "residual", "bias+gelu+residual"])
def test_epilogues(executor: Executor, epilogue: str, dtype: str):
    for m, k, n in ((33, 40, 36), (17, 300, 5)):
        arrays = {"a": numbers((m, k), dtype, scale=0.5), "b": numbers((k, n), dtype, 1, 0.5)}
        arrays |= {"bias": numbers(n, dtype, 2)} if "bias" in epilogue else {}
        arrays |= {"residual": numbers((m, n), dtype, 3)} if "residual" in epilogue else {}
        judge(executor, "matmul", arrays, dtype, epilogue=epilogue)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_times_a_matrix(executor: Executor, dtype: str):
    for k, n in ((1, 1), (5, 3), (300, 64), (1031, 130), (5000, 7)):
        judge(executor, "matmul", {"a": numbers((1, k), dtype), "b": numbers((k, n), dtype, 1)}, dtype, "gemv_columns")


def test_products_of_hard_data_stay_within_the_blocked_bound(executor: Executor):
    """Constants, rank one, long K, huge columns, subnormals and infinities: what a relative tolerance would condemn."""
    rng = np.random.default_rng(3)
    k = 2048
    ones = np.full((8, k), 0.1, np.float32)
    rank_one = np.outer(rng.random(8), rng.random(k)).astype(np.float32)
    huge = rng.standard_normal((k, 12)).astype(np.float32)
    huge[:, 3] *= 1e7
    infinite = rng.standard_normal((8, k)).astype(np.float32)
    infinite[::2, 5] = np.inf
    infinite[1, 7] = np.nan
    for a in (ones, rank_one, infinite, ones * np.float32(1e-38)):
        for b in (np.full((k, 12), 0.1, np.float32), huge):
            judge(executor, "matmul", {"a": a, "b": b}, "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_quantised_products(executor: Executor, kind: str, dtype: str):
    for rows, columns in ((1, 32), (5, 96), (63, 1024), (130, 4096)):
        matrix = quantise(numbers((rows, columns), "float32"), kind)
        judge(
            executor,
            f"gemv_{kind}",
            {"quants": matrix.quants, "scales": matrix.scales, "x": numbers(columns, dtype, 1)},
            dtype,
        )


def test_the_same_input_gives_the_same_bits(executor: Executor):
    a, b = numbers((70, 900), "float32"), numbers((900, 40), "float32", 1)
    first = executor.apply("matmul", {"a": a, "b": b})
    again = executor.apply("matmul", {"a": a, "b": b})
    assert first.tobytes() == again.tobytes()
    assert executor.apply("sum", {"a": a}).tobytes() == executor.apply("sum", {"a": a}).tobytes()


def test_float16_rounds_to_nearest_even_with_subnormals_and_overflow(executor: Executor):
    """Every float16 times one, and halves between neighbours: what is stored is what NumPy stores."""
    every = np.arange(65_536, dtype=np.uint32).astype(np.uint16).view(np.float16)
    out = executor.apply("scale", {"a": every}, {"scalar": 1.0})
    same = (out == every) | (np.isnan(out) & np.isnan(every))
    assert np.all(same)
    with np.errstate(all="ignore"):
        wanted = (every.astype(np.float32) * np.float32(0.3)).astype(np.float16)
    out = executor.apply("scale", {"a": every}, {"scalar": 0.3})
    assert np.all((out == wanted) | (np.isnan(out) & np.isnan(wanted)))
