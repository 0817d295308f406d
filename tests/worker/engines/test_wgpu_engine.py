"""The GPU engine on whatever adapter there is, software too: right, throttled, and typed errors where it cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from moregpu_kernels.operations import OPERATIONS
from moregpu_kernels.reference import expect

from moregpu.errors import EngineError
from moregpu.worker.engines.unfit import DeviceUnfit
from moregpu.worker.engines.wgpu_engine import WgpuEngine
from moregpu.worker.slicing import DutySlicer
from moregpu.workloads.protocol import TaskStopped

Array = np.ndarray[Any, Any]


class Watching:
    """A slicer that notes how far apart it is asked, and can stop."""

    slice_s = 0.03

    def __init__(self, stop_after: int | None = None):
        self.calls = 0
        self.shares: list[float | None] = []
        self.longest_s = 0.0
        self._stop_after = stop_after
        self._mark = time.perf_counter()

    def pause_point(self, share_done: float | None = None) -> None:
        self.shares.append(share_done)
        now = time.perf_counter()
        self.calls += 1
        self.longest_s = max(self.longest_s, now - self._mark)
        self._mark = now
        if self._stop_after is not None and self.calls >= self._stop_after:
            raise TaskStopped("stopped by the test")


@pytest.fixture(scope="module")
def engine() -> Iterator[WgpuEngine]:
    try:
        made = WgpuEngine("gpu0", "")
    except DeviceUnfit as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    yield made
    made.close()


def operands(operation: str, size: int, dtype: str = "float32") -> dict[str, Array]:
    rng = np.random.default_rng(size)
    shape = (size,) if OPERATIONS[operation].form == "elements" else (size, size)
    return {name: rng.standard_normal(shape, np.float32).astype(dtype) for name in OPERATIONS[operation].inputs}


@pytest.mark.parametrize("size", [0, 1, 3, 65, 257])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_right(engine: WgpuEngine, operation: str, dtype: str, size: int) -> None:
    arrays, parameters = operands(operation, size, dtype), {"scalar": -1.5}
    found = engine.run(operation, arrays, parameters, Watching())["out"]
    expected = expect(operation, arrays, parameters, dtype)
    assert found.dtype == dtype and found.shape == expected.value.shape
    assert (expected.ratio(found) <= 1.0).all()


def test_what_a_benchmark_says_besides_is_no_parameter_of_the_kernel(engine: WgpuEngine) -> None:
    arrays = operands("matmul", 9)
    found = engine.run("matmul", arrays, {"inner": 9, "rows": [0, 9], "columns": [0, 9]}, Watching())["out"]
    assert (expect("matmul", arrays, {}, "float32").ratio(found) <= 1.0).all()


def test_the_throttle_is_asked_between_submits_and_can_stop_the_work(engine: WgpuEngine) -> None:
    arrays = operands("matmul", 768)
    engine.run("matmul", arrays, {}, Watching())
    watching = Watching()
    engine.run("matmul", arrays, {}, watching)
    submits = 2 if engine.is_software else 1
    assert watching.calls >= submits - 1
    assert watching.shares == sorted(share for share in watching.shares if share is not None and 0.0 < share < 1.0)
    if engine.is_software:
        with pytest.raises(TaskStopped):
            engine.run("matmul", arrays, {}, Watching(stop_after=1))
    # The engine goes on as if nothing had happened.
    found = engine.run("matmul", arrays, {}, Watching())["out"]
    assert (expect("matmul", arrays, {}, "float32").ratio(found) <= 1.0).all()


def test_no_slice_is_submitted_between_a_pause_and_its_end(engine: WgpuEngine) -> None:
    if not engine.is_software:
        pytest.skip("missing: work long enough to be paused in the middle of")
    arrays = operands("matmul", 768)
    engine.run("matmul", arrays, {}, Watching())
    paused_at: list[int] = []
    stood: list[int] = []

    def listen(timeout_s: float) -> None:
        if not paused_at:
            paused_at.append(engine.executor.submits)
            slicer.set_duty(0.0)
        elif timeout_s > 0.0:  # it waits for what the agent says next
            stood.append(engine.executor.submits)
            slicer.set_duty(1.0 if len(stood) == 3 else 0.0)

    slicer = DutySlicer(listen, lambda _share, _paused: None)
    slicer.set_duty(1.0)
    slicer.begin(None)
    before = engine.executor.submits
    found = engine.run("matmul", arrays, {}, slicer)["out"]
    # Paused after its first slices, it stood until it might go on, and then did what was left.
    assert stood == [paused_at[0]] * 3
    assert before < paused_at[0] < engine.executor.submits
    assert (expect("matmul", arrays, {}, "float32").ratio(found) <= 1.0).all()


def test_a_device_that_is_lost_in_mid_task_is_built_again(engine: WgpuEngine) -> None:
    arrays = operands("matmul", 768 if engine.is_software else 257)
    losses = iter([True])

    class Losing(Watching):
        def pause_point(self, share_done: float | None = None) -> None:
            if next(losses, False):
                engine.executor.device.native.destroy()

    if not engine.is_software:
        engine.executor.device.native.destroy()
    found = engine.run("matmul", arrays, {}, Losing())["out"]
    assert (expect("matmul", arrays, {}, "float32").ratio(found) <= 1.0).all()
    assert engine.executor.device.generation >= 1


def test_a_device_that_is_lost_again_and_again_is_unfit(engine: WgpuEngine) -> None:
    if not engine.is_software:
        pytest.skip("missing: work long enough to be lost in the middle of")

    class Losing(Watching):
        def pause_point(self, share_done: float | None = None) -> None:
            engine.executor.device.native.destroy()

    with pytest.raises(DeviceUnfit, match="lost twice"):
        engine.run("matmul", operands("matmul", 768), {}, Losing())
    engine.executor.device.rebuild()


def test_an_adapter_that_is_not_there_is_unfit() -> None:
    with pytest.raises(DeviceUnfit, match=r"No graphics adapter fits|graphics library"):
        WgpuEngine("gpu0", "vulkan:no-such-card")


def test_what_it_cannot_do_is_an_error_of_its_own(engine: WgpuEngine) -> None:
    with pytest.raises(EngineError, match="cannot run 'cholesky'"):
        engine.run("cholesky", {}, {}, Watching())
    a = np.ones((3, 4), np.float32)
    with pytest.raises(EngineError):
        engine.run("matmul", {"a": a, "b": a}, {}, Watching())


def test_more_than_the_memory_budget_goes_through_in_pieces_or_is_refused() -> None:
    try:
        small = WgpuEngine("gpu0", "", memory_budget_bytes=1 << 20)
    except DeviceUnfit as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")
    try:
        a = np.ones(1_000_000, np.float32)
        assert (small.run("vector_add", {"a": a, "b": a}, {}, Watching())["out"] == 2.0).all()
        row = np.ones((1, 1_000_000), np.float32)
        with pytest.raises(EngineError, match="budget"):
            small.run("softmax", {"a": row}, {}, Watching())
    finally:
        small.close()


# ---- arrays that come again ------------------------------------------------------------------------------------------


def small(budget_bytes: int = 16 << 20) -> WgpuEngine:
    try:
        return WgpuEngine("gpu0", "", budget_bytes)
    except DeviceUnfit as error:
        pytest.skip(f"missing: a graphics adapter ({error.detail})")


def test_an_array_that_is_held_is_uploaded_once_and_computed_with_as_any_other() -> None:
    engine = small()
    whole = np.random.default_rng(0).standard_normal((300, 500), np.float32)
    weight = whole[:, 100:400]  # as a task's part of a tensor lies
    engine.hold(weight)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((2, 300), np.float32)
        out = engine.run("matmul", {"a": x, "b": weight}, {}, Watching())["out"]
        assert np.all(expect("matmul", {"a": x, "b": weight}, {}, "float32").ratio(out) <= 1.0)
        assert engine.uploads.used_bytes == weight.nbytes
    held = engine.executor.device.ledger.held_bytes
    engine.let_go(weight)
    assert engine.uploads.used_bytes == 0
    assert engine.executor.device.ledger.held_bytes < held
    engine.close()


def test_held_arrays_make_room_for_each_other_and_for_a_task_that_needs_it_all() -> None:
    engine = small()
    arrays = [np.full((512, 1024), number, np.float32) for number in range(6)]  # 2 MiB each, of 16
    for array in arrays:
        engine.hold(array)
        out = engine.run("softmax", {"a": array}, {}, Watching())["out"]
        np.testing.assert_allclose(out, 1 / 1024, rtol=1e-5)
        assert engine.uploads.used_bytes <= 0.4 * (16 << 20)
    large = np.random.default_rng(0).standard_normal(900_000, np.float32)
    np.testing.assert_array_equal(engine.run("relu", {"a": large}, {}, Watching())["out"], np.maximum(large, 0))
    np.testing.assert_array_equal(
        engine.run("vector_add", {"a": arrays[0].reshape(-1), "b": arrays[5].reshape(-1)}, {}, Watching())["out"],
        np.full(512 * 1024, 5, np.float32),
    )
    engine.close()


def test_a_lost_device_gets_held_arrays_again() -> None:
    engine = small()
    weight = np.random.default_rng(0).standard_normal((64, 512), np.float32)
    engine.hold(weight)
    first = engine.run("softmax", {"a": weight}, {}, Watching())["out"]
    engine.executor.device.native.destroy()
    np.testing.assert_array_equal(engine.run("softmax", {"a": weight}, {}, Watching())["out"], first)
    engine.close()


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zero_of_the_other_sign_is_another_number(engine: WgpuEngine, first: float) -> None:
    """What was prepared for one served the other, and 1/-0 came out as +inf."""
    x = np.linspace(1, 2, 300, dtype=np.float32)
    for zero in (first, -first):
        found = engine.run("formula", {"x": x, "s": np.asarray(zero, np.float32)}, {"text": "x/s"}, Watching())["out"]
        np.testing.assert_array_equal(found, np.copysign(np.float32(np.inf), np.full(300, zero, np.float32)))
        scaled = engine.run("scale", {"a": x}, {"scalar": zero}, Watching())["out"]
        assert (np.signbit(scaled) == np.signbit(zero)).all()


@pytest.mark.parametrize("name", ["text", "out", "count", "u", "lane"])
@pytest.mark.parametrize("number", [False, True])
def test_a_formula_may_call_its_inputs_what_it_likes(engine: WgpuEngine, name: str, number: bool) -> None:
    x = np.linspace(-1, 1, 300, dtype=np.float32)
    given = np.asarray(2.5, np.float32) if number else x * 3
    arrays = {name: given, f"{name}_": x, f"con{name}": x}
    found = engine.run("formula", arrays, {"text": f"{name}*{name}_+con{name}"}, Watching())["out"]
    np.testing.assert_allclose(found, given * x + x, rtol=1e-6, atol=1e-7)
