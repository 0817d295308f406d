"""Results equal NumPy's float64 reference within the bounds, at every size, through real processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from moregpu_kernels.reference import expect

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.client.signatures import verify_signed
from moregpu.jobs import JobState

Array = np.ndarray[Any, Any]
UNARY = ("relu", "gelu", "scale", "softmax", "layernorm")
ELEMENTWISE = ("vector_add", "vector_mul", "saxpy")


def draw(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def call(pool: Pool, operation: str, a: Array, b: Array | None, scalar: float) -> Array:
    match operation:
        case "saxpy":
            return pool.saxpy(scalar, a, b)
        case "scale":
            return pool.scale(a, scalar)
        case "matmul":
            return pool.matmul(a, b)
        case "vector_add":
            return pool.vector_add(a, b)
        case "vector_mul":
            return pool.vector_mul(a, b)
        case "relu":
            return pool.relu(a)
        case "gelu":
            return pool.gelu(a)
        case "softmax":
            return pool.softmax(a)
        case _:
            return pool.layernorm(a)


def assert_right(operation: str, found: Array, a: Array, b: Array | None, scalar: float = 1.0) -> None:
    arrays = {"a": a} if b is None else {"a": a, "b": b}
    expected = expect(operation, arrays, {"scalar": scalar}, found.dtype.name)
    assert found.shape == expected.value.shape
    assert (expected.ratio(found) <= 1.0).all()


@pytest.mark.parametrize("size", [1, 3, 257])
@pytest.mark.parametrize("operation", ["matmul", *ELEMENTWISE, *UNARY])
def test_every_kernel_at_small_sizes(pool: Pool, operation: str, size: int) -> None:
    shape = (size, size) if operation in ("matmul", "softmax", "layernorm") else (size,)
    a = draw(1, *shape)
    b = draw(2, *shape) if operation in ("matmul", *ELEMENTWISE) else None
    assert_right(operation, call(pool, operation, a, b, -1.5), a, b, -1.5)


def test_a_product_of_2048(pool: Pool) -> None:
    A, B = draw(3, 2048, 2048), draw(4, 2048, 2048)
    assert_right("matmul", pool.matmul(A, B), A, B)


def test_products_of_odd_shapes(pool: Pool) -> None:
    for rows, inner, columns in ((1, 700, 1), (513, 1, 1025), (1, 1, 3), (1030, 31, 65)):
        A, B = draw(rows, rows, inner), draw(columns, inner, columns)
        assert_right("matmul", pool.matmul(A, B), A, B)


def test_ten_million_elements(pool: Pool) -> None:
    a, b = draw(5, 10_000_000), draw(6, 10_000_000)
    assert np.array_equal(pool.vector_add(a, b), a + b)


@pytest.mark.slow
@pytest.mark.parametrize("operation", [*ELEMENTWISE[1:], *UNARY])
def test_ten_million_elements_of_every_kernel(pool: Pool, operation: str) -> None:
    shape = (78_125, 128) if operation in ("softmax", "layernorm") else (10_000_000,)
    a = draw(7, *shape)
    b = draw(8, *shape) if operation in ELEMENTWISE else None
    assert_right(operation, call(pool, operation, a, b, 0.5), a, b, 0.5)


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_nothing_at_all(pool: Pool, shape: tuple[int, ...]) -> None:
    """Size zero gives an array of size zero, or a typed error; never a job that hangs."""
    assert pool.relu(np.zeros(shape, np.float32)).shape == shape


@pytest.mark.parametrize("operation", ["matmul", *ELEMENTWISE, *UNARY])
def test_nan_and_infinity_come_out_as_numpy_gives_them(pool: Pool, operation: str) -> None:
    a = draw(9, 64, 64)
    a[3, 5], a[10, 2], a[20, 7], a[33, :] = np.nan, np.inf, -np.inf, -0.0
    b = draw(10, 64, 64) if operation in ("matmul", *ELEMENTWISE) else None
    if b is not None:
        b[1, 1], b[2, 2] = np.inf, np.nan
    assert_right(operation, call(pool, operation, a, b, 2.0), a, b, 2.0)


def test_float16_in_float16_out(pool: Pool) -> None:
    A, B = draw(11, 100, 70).astype(np.float16), draw(12, 70, 50).astype(np.float16)
    found = pool.matmul(A, B)
    assert found.dtype == np.float16
    assert_right("matmul", found, A, B)


def test_both_workers_take_part_and_sign(road: LoopbackPool, pool: Pool) -> None:
    A, B = draw(13, 1024, 1024), draw(14, 1024, 1024)
    handle = pool.kernel("matmul", A, B)
    assert_right("matmul", handle.result(), A, B)
    view = handle.status()
    assert view.state is JobState.DONE
    assert view.checked
    assert view.signed
    assert view.evidence == {"recomputed": view.tasks_total}
    signed = handle.statements()
    assert {verify_signed(handle.id, one).task for one in signed} == {task.id for task in view.tasks or []}
    assert {one.worker_name for one in signed} == {"anna", "ben"}


def test_a_benchmark_makes_its_own_data_and_drops_the_output(pool: Pool) -> None:
    handle = pool.benchmark("matmul", 512, seed=7)
    assert handle.result() is None
    assert handle.view.checked
    assert handle.status().result is not None


def test_a_job_that_asked_for_no_check_is_not_called_checked(pool: Pool) -> None:
    handle = pool.kernel("relu", draw(15, 100), check="none")
    handle.result()
    assert not handle.view.checked
    assert set(handle.view.evidence) == {"unchecked"}


def test_the_same_submission_twice_is_one_job(pool: Pool) -> None:
    from moregpu.workloads.kernel.spec import KernelSpec

    spec = KernelSpec(operation="relu", size=100)
    first = pool.submit_job(spec, idempotency_key="once")
    assert pool.submit_job(spec, idempotency_key="once").id == first.id
    assert pool.submit_job(spec, idempotency_key="twice").id != first.id


def test_a_job_is_found_by_the_beginning_of_its_id(pool: Pool) -> None:
    handle = pool.benchmark("relu", 10)
    assert pool.job(handle.id[:20].lower()).id == handle.id
    assert handle.id in {view.id for view in pool.jobs()}


def test_progress_ends_with_the_job(pool: Pool) -> None:
    seen = list(pool.benchmark("matmul", 1024).watch())
    assert seen[-1].state is JobState.DONE
    assert seen[-1].done == seen[-1].total
    assert [one.done for one in seen] == sorted(one.done for one in seen)


def test_the_ledger_verifies(pool: Pool) -> None:
    pool.relu(draw(16, 10))
    found = pool.audit()
    assert found.ok, found.problems
    assert found.rows > 0
