"""The quick test of products: it passes nothing that the float64 judge would not, and rejects nothing on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moregpu_kernels.reference import expect

from moregpu.workloads.kernel import products
from moregpu.workloads.kernel.products import judge_product

Array = np.ndarray[Any, Any]
INNERS = [1, 2, 3, 7, 8, 9, 31, 64, 127, 511, 512, 513, 1000, 2048]


def make(kind: str, rows: int, inner: int, columns: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((rows, inner), np.float32), rng.standard_normal((inner, columns), np.float32)
    match kind:
        case "positive":
            a, b = np.abs(a), np.abs(b)
        case "constants":
            a[:], b[:] = 1.1, 1 / 3
        case "rank 1":
            a[:], b[:] = a[:, :1], b[:1]
        case "cancelling":
            a[:, 1::2] = a[:, : inner - inner % 2 : 2]
            b[1::2] = -b[: inner - inner % 2 : 2]
        case "one heavy term":
            a[:, inner // 2] *= np.float32(1e7)
        case "one heavy column":
            b[:, 0] *= np.float32(1e7)
        case "scattered":
            a *= rng.random(a.shape) < 0.02
        case "subnormal":
            a *= np.float32(2.0**-130)
        case "tiny products":
            a *= np.float32(2.0**-70)
            b *= np.float32(2.0**-70)
        case "huge":
            a *= np.float32(1e20)
            b *= np.float32(1e18)
        case "zeros":
            a[:] = 0
        case "infinite":
            a[rows // 2, 0] = np.inf
            b[inner // 2, columns // 2] = np.nan
        case _:
            assert kind == "normal"
    return a, b


KINDS = [
    "normal", "positive", "constants", "rank 1", "cancelling", "one heavy term", "one heavy column", "scattered",
    "subnormal", "tiny products", "huge", "zeros", "infinite",
]  # fmt: skip


def blocks_of_256(a: Array, b: Array) -> Array:
    """A kernel that sums one by one within blocks of 256: the longest chains that are allowed."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], 256):
            part = np.zeros_like(total)
            for term in range(start, min(start + 256, a.shape[1])):
                part += a[:, term : term + 1] * b[term : term + 1]
            total += part
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inner", [1, 5, 64, 300, 1100])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_honest_products_pass_whatever_the_data(kind: str, inner: int, dtype: str) -> None:
    a, b = make(kind, 33, inner, 21, seed=inner)
    with np.errstate(all="ignore"):
        a, b = a.astype(dtype), b.astype(dtype)
        wide = a.astype("f4"), b.astype("f4")
        for found in (np.matmul(*wide), blocks_of_256(*wide), (wide[0].astype("f8") @ wide[1].astype("f8"))):
            verdict = judge_product(a, b, found.astype(dtype), dtype)
            assert verdict.wrong is None
            assert 0.0 <= verdict.worst <= 1.0


@settings(max_examples=400, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    inner=st.sampled_from(INNERS),
    dtype=st.sampled_from(["float32", "float16"]),
    seed=st.integers(0, 2**20),
    share=st.one_of(st.floats(-2.0, 2.0), st.sampled_from([0.99, 1.001, 1.01, 1.05, 1.1, -1.02])),
    spread=st.sampled_from(["one", "all", "signs"]),
)
def test_the_quick_test_and_the_float64_judge_agree(
    kind: str, inner: int, dtype: str, seed: int, share: float, spread: str
) -> None:
    # Outputs are moved by a share of their bound, so that they lie on both sides of what may pass.
    a, b = make(kind, 9, inner, 7, seed)
    with np.errstate(all="ignore"):
        a, b = a.astype(dtype), b.astype(dtype)
        expected = expect("matmul", {"a": a, "b": b}, {}, dtype)
        shift = share * expected.bound
        rng = np.random.default_rng(seed)
        if spread == "one":
            shift = shift * (np.arange(63).reshape(9, 7) == rng.integers(63))
        elif spread == "signs":
            shift = shift * rng.choice([-1.0, 1.0], shift.shape)
        found = (expected.value + shift).astype(dtype)
    ratio = expected.ratio(found)
    verdict = judge_product(a, b, found, dtype)
    assert (verdict.wrong is None) == bool(np.all(ratio <= 1.0))
    if verdict.wrong is not None:
        assert ratio[verdict.wrong] > 1.0


