"""Checking a task: a wrong output never passes, at any size; an honest one always does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from moregpu_kernels.operations import OPERATIONS

from moregpu.jobs import Evidence, Planned
from moregpu.workloads import workload
from moregpu.workloads.arrays import as_array, as_bytes, misfit
from moregpu.workloads.kernel import check
from moregpu.workloads.protocol import Cost, Rejected, TaskSpec

Array = np.ndarray[Any, Any]
KERNEL = workload("kernel")
SIZES = [1, 3, 257, 2048]


def task_of(operation: str, dtype: Any, shape: tuple[int, ...], **parameters: Any) -> TaskSpec:
    return TaskSpec(
        kind="kernel",
        program=operation.encode(),
        parameters=msgspec.msgpack.encode(parameters),
        precision=dtype,
        grains=(0, 1),
        inputs={},
        outputs={"out": Planned(dtype=dtype, shape=shape)},
        cost=Cost(),
    )


def numpy_result(operation: str, arrays: dict[str, Array]) -> Array:
    a, b = arrays["a"], arrays.get("b", arrays["a"])
    match operation:
        case "matmul":
            return a @ b
        case "vector_add":
            return a + b
        case "vector_mul":
            return a * b
        case "saxpy":
            return np.float32(1.5) * a + b
        case "scale":
            return np.float32(1.5) * a
        case "relu":
            return np.maximum(a, 0)
        case "gelu":
            return (a / 2 * (1 + np.tanh(np.float32(0.7978845608) * (a + np.float32(0.044715) * a**3)))).astype("f4")
        case "softmax":
            e = np.exp(a - a.max(axis=1, keepdims=True))
            return e / e.sum(axis=1, keepdims=True)
        case _:
            d = a - a.mean(axis=1, keepdims=True)
            return d / np.sqrt((d * d).mean(axis=1, keepdims=True) + np.float32(1e-5))


def arrays_for(operation: str, n: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shape = {"elements": (n,), "rows": (n, 128), "product": (n, n)}[OPERATIONS[operation].form]
    # Away from zero, so that half, scaled and zero outputs differ even for the smallest sizes (relu of a negative
    # number is 0 whatever a liar does).
    return {name: (rng.random(shape, np.float32) + np.float32(0.5)) for name in OPERATIONS[operation].inputs}


def judged(operation: str, arrays: dict[str, Array], found: Array, level: Any = "spot") -> Evidence | Rejected:
    return KERNEL.check(
        task_of(operation, "float32", found.shape, scalar=1.5), arrays, {"out": found}, level, os.urandom
    )


def half_done(right: Array) -> Array:
    """The first half is computed, the rest is left as it was."""
    found = right.copy()
    found[len(found) // 2 :] = 0
    return found


def one_off(right: Array) -> Array:
    """One element is off by a thousandth."""
    found = right.copy()
    at = np.unravel_index(int(np.argmax(np.abs(right))), right.shape)
    found[at] *= np.float32(1.001)
    return found


def swapped(right: Array) -> Array:
    """A pair of errors that cancel in every sum."""
    found = right.copy()
    found.flat[0] += np.float32(0.5)
    if right.size > 1:
        found.flat[-1] -= np.float32(0.5)
    return found


def one_nan(right: Array) -> Array:
    found = right.copy()
    found.flat[right.size // 2] = np.nan
    return found


LIARS: dict[str, Callable[[Array], Array]] = {
    "zeros": np.zeros_like,
    "scaled": lambda right: right * np.float32(1.01),
    "negated": lambda right: -right,
    "half of it": half_done,
    "one element": one_off,
    "a cancelling pair": swapped,
    "one NaN": one_nan,
    "all NaN": lambda right: np.full_like(right, np.nan),
    "infinite": lambda right: np.full_like(right, np.inf),
    "random": lambda right: np.random.default_rng(1).random(right.shape, np.float32) + right + np.float32(0.25),
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_liar_passes_at_any_size(operation: str, n: int) -> None:
    if operation == "matmul" and n == 2048:
        n = 1024
    arrays = arrays_for(operation, n)
    right = numpy_result(operation, arrays)
    honest = judged(operation, arrays, right)
    assert isinstance(honest, Evidence), honest
    assert honest.kind == "recomputed"
    assert honest.checked
    for name, lie in LIARS.items():
        verdict = judged(operation, arrays, lie(right))
        assert isinstance(verdict, Rejected), name
        assert verdict.worst_ratio > 1.0


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", SIZES)
def test_the_answer_of_another_day_does_not_pass(operation: str, n: int) -> None:
    n = min(n, 1024)
    today, yesterday = arrays_for(operation, n, seed=1), arrays_for(operation, n, seed=2)
    assert isinstance(judged(operation, today, numpy_result(operation, yesterday)), Rejected)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_lie_anywhere_is_found(operation: str) -> None:
    arrays = arrays_for(operation, 70_000 if OPERATIONS[operation].form == "elements" else 700)
    right = numpy_result(operation, arrays)
    for at in (0, right.size // 3, right.size - 1):
        found = right.copy()
        found.flat[at] += np.float32(0.01) * (1 + abs(found.flat[at]))
        verdict = judged(operation, arrays, found)
        assert isinstance(verdict, Rejected)
        where = ", ".join(str(int(index)) for index in np.unravel_index(at, right.shape))
        assert verdict.reason.startswith(f"element ({where}) is ")


def test_unchecked_is_what_the_job_asked_for_and_what_is_said() -> None:
    arrays = arrays_for("relu", 10)
    verdict = judged("relu", arrays, np.zeros(10, "f4"), "none")
    assert verdict == Evidence(kind="unchecked")
    assert not verdict.checked
    for level in ("spot", "full", "agree"):
        assert isinstance(judged("relu", arrays, np.zeros(10, "f4"), level), Rejected)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({}, "outputs \\[\\]"),
        ({"c": np.zeros(4, "f4")}, "outputs \\['c'\\]"),
        ({"out": np.zeros(4, "f4"), "more": np.zeros(4, "f4")}, "'more'"),
        ({"out": np.zeros(5, "f4")}, "shape \\(5,\\)"),
        ({"out": np.zeros((4, 1), "f4")}, "shape \\(4, 1\\)"),
        ({"out": np.zeros(4, "f8")}, "out is float64"),
        ({"out": np.zeros(4, ">f4")}, "out is >f4"),
        ({"out": [0.0] * 4}, "out is list"),
    ],
)
def test_an_output_of_another_form_is_rejected_unseen(outputs: dict[str, Any], words: str) -> None:
    task = task_of("relu", "float32", (4,))
    verdict = KERNEL.check(task, {"a": np.zeros(4, "f4")}, outputs, "spot", os.urandom)
    assert isinstance(verdict, Rejected)
    assert verdict.worst_ratio == np.inf
    assert re.search(words, verdict.reason)


def test_nothing_to_compute_is_checked_too() -> None:
    for operation in OPERATIONS:
        shape = (0,) if OPERATIONS[operation].form == "elements" else (0, 5)
        arrays = {"a": np.zeros(shape, "f4"), "b": np.zeros((5, 5) if operation == "matmul" else shape, "f4")}
        assert judged(operation, arrays, np.zeros(shape, "f4")) == Evidence(kind="recomputed")


def test_a_product_over_no_terms_must_be_zero() -> None:
    arrays = {"a": np.zeros((2, 0), "f4"), "b": np.zeros((0, 2), "f4")}
    assert isinstance(judged("matmul", arrays, np.zeros((2, 2), "f4")), Evidence)
    assert isinstance(judged("matmul", arrays, np.ones((2, 2), "f4")), Rejected)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_float16_is_judged_by_what_was_stored(operation: str) -> None:
    arrays = {name: each.astype("f2") for name, each in arrays_for(operation, 200).items()}
    right = numpy_result(operation, {name: each.astype("f4") for name, each in arrays.items()}).astype("f2")
    task = task_of(operation, "float16", right.shape, scalar=1.5)
    assert isinstance(KERNEL.check(task, arrays, {"out": right}, "spot", os.urandom), Evidence)
    wrong = right.copy()
    wrong.flat[3] = np.nextafter(np.nextafter(wrong.flat[3], np.float16(np.inf)), np.float16(np.inf))
    assert isinstance(KERNEL.check(task, arrays, {"out": wrong}, "spot", os.urandom), Rejected)


def test_results_of_other_honest_arithmetic_pass() -> None:
    # Not the bits that we get: a wider exp, a fused multiply-add, float64 throughout.
    for operation in OPERATIONS:
        arrays = arrays_for(operation, 300)
        wide = numpy_result(operation, {name: each.astype("f8") for name, each in arrays.items()}).astype("f4")
        verdict = judged(operation, arrays, wide)
        assert isinstance(verdict, Evidence), (operation, verdict)


@pytest.mark.parametrize("operation", ["softmax", "layernorm"])
def test_a_long_row_is_judged_in_pieces(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "LONG_ROW", 1 << 10)
    a = np.random.default_rng(2).standard_normal((3, 100_000), np.float32)
    right = numpy_result(operation, {"a": a.astype("f8")}).astype("f4")
    assert isinstance(judged(operation, {"a": a}, right), Evidence)
    right[2, 90_000] *= np.float32(1.1)
    verdict = judged(operation, {"a": a}, right)
    assert isinstance(verdict, Rejected)
    assert verdict.reason.startswith("element (2, 90000) is ")


# ---- bytes and arrays ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_arrays_are_views_of_bytes_and_bytes_of_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    plain = bytearray(
        as_array(bytes(4 * 6), "uint8", (24,))[: int(np.prod(shape)) * as_array(b"", dtype, (0,)).itemsize]
    )
    array = as_array(plain, dtype, shape)
    assert array.shape == shape
    assert bytes(as_bytes(array)) == bytes(plain)
    if array.size:
        plain[0] = 1
        assert array.reshape(-1)[0] != 0


def test_bytes_that_are_no_such_array_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes"):
        as_array(b"abc", "float32", (1,))
    with pytest.raises(ValueError, match="bfloat16"):
        as_array(b"ab", "bfloat16", (1,))


def test_columns_of_a_larger_array_become_row_major_bytes() -> None:
    array = np.arange(12, dtype="f4").reshape(3, 4)[:, 1:3]
    assert bytes(as_bytes(array)) == np.array([[1, 2], [5, 6], [9, 10]], "f4").tobytes()
    assert misfit({"x": array}, {"x": Planned(dtype="float32", shape=(3, 2))}) == ""


def test_the_largest_products_are_checked_by_vectors_unless_the_job_asks_for_all() -> None:
    arrays = arrays_for("matmul", 2048)
    right = numpy_result("matmul", arrays)
    spot, full = judged("matmul", arrays, right), judged("matmul", arrays, right, "full")
    assert isinstance(spot, Evidence)
    assert isinstance(full, Evidence)
    assert (spot.kind, spot.vectors, spot.checked) == ("freivalds", 4, True)
    assert full.kind == "recomputed"


def test_what_vectors_find_names_the_element() -> None:
    arrays = arrays_for("matmul", 2048)
    wrong = numpy_result("matmul", arrays)
    wrong[1234, 567] += 1000
    verdict = judged("matmul", arrays, wrong)
    assert isinstance(verdict, Rejected)
    assert "(1234, 567)" in verdict.reason


ROAMING: list[tuple[str, dict[str, list[Any]], list[Any], list[Any]]] = [
    # Sums that leave float32 in one order, or where they are not fused, and not in another.
    ("matmul", {"a": [[3e38, 3e38, -3e38]], "b": [[1], [1], [1]]}, [[np.inf]], [[3e38]]),
    ("matmul", {"a": [[3e38, 3e38, -3e38, -3e38]], "b": [[1]] * 4}, [[np.nan]], [[0.0]]),
    ("saxpy", {"a": [3e38], "b": [-3e38]}, [np.inf], [1.5e38]),
    # Subnormals that are read as 0, and meet infinity.
    ("vector_mul", {"a": [1e-45], "b": [-np.inf]}, [-np.inf], [np.nan]),
    ("matmul", {"a": [[np.inf]], "b": [[1e-40]]}, [[np.inf]], [[np.nan]]),
]


@pytest.mark.parametrize(("operation", "given", "one", "other"), ROAMING)
def test_honest_workers_agree_where_one_leaves_the_range_of_numbers(
    operation: str, given: dict[str, list[Any]], one: list[Any], other: list[Any]
) -> None:
    arrays = {name: np.array(values, "f4") for name, values in given.items()}
    outputs = [np.array(each, "f4") for each in (one, other)]
    task = task_of(operation, "float32", outputs[0].shape, scalar=1.5)
    for output in outputs:
        assert isinstance(KERNEL.check(task, arrays, {"out": output}, "spot", os.urandom), Evidence)
    assert KERNEL.agree(task, arrays, {"out": outputs[0]}, {"out": outputs[1]})
    lie = np.full_like(outputs[0], 7e37)
    for output in outputs:
        assert not KERNEL.agree(task, arrays, {"out": output}, {"out": lie})


def test_honest_workers_agree_where_nobody_can_say_what_is_right() -> None:
    arrays = {"x": np.array([20.0, 1.0], "f4"), "y": np.array([0.0, 2.0], "f4")}
    task = task_of("formula", "float32", (2,), text="exp(-x*x) / y")
    one, other = (np.array([first, np.exp(np.float32(-1)) / 2], "f4") for first in (np.inf, np.nan))
    assert KERNEL.agree(task, arrays, {"out": one}, {"out": other})
    assert not KERNEL.agree(task, arrays, {"out": one}, {"out": one + np.float32(0.001)})
