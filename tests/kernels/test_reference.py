"""References and bounds: an honest float32 result always passes, whatever the data; a wrong one does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as arrays_of
from moregpu_kernels.operations import OPERATIONS
from moregpu_kernels.reference import bound, expect, expect_long_row, product_length, reference

Array = np.ndarray[Any, Any]
U = 2.0**-24
LARGEST = float(np.finfo(np.float32).max)
INF, NAN = np.inf, np.nan


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def honest(operation: str, arrays: dict[str, Array], scalar: float = 1.5) -> Array:
    """NumPy in float32, as anybody would write it, stored as the inputs are."""
    dtype = arrays["a"].dtype
    a, b = (arrays.get(name, arrays["a"]).astype(np.float32) for name in "ab")
    s = np.float32(scalar)
    with np.errstate(all="ignore"):
        match operation:
            case "matmul":
                out = a @ b
            case "vector_add":
                out = a + b
            case "vector_mul":
                out = a * b
            case "saxpy":
                out = s * a + b
            case "scale":
                out = s * a
            case "relu":
                out = np.maximum(a, np.float32(0))
            case "gelu":
                inside = np.float32(0.7978845608) * (a + np.float32(0.044715) * a * a * a)
                out = np.float32(0.5) * a * (np.float32(1) + np.tanh(inside))
            case "softmax":
                out = np.exp(a - a.max(axis=-1, keepdims=True))
                out = out / out.sum(axis=-1, keepdims=True)
            case _:
                apart = a - a.mean(axis=-1, keepdims=True)
                out = apart / np.sqrt((apart * apart).mean(axis=-1, keepdims=True) + np.float32(1e-5))
        return out.astype(dtype)


def worst(operation: str, arrays: dict[str, Array], found: Array, scalar: float = 1.5) -> float:
    dtype = str(arrays["a"].dtype)
    return float(expect(operation, arrays, {"scalar": scalar}, dtype).ratio(found).max(initial=0.0))


def sample(operation: str, dtype: str, rng: np.random.Generator, spread: float = 1.0) -> dict[str, Array]:
    shapes = {"product": ((37, 129), (129, 23)), "rows": ((19, 257),), "elements": ((4099,), (4099,))}
    form = OPERATIONS[operation].form
    return {
        name: (rng.standard_normal(shape) * spread).astype(dtype)
        for name, shape in zip(OPERATIONS[operation].inputs, shapes[form], strict=False)
    }


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_numpy_is_within_the_bound_on_ordinary_data(operation: str, dtype: str) -> None:
    arrays = sample(operation, dtype, np.random.default_rng(1))
    assert worst(operation, arrays, honest(operation, arrays)) <= 1.0


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_element_two_bounds_away_is_wrong(operation: str) -> None:
    arrays = sample(operation, "float32", np.random.default_rng(2))
    expected = expect(operation, arrays, {"scalar": 1.5}, "float32")
    found = honest(operation, arrays)
    at = np.unravel_index(int(np.argmax(np.abs(expected.value))), found.shape)
    found[at] = np.float32(expected.value[at] + 2.5 * max(expected.bound[at], U * abs(expected.value[at])))
    assert expected.ratio(found)[at] > 1.0
    assert np.count_nonzero(expected.ratio(found) > 1.0) == 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nan_where_a_number_belongs_is_wrong(operation: str) -> None:
    arrays = sample(operation, "float32", np.random.default_rng(3))
    found = honest(operation, arrays)
    for bad in (NAN, INF, -INF):
        spoilt = found.copy()
        spoilt.flat[7] = bad
        assert worst(operation, arrays, spoilt) == INF


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_number_where_nan_belongs_is_wrong(operation: str) -> None:
    arrays = sample(operation, "float32", np.random.default_rng(4))
    arrays["a"].flat[5] = NAN
    found = honest(operation, arrays)
    assert worst(operation, arrays, found) <= 1.0
    assert np.isnan(found).any()
    assert worst(operation, arrays, np.nan_to_num(found, nan=0.5)) == INF


numbers = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)
special = st.sampled_from(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        INF,
        -INF,
        NAN,
        LARGEST,
        -LARGEST,
        2.0**-126,
        2.0**-149,
        -(2.0**-130),
        1e30,
        -1e30,
        88.7,
        -104.0,
    ]
)
floats = st.one_of(special, numbers)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "matmul"])
def test_numpy_is_within_the_bound_on_any_floats(operation: str) -> None:
    shape = (3, 5) if OPERATIONS[operation].form == "rows" else (9,)

    @settings(max_examples=120, deadline=None)
    @given(
        a=arrays_of(np.float32, shape, elements=floats),
        b=arrays_of(np.float32, shape, elements=floats),
        scalar=st.floats(width=32, allow_nan=False, allow_infinity=False),
    )
    def holds(a: Array, b: Array, scalar: float) -> None:
        arrays = {"a": a, "b": b} if "b" in OPERATIONS[operation].inputs else {"a": a}
        found = honest(operation, arrays, scalar)
        if operation == "layernorm":
            # Plain NumPy overflows in the squares of rows whose result would fit; engines must not.
            with np.errstate(all="ignore"):
                large = np.abs(a).max(axis=-1) > 1e18
            arrays, found = {"a": a[~large]}, found[~large]
        assert worst(operation, arrays, found, scalar) <= 1.0

    holds()


@settings(max_examples=120, deadline=None)
@given(
    a=st.integers(1, 6).flatmap(lambda inner: arrays_of(np.float32, (3, inner), elements=floats)),
    data=st.data(),
)
def test_products_in_any_order_of_summation_are_within_the_bound(a: Array, data: st.DataObject) -> None:
    b = data.draw(arrays_of(np.float32, (a.shape[1], 2), elements=floats))
    order = data.draw(st.permutations(range(a.shape[1])))
    with np.errstate(all="ignore"):
        one_by_one = np.zeros((3, 2), np.float32)
        for term in order:
            one_by_one = one_by_one + a[:, term : term + 1] * b[term : term + 1]
        fused = np.zeros((3, 2), np.float32)
        for term in order:
            fused = (fused.astype(np.float64) + a[:, term : term + 1].astype(np.float64) * b[term : term + 1]).astype(
                "f4"
            )
    arrays = {"a": a, "b": b}
    assert worst("matmul", arrays, one_by_one) <= 1.0
    assert worst("matmul", arrays, fused) <= 1.0


@pytest.mark.parametrize("inner", [1, 2, 255, 512, 513, 4096, 16384])
@pytest.mark.parametrize("data", ["constants", "rank 1", "normal", "cancelling"])
def test_products_summed_in_blocks_of_256_are_within_the_bound(inner: int, data: str) -> None:
    rng = np.random.default_rng(inner)
    a, b = rng.standard_normal((3, inner)).astype("f4"), rng.standard_normal((inner, 4)).astype("f4")
    if data == "constants":
        a[:], b[:] = 0.1, 1 / 3
    elif data == "rank 1":
        a[:], b[:] = a[:, :1], b[:1]
    elif data == "cancelling":
        b[:] = np.where(np.arange(inner) % 2, -1, 1)[:, None] * b[:1]
        a[:] = a[:, :1]
    total = np.zeros((3, 4), np.float32)
    for start in range(0, inner, 256):
        terms = a[:, start : start + 256, None] * b[None, start : start + 256]
        total = total + np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]
    assert worst("matmul", {"a": a, "b": b}, total) <= 1.0


def test_the_bound_of_a_product_is_tight_enough_to_see_a_lost_term() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random((4, 1000), np.float32), rng.random((1000, 4), np.float32)
    assert worst("matmul", {"a": a, "b": b}, a[:, 1:] @ b[1:]) > 1.0


def test_the_length_of_a_sum_grows_with_blocks_not_with_terms() -> None:
    assert product_length(0) == 0
    assert product_length(1) == 1
    assert product_length(500) == 500
    assert product_length(16384) == 512 + 64
    assert all(product_length(inner) <= product_length(inner + 1) for inner in range(2000))


@pytest.mark.parametrize(
    ("a", "b", "right", "wrong"),
    [
        # one sum may leave the range upwards on its way, not downwards
        ((LARGEST, LARGEST, -3e38), (1, 1, 1), (INF,), (-INF, NAN, 0.0, LARGEST)),
        ((3e38, 3e38, -3e38), (1, 1, 1), (3e38, INF), (-INF, NAN, 0.0)),
        # it may on both sides, so their difference may be NaN
        ((LARGEST, LARGEST, -LARGEST, -LARGEST), (1, 1, 1, 1), (0.0, INF, -INF, NAN), (1e34,)),
        # truly too large
        ((LARGEST, LARGEST), (2, 2), (INF,), (LARGEST, NAN, -INF)),
        # an infinite input, and a finite rest that may become the opposite infinity
        ((INF, -LARGEST, -LARGEST), (1, 1, 1), (INF, NAN), (-INF, 1.0)),
        ((INF, -1), (1, 1), (INF,), (NAN, -INF, LARGEST)),
        ((INF, 1), (0, 1), (NAN,), (1.0, INF)),
    ],
)
def test_only_sums_that_may_overflow_may_be_infinite(
    a: tuple[float, ...], b: tuple[float, ...], right: tuple[float, ...], wrong: tuple[float, ...]
) -> None:
    arrays = {"a": f32(*a)[None], "b": f32(*b)[:, None]}
    for value in right:
        assert worst("matmul", arrays, f32(value)[None]) <= 1.0, value
    for value in wrong:
        assert worst("matmul", arrays, f32(value)[None]) > 1.0, value


def test_float16_overflows_where_rounding_does() -> None:
    a, b = np.array([60000, 60000, -60000], "f2"), np.array([5504, 5536, -30000], "f2")
    assert worst("vector_add", {"a": a, "b": b}, np.array([65504, INF, -INF], "f2")) <= 1.0
    assert worst("vector_add", {"a": a, "b": b}, np.array([INF, INF, -INF], "f2")) == INF
    assert worst("vector_add", {"a": a, "b": b}, np.array([65504, 65504, -INF], "f2")) == INF


def test_a_fused_saxpy_is_as_right_as_an_unfused_one() -> None:
    rng = np.random.default_rng(6)
    arrays = {"a": rng.standard_normal(5000).astype("f4"), "b": rng.standard_normal(5000).astype("f4")}
    fused = (np.float64(np.float32(0.1)) * arrays["a"] + arrays["b"].astype("f8")).astype("f4")
    assert np.any(fused != honest("saxpy", arrays, 0.1))
    assert worst("saxpy", arrays, fused, 0.1) <= 1.0


def test_subnormal_results_may_be_flushed() -> None:
    a, b = f32(2.0**-140, 1.0), f32(2.0**-140, 1.0)
    assert worst("vector_add", {"a": a, "b": b}, f32(0.0, 2.0)) <= 1.0
    assert worst("vector_add", {"a": a, "b": b}, f32(0.0, 0.0)) > 1.0


@pytest.mark.parametrize(
    "operation", ["matmul", "vector_add", "vector_mul", "saxpy", "scale", "relu", "gelu", "layernorm"]
)
def test_subnormal_inputs_may_be_read_as_zero(operation: str) -> None:
    rng = np.random.default_rng(12)
    tiny = (rng.standard_normal((6, 64)) * 2.0**-128).astype("f4")
    tiny[::2, ::3] = rng.standard_normal((3, 22))
    other = (rng.standard_normal((6, 64)) * 2.0**40).astype("f4")
    arrays = {"a": tiny, "b": np.ascontiguousarray(other.T) if operation == "matmul" else other}
    flushed = {name: np.where(np.abs(array) < 2.0**-126, np.float32(0), array) for name, array in arrays.items()}
    assert worst(operation, arrays, honest(operation, flushed, 2.0**30), 2.0**30) <= 1.0
    # What was not read as 0 must still be there.
    wrong = honest(operation, flushed, 2.0**30)
    wrong[0, 0] *= np.float32(1.001)
    assert worst(operation, arrays, wrong, 2.0**30) > 1.0


def test_a_subnormal_times_infinity_may_be_nan_where_it_is_read_as_zero() -> None:
    a, b = f32(2.0**-140, 1.0), f32(INF, INF)
    assert worst("vector_mul", {"a": a, "b": b}, f32(NAN, INF)) <= 1.0
    assert worst("vector_mul", {"a": a, "b": b}, f32(INF, INF)) <= 1.0
    assert worst("vector_mul", {"a": a, "b": b}, f32(INF, NAN)) == INF
    assert worst("vector_mul", {"a": a, "b": b}, f32(1.0, INF)) == INF
    assert worst("matmul", {"a": a[None], "b": b[:, None]}, f32(NAN)[:, None]) <= 1.0


def test_softmax_summed_one_by_one_is_within_the_bound() -> None:
    a = (np.random.default_rng(8).standard_normal((4, 3000)) * 20).astype("f4")
    e = np.exp(a - a.max(axis=1, keepdims=True))
    found = e / np.cumsum(e, axis=1, dtype=np.float32)[:, -1:]
    assert worst("softmax", {"a": a}, found) <= 1.0


def test_rows_of_softmax_are_what_numpy_makes_of_nan_and_infinity() -> None:
    a = f32(INF, 1, NAN, 1, -INF, -INF, -INF, 2).reshape(4, 2)
    value = reference("softmax", {"a": a}, {}, "float32")["out"]
    assert np.isnan(value[:3]).all()
    assert value[3].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("columns", [1, 2, 7, 128, 1000])
def test_layernorm_of_rows_far_from_zero_is_within_the_bound(offset: float, columns: int) -> None:
    rng = np.random.default_rng(9)
    a = (rng.standard_normal((50, columns)) + offset).astype("f4")
    assert worst("layernorm", {"a": a}, honest("layernorm", {"a": a})) <= 1.0
    constant = np.full((3, columns), offset, "f4")
    assert worst("layernorm", {"a": constant}, honest("layernorm", {"a": constant})) <= 1.0


def test_layernorm_summed_in_eight_lanes_is_within_the_bound() -> None:
    a = (np.random.default_rng(10).standard_normal((20, 4096)) + 3).astype("f4")

    def total(x: Array) -> Array:
        lanes = np.cumsum(x.reshape(len(x), -1, 8), axis=1, dtype=np.float32)[:, -1]
        return lanes.sum(axis=1, dtype=np.float32, keepdims=True)

    apart = a - total(a) / np.float32(4096)
    found = apart / np.sqrt(total(apart * apart) / np.float32(4096) + np.float32(1e-5))
    assert worst("layernorm", {"a": a}, found) <= 1.0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("spoilt", [None, NAN, INF, -INF])
@pytest.mark.parametrize("operation", ["softmax", "layernorm"])
def test_a_long_row_is_the_same_in_pieces(operation: str, spoilt: float | None, dtype: str) -> None:
    row = (np.random.default_rng(11).standard_normal(200_001) * 9).astype(dtype)
    if spoilt is not None:
        row[150_000] = spoilt
    whole = expect(operation, {"a": row[None]}, {}, dtype)
    at = 0
    for span, piece in expect_long_row(operation, row, dtype):
        assert span.start == at
        at = span.stop
        assert np.allclose(piece.value, whole.value[0, span], rtol=1e-9, atol=1e-12, equal_nan=True)
        assert np.allclose(piece.bound, whole.bound[0, span], rtol=1e-6, atol=0)
    assert at == len(row)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_empty_arrays_have_empty_references(operation: str, dtype: str) -> None:
    empty = np.zeros((0, 4) if OPERATIONS[operation].form != "elements" else 0, dtype)
    arrays = {"a": empty, "b": np.zeros((4, 3), dtype) if operation == "matmul" else empty}
    assert reference(operation, arrays, {}, dtype)["out"].size == 0
    assert bound(operation, arrays, {}, dtype)["out"].size == 0


def test_rows_without_columns_and_sums_without_terms_exist() -> None:
    nothing = np.zeros((3, 0), np.float32)
    assert reference("softmax", {"a": nothing}, {}, "float32")["out"].shape == (3, 0)
    assert reference("layernorm", {"a": nothing}, {}, "float32")["out"].shape == (3, 0)
    product = reference("matmul", {"a": nothing, "b": nothing.T}, {}, "float32")["out"]
    assert product.tolist() == np.zeros((3, 3)).tolist()


def test_the_scalar_is_rounded_to_float32_first() -> None:
    value = reference("scale", {"a": f32(1.0)}, {"scalar": 0.1}, "float32")["out"]
    assert value[0] == float(np.float32(0.1)) != 0.1