@pytest.mark.parametrize("at", [(0, 0), (511, 511), (512, 512), (600, 519), (0, 519), (600, 0)])
def test_one_wrong_element_is_found_wherever_it_lies(at: tuple[int, int]) -> None:
    a, b = make("normal", 601, 700, 520, seed=1)
    found = a @ b
    found[at] += 2.5 * expect("matmul", {"a": a[at[0] :][:1], "b": b[:, at[1] :][:, :1]}, {}, "float32").bound[0, 0]
    verdict = judge_product(a, b, found, "float32")
    assert verdict.wrong == at
    assert verdict.worst > 1.0
    assert verdict.value == pytest.approx(a[at[0]].astype("f8") @ b[:, at[1]].astype("f8"))


def test_a_device_that_reads_subnormal_inputs_as_zero_is_honest() -> None:
    a, b = make("normal", 40, 600, 30, seed=8)
    a[:, ::2] *= np.float32(2.0**-129)
    b *= np.float32(2.0**100)
    flushed = np.where(np.abs(a) < 2.0**-126, np.float32(0), a)
    a[:, 1::2] *= np.float32(2.0**-110)
    flushed[:, 1::2] = a[:, 1::2]
    found = flushed @ b
    assert np.any(found != a @ b)
    assert judge_product(a, b, found, "float32").wrong is None
    found[7, 3] *= np.float32(1.01)
    assert judge_product(a, b, found, "float32").wrong == (7, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_nan_infinity_and_huge_numbers_never_slip_through(value: float) -> None:
    for kind in KINDS:
        if kind == "huge" and not np.isfinite(value):
            continue  # sums that leave float32's range on both sides may honestly be any of these
        a, b = make(kind, 40, 600, 30, seed=3)
        with np.errstate(all="ignore"):
            found = a @ b
        found[3, 4] = value
        if kind != "infinite" or np.isfinite(a[3]).all():
            assert judge_product(a, b, found, "float32").wrong == (3, 4), kind


def test_weights_that_overflow_float32_prove_nothing() -> None:
    # |A||B| is beyond float32, while no partial sum is: a quick test that divided by infinity would let anything pass.
    a = np.full((4, 600), 4e18, np.float32)
    b = np.zeros((600, 3), np.float32)
    b[:32:2], b[1:32:2] = 4e18, -4e18
    b[0] = 2e18
    assert judge_product(a, b, a @ b, "float32").wrong is None
    assert judge_product(a, b, np.full((4, 3), 1.0, np.float32), "float32").wrong is not None


def test_terms_left_out_of_the_glance_decide_speed_alone() -> None:
    # Every row has weight on terms of its own, so that no few terms stand for all.
    rng = np.random.default_rng(5)
    a = np.zeros((256, 1024), np.float32)
    for row in range(256):
        a[row, row * 4 : row * 4 + 4] = rng.standard_normal(4)
    b = rng.standard_normal((1024, 256), np.float32)
    found = a @ b
    assert judge_product(a, b, found, "float32").wrong is None
    found[77, 3] *= np.float32(1.01)
    assert judge_product(a, b, found, "float32").wrong == (77, 3)


def test_most_elements_are_settled_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counting(operation: str, arrays: dict[str, Array], parameters: dict[str, Any], dtype: str) -> Any:
        asked.append(len(arrays["a"]) * arrays["b"].shape[1])
        return expect(operation, arrays, parameters, dtype)

    monkeypatch.setattr(products, "expect", counting)
    for kind in ("normal", "positive", "constants", "rank 1"):
        for inner in (64, 512, 2048):
            a, b = make(kind, 256, inner, 256, seed=6)
            assert judge_product(a, b, a @ b, "float32").wrong is None
    assert sum(asked) < 0.01 * 12 * 256 * 256


def test_views_and_read_only_arrays_are_judged_like_others() -> None:
    a, b = make("normal", 64, 600, 64, seed=7)
    found = np.asfortranarray(a @ b)
    for array in (a, b, found):
        array.flags.writeable = False
    assert judge_product(a[::2], b[:, ::2], found[::2, ::2], "float32").wrong is None
