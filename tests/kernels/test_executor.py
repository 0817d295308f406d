"""Running steps: one submit where it fits, slices where not, tensors above every limit, budgets, cancelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from moregpu_kernels import executor as executor_module
from moregpu_kernels import transfer
from moregpu_kernels.device import Device
from moregpu_kernels.errors import BadBinding, BadShape, BudgetExceeded
from moregpu_kernels.executor import Executor
from moregpu_kernels.fuse import step
from moregpu_kernels.reference_others import expect_any


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def right(operation: str, arrays: dict[str, Any], out: np.ndarray[Any, Any], **parameters: Any) -> bool:
    return bool(np.all(expect_any(operation, arrays, parameters, str(out.dtype)).ratio(out) <= 1.0))


def test_a_run_that_fits_a_slice_is_one_submit(executor: Executor):
    x = numbers(64)
    steps = [step("vector_add", {"a": "x" if i == 0 else f"t{i - 1}", "b": "x"}, f"t{i}") for i in range(60)]
    executor.run(steps, {"x": x}, ["t59"], fused=False)
    executor.run(steps, {"x": x}, ["t59"], fused=False)
    before = executor.submits
    out = executor.run(steps, {"x": x}, ["t59"], fused=False)["t59"]
    np.testing.assert_allclose(out, 61 * x, rtol=1e-5)
    assert executor.submits - before == 1


def test_what_runs_again_is_neither_planned_nor_told_its_uniforms_again(
    device: Device, monkeypatch: pytest.MonkeyPatch
):
    own = Executor(device)
    x = own.upload(numbers(64))
    planned, written = Counted(executor_module.plan), Counted(device.fast.write)
    monkeypatch.setattr(executor_module, "plan", planned)
    monkeypatch.setattr(device.fast, "write", written)
    add = [step("vector_add", {"a": f"t{i - 1}" if i else "x", "b": "x"}, f"t{i}") for i in range(20)]
    for _ in range(3):
        np.testing.assert_array_equal(own.apply("relu", {"a": x}), np.maximum(x.array, 0))
        own.run(add, {"x": x}, ["t19"], fused=False)
    assert planned.calls == 1
    # One for each pipeline's first use, and then one for each run, whose uniforms lie side by side.
    assert written.calls == 4
    own.release(x)


class Counted:
    """A function, and how often it was called."""

    def __init__(self, function: Any):
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **named)


def test_intermediates_share_buffers(device: Device):
    own = Executor(device)
    held = device.ledger.held_bytes
    x = numbers(1 << 18)
    steps = [step("exp" if i % 2 else "tanh", {"a": "x" if i == 0 else f"t{i - 1}"}, f"t{i}") for i in range(30)]
    own.run(steps, {"x": x}, ["t29"], fused=False)
    assert device.ledger.held_bytes - held < 5 * x.nbytes
    own.trim()
    assert device.ledger.held_bytes == held


def test_long_work_is_cut_into_slices_with_a_call_between(device: Device):
    own = Executor(device, slice_s=0.001)
    a, b = numbers(400, 500), numbers(500, 300, seed=1)
    calls: list[int] = []
    out = own.apply("matmul", {"a": a, "b": b}, between=lambda: calls.append(own.submits))
    assert len(calls) >= 2
    assert calls == sorted(set(calls))
    assert right("matmul", {"a": a, "b": b}, out)


def test_what_is_long_to_upload_or_to_read_back_is_asked_between_its_pieces(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transfer, "UPLOAD_BYTES", 1 << 12)
    monkeypatch.setattr(transfer, "STAGING_BYTES", 1 << 12)
    x = numbers(5 << 10)  # five pieces up, and five down
    calls: list[int] = []
    out = executor.apply("relu", {"a": x}, between=lambda: calls.append(executor.submits))
    np.testing.assert_array_equal(out, np.maximum(x, 0))
    before_it_ran = [submits for submits in calls if submits == calls[0]]
    assert len(before_it_ran) == 4 and len(calls) - len(before_it_ran) >= 4
    executor.trim()


def test_how_much_is_done_is_known_between_slices_and_between_pieces(device: Device, tiny: Executor):
    sliced = Executor(device, slice_s=0.001)
    for own, size in ((sliced, 400), (tiny, 500)):
        a = numbers(size, size)
        done: list[float] = []
        own.apply("matmul", {"a": a, "b": a}, between=lambda own=own, done=done: done.append(own.share_done))
        assert len(done) >= 2
        assert done == sorted(set(done)) and done[0] > 0.0 and done[-1] < 1.0


def test_what_is_raised_between_slices_stops_the_run_and_the_executor_goes_on(device: Device):
    own = Executor(device, slice_s=0.001)
    a = numbers(400, 400)

    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        own.apply("matmul", {"a": a, "b": a}, between=stop)
    assert right("matmul", {"a": a, "b": a}, own.apply("matmul", {"a": a, "b": a}))


def test_a_callers_own_error_comes_out_as_it_is(device: Device):
    own = Executor(device, slice_s=0.001)

    def fail() -> None:
        raise RuntimeError("not the driver's")

    with pytest.raises(RuntimeError, match="not the driver's"):
        own.apply("matmul", {"a": numbers(400, 400), "b": numbers(400, 400)}, between=fail)


@pytest.fixture(scope="module")
def tiny(device: Device) -> Executor:
    """A device that binds no more than 64 KiB at once, and may hold 3 MiB."""
    small = Device(device.info, 3 << 20, {"max-storage-buffer-binding-size": 1 << 16})
    return Executor(small)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tensors_above_the_binding_limit_go_by_row_slices(tiny: Executor, dtype: str):
    x, y = numbers(70_001, dtype=dtype), numbers(70_001, dtype=dtype, seed=1)
    assert right("vector_add", {"a": x, "b": y}, tiny.apply("vector_add", {"a": x, "b": y}))
    rows = numbers(301, 257, dtype=dtype)
    for operation in ("softmax", "layernorm", "sum", "max"):
        assert right(operation, {"a": rows}, tiny.apply(operation, {"a": rows}))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_above_the_binding_limit_go_by_slices_of_rows_and_of_k(tiny: Executor, dtype: str):
    for m, k, n in ((130, 1100, 60), (600, 64, 64), (90, 700, 33)):
        a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
        bias = numbers(n, dtype=dtype, seed=2)
        assert right("matmul", {"a": a, "b": b}, tiny.apply("matmul", {"a": a, "b": b}))
        out = tiny.apply("matmul", {"a": a, "b": b, "bias": bias}, {"epilogue": "bias+relu"})
        assert right("matmul", {"a": a, "b": b, "bias": bias}, out, epilogue="bias+relu")


def test_tensors_above_the_budget_go_through_in_pieces(tiny: Executor):
    x = numbers(600_000)
    calls: list[None] = []
    assert right(
        "scale",
        {"a": x},
        tiny.apply("scale", {"a": x}, {"scalar": 3.0}, between=lambda: calls.append(None)),
        scalar=3.0,
    )
    assert len(calls) >= 2
    rows = numbers(3000, 300)
    assert right("softmax", {"a": rows}, tiny.apply("softmax", {"a": rows}))
    assert right("mean", {"a": rows}, tiny.apply("mean", {"a": rows}))
    np.testing.assert_array_equal(tiny.apply("transpose", {"a": rows}), rows.T)
    a, b = numbers(700, 200), numbers(200, 900, seed=1)
    assert right("matmul", {"a": a, "b": b}, tiny.apply("matmul", {"a": a, "b": b}))
    assert tiny.device.ledger.peak_bytes <= 3 << 20


def test_a_run_beyond_the_budget_is_refused_and_leaves_nothing_behind(tiny: Executor):
    tiny.trim()
    held = tiny.device.ledger.held_bytes
    with pytest.raises(BudgetExceeded, match="budget of 3,145,728"):
        tiny.run([step("relu", {"a": "x"}, "y")], {"x": numbers(600_000)}, ["y"])
    tiny.trim()
    assert tiny.device.ledger.held_bytes == held
    with pytest.raises(BudgetExceeded):
        tiny.upload(numbers(1_000_000))


def test_3_gib_are_planned_without_being_allocated(tiny: Executor):
    giant = np.broadcast_to(np.float32(1), (3 << 28, 1))
    with pytest.raises((BudgetExceeded, BadShape)):
        tiny.apply("transpose", {"a": giant[:, 0]})
    with pytest.raises((BudgetExceeded, BadShape)):
        tiny.apply("matmul", {"a": giant.T, "b": giant})


def test_residents_are_fed_many_times_and_freed_once(executor: Executor):
    x = numbers(1000)
    held = executor.device.ledger.held_bytes
    resident = executor.upload(x)
    for scalar in (1.0, 2.0):
        out = executor.run([step("scale", {"a": "x"}, "y", scalar=scalar)], {"x": resident}, ["y"])["y"]
        np.testing.assert_array_equal(out, x * np.float32(scalar))
    executor.release(resident)
    executor.release(resident)
    with pytest.raises(BadBinding, match="released"):
        executor.run([step("relu", {"a": "x"}, "y")], {"x": resident}, ["y"])
    executor.trim()
    assert executor.device.ledger.held_bytes <= held


@pytest.mark.parametrize(
    ("steps", "outputs", "said"),
    [
        ([step("relu", {"a": "nothing"}, "y")], ["y"], "neither fed nor written"),
        ([step("relu", {"a": "x"}, "x")], ["x"], "is there already"),
        ([step("relu", {"a": "x"}, "y")], ["z"], "No step writes z"),
        ([step("relu", {"a": "x"}, "y"), step("relu", {"a": "x"}, "y")], ["y"], "is there already"),
    ],
)
def test_steps_that_do_not_fit_together_are_refused(executor: Executor, steps: Any, outputs: list[str], said: str):
    with pytest.raises(BadBinding, match=said):
        executor.run(steps, {"x": numbers(3)}, outputs)


def test_mixed_and_unknown_dtypes_are_refused(executor: Executor):
    with pytest.raises(BadShape, match="one dtype"):
        executor.apply("vector_add", {"a": numbers(3), "b": numbers(3, dtype="float16")})
    with pytest.raises(BadShape, match="float64"):
        executor.apply("relu", {"a": np.zeros(3)})


def test_arrays_that_are_not_contiguous_are_taken_as_they_read(executor: Executor):
    a = numbers(40, 30)
    assert right("matmul", {"a": a.T, "b": a[:, ::2]}, executor.apply("matmul", {"a": a.T, "b": a[:, ::2]}))
    assert right("softmax", {"a": a[::-1]}, executor.apply("softmax", {"a": a[::-1]}))


def test_a_wide_grid_is_folded_into_the_second_axis(executor: Executor):
    """More than 65,535 workgroups: 70,000 rows, one each."""
    a = numbers(70_000, 2)
    out = executor.apply("sum", {"a": a}, variant="lanes256")
    assert right("sum", {"a": a}, out)
