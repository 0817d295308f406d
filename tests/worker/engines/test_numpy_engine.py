"""The CPU engine: right on any data, in slices that leave the throttle in charge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as arrays_of
from moregpu_kernels.operations import OPERATIONS
from moregpu_kernels.reference import expect, product_length

from moregpu.errors import EngineError
from moregpu.worker.engines import numpy_blocks, numpy_products
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.worker.engines.numpy_products import LONG_BLOCK, SAFE_BLOCK, product, sum_block
from moregpu.worker.engines.pace import FIRST_GUESS, Pace
from moregpu.workloads.protocol import TaskStopped

Array = np.ndarray[Any, Any]
LARGEST = float(np.finfo(np.float32).max)


class Throttle:
    """Counts pause points; stops the task at one of them."""

    def __init__(self, slice_s: float = 0.05, stop_at: int | None = None):
        self.slice_s = slice_s
        self.shares: list[float] = []
        self._stop_at = stop_at

    def pause_point(self, share_done: float | None = None) -> None:
        assert share_done is not None
        self.shares.append(share_done)
        if len(self.shares) == self._stop_at:
            raise TaskStopped


def run(operation: str, arrays: dict[str, Array], throttle: Throttle | None = None, scalar: float = 1.5) -> Array:
    return NumpyEngine().run(operation, arrays, {"scalar": scalar}, throttle or Throttle())["out"]


def worst(operation: str, arrays: dict[str, Array], found: Array, scalar: float = 1.5) -> float:
    expected = expect(operation, arrays, {"scalar": scalar}, str(arrays["a"].dtype))
    assert found.shape == expected.value.shape
    assert found.dtype == arrays["a"].dtype
    return float(expected.ratio(found).max(initial=0.0))


floats = st.one_of(
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, LARGEST, -LARGEST, 1e25, -1e25, 2.0**-126, 2.0**-149]),
    st.floats(width=32),
)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_any_floats_give_what_the_reference_gives(operation: str, dtype: str) -> None:
    shapes = {"product": ((3, 4), (4, 2)), "rows": ((4, 5), (4, 5)), "elements": ((11,), (11,))}
    shape_a, shape_b = shapes[OPERATIONS[operation].form]

    @settings(max_examples=40, deadline=None)
    @given(a=arrays_of(np.float32, shape_a, elements=floats), b=arrays_of(np.float32, shape_b, elements=floats))
    def holds(a: Array, b: Array) -> None:
        with np.errstate(all="ignore"):
            arrays = {"a": a.astype(dtype), "b": b.astype(dtype)}
        arrays = {name: arrays[name] for name in OPERATIONS[operation].inputs}
        assert worst(operation, arrays, run(operation, arrays)) <= 1.0

    holds()


@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [
        (1, 1, 1), (1, 16384, 1), (1, 20000, 64), (64, 20000, 1), (2, 16384, 2), (16, 9000, 16), (300, 700, 200),
        (1, 3, 5000), (5000, 3, 1), (7, 8193, 9), (11, 8192, 11), (1, 600, 7), (5, 16385, 24), (1, 8192, 257),
        (257, 8200, 1), (0, 5, 3), (3, 5, 0), (3, 0, 5), (100_000, 1, 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("data", ["constants", "more constants", "normal", "rank 1"])
def test_products_of_any_shape_keep_the_bound_of_short_sums(rows: int, inner: int, columns: int, data: str) -> None:
    rng = np.random.default_rng(inner)
    a, b = rng.standard_normal((rows, inner), np.float32), rng.standard_normal((inner, columns), np.float32)
    if data == "constants":
        a[:], b[:] = 0.1, 0.7
    elif data == "more constants":
        a[:], b[:] = -1.2224977, 0.3
    elif data == "rank 1" and inner:
        a[:], b[:] = a[:, :1], b[:1]
    assert worst("matmul", {"a": a, "b": b}, run("matmul", {"a": a, "b": b})) <= 1.0


@given(rows=st.integers(1, 5000), columns=st.integers(1, 5000), area=st.floats(1.0, 1e7))
def test_pieces_of_a_product_fit_a_slice_and_pack_no_more_than_whole_rows_would(
    rows: int, columns: int, area: float
) -> None:
    width = numpy_products._width(rows, columns, area, numpy_products.MOST_BANDS)
    assert 1 <= width <= columns
    # A slice is overrun only where the least there is, one row or a thin piece of a column, is more than it.
    height = numpy_products._even(rows, int(area / width))
    assert height * width <= area or height == 1 or width == 1
    whole_rows = numpy_products._width(rows, columns, area, 1)
    packed = numpy_products._packed(rows, columns, width, area)
    assert packed <= numpy_products._packed(rows, columns, whole_rows, area)


def test_a_square_product_is_cut_both_ways() -> None:
    assert numpy_products._width(1536, 1536, 511_000.0, numpy_products.MOST_BANDS) == 768
    assert numpy_products._width(1536, 1536, 511_000.0, 1) == 1536


def test_blas_of_this_machine_sums_within_half_the_bound_or_is_split() -> None:
    block = sum_block()
    assert block in (LONG_BLOCK, SAFE_BLOCK)
    for constant in (0.1, 0.3, 0.7, 1.1, 3.3e-3):
        for rows, columns in ((2, 200), (200, 2), (20, 20), (130, 70)):
            a = np.full((rows, block), constant, "f4")
            b = np.full((block, columns), constant, "f4")
            exact = block * float(np.float32(constant)) ** 2
            assert np.all(np.abs((a @ b) - exact) <= product_length(block) * 2.0**-24 * exact)


def test_sums_split_in_safe_blocks_are_as_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_products, "sum_block", lambda: SAFE_BLOCK)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((50, 1000), np.float32), rng.standard_normal((1000, 60), np.float32)
    out = np.empty((50, 60), np.float32)
    product(a, b, out, Pace("matmul", 1.0, Throttle(), {}))
    assert worst("matmul", {"a": a, "b": b}, out) <= 1.0


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_long_tasks_are_cut_into_slices(operation: str, dtype: str) -> None:
    shape = {"product": (256, 256), "rows": (40_000, 64), "elements": (3_000_000,)}[OPERATIONS[operation].form]
    rng = np.random.default_rng(2)
    arrays = {name: rng.random(shape, np.float32).astype(dtype) for name in OPERATIONS[operation].inputs}
    throttle = Throttle(slice_s=0.0002)
    found = run(operation, arrays, throttle)
    assert len(throttle.shares) > 2
    assert throttle.shares == sorted(throttle.shares)
    assert throttle.shares[-1] == 1.0
    assert worst(operation, {name: each[:1000] if operation != "matmul" else each for name, each in arrays.items()},
                 found[:1000]) <= 1.0  # fmt: skip


@pytest.mark.parametrize("operation", ["matmul", "gelu", "softmax"])
def test_a_stopped_task_ends_at_the_next_pause_point(operation: str) -> None:
    shape = {"matmul": (256, 256), "gelu": (3_000_000,), "softmax": (6000, 500)}[operation]
    arrays = {name: np.ones(shape, "f4") for name in OPERATIONS[operation].inputs}
    throttle = Throttle(slice_s=0.0002, stop_at=2)
    with pytest.raises(TaskStopped):
        run(operation, arrays, throttle)
    assert len(throttle.shares) == 2
    assert throttle.shares[-1] < 1.0


@pytest.mark.parametrize("columns", [1, 3, 1_000_000])
@pytest.mark.parametrize("operation", ["softmax", "layernorm"])
def test_rows_of_any_length(operation: str, columns: int) -> None:
    a = np.random.default_rng(3).standard_normal((2, columns), np.float32)
    assert worst(operation, {"a": a}, run(operation, {"a": a})) <= 1.0


@pytest.mark.parametrize("spoilt", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("operation", ["softmax", "layernorm"])
def test_a_row_too_long_for_a_slice_is_computed_in_pieces(
    operation: str, dtype: str, spoilt: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_blocks, "LONG_ROW", 1 << 10)
    a = (np.random.default_rng(5).standard_normal((2, 300_000)) * 3).astype(dtype)
    if spoilt is not None:
        a[1, 7] = spoilt
    throttle = Throttle(slice_s=1e-6)
    assert worst(operation, {"a": a}, run(operation, {"a": a}, throttle)) <= 1.0
    assert len(throttle.shares) == 12  # two rows, three passes, two pieces
    assert throttle.shares[-1] == pytest.approx(1.0)


def test_layernorm_of_rows_whose_squares_overflow() -> None:
    a = np.array([[1e30, -1e30, 2e30], [3e38, 3e38, 3e38], [1, 2, 3], [np.inf, 1, 2]], "f4")
    found = run("layernorm", {"a": a})
    assert worst("layernorm", {"a": a}, found) <= 1.0
    assert np.isfinite(found[:3]).all()
    assert np.isnan(found[3]).all()


def test_inputs_are_left_alone_and_may_be_read_only_views() -> None:
    base = np.random.default_rng(4).standard_normal((60, 80), np.float32)
    a, b = base[::2, :40], base[:40, 1::2]
    before = base.copy()
    base.flags.writeable = False
    assert worst("matmul", {"a": a, "b": b}, run("matmul", {"a": a, "b": b})) <= 1.0
    assert worst("softmax", {"a": a}, run("softmax", {"a": a})) <= 1.0
    assert np.array_equal(base, before)


def test_what_the_engine_does_not_know_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match="cannot run 'explode'"):
        run("explode", {"a": np.zeros(3, "f4")})
    with pytest.raises(EngineError, match="cannot run 'vector_add'"):
        run("vector_add", {"a": np.zeros(3, "f4")})


def test_too_little_memory_is_an_engine_error() -> None:
    a = np.broadcast_to(np.zeros((1, 1), "f4"), (1 << 30, 1))
    with pytest.raises(EngineError, match="out of memory"):
        run("matmul", {"a": a, "b": np.broadcast_to(np.zeros((1, 1), "f4"), (1, 1 << 30))})


# ---- pace ------------------------------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pieces_fill_a_slice_once_the_speed_is_known() -> None:
    clock, speeds = Clock(), dict[str, float]()
    throttle = Throttle(slice_s=0.05)
    pace = Pace("gelu", 1e9, throttle, speeds, clock, clock)
    assert pace.room() == FIRST_GUESS * 0.05 * 0.6
    for _ in range(12):
        amount = pace.room()
        clock.now += amount / 1e8  # this machine does 1e8 a second
        pace.done(amount)
    assert pace.room() == pytest.approx(1e8 * 0.05 * 0.6, rel=0.01)
    assert Pace("gelu", 1e9, throttle, speeds, clock, clock).room() == pace.room()


def test_a_pause_comes_before_a_slice_would_be_overrun() -> None:
    clock, throttle = Clock(), Throttle(slice_s=0.05)
    pace = Pace("relu", 100.0, throttle, {"relu": 1000.0}, clock, clock)
    for _ in range(5):
        clock.now += 0.02
        pace.done(10.0)
    # After two pieces of 20 ms a third would make 60.
    assert throttle.shares == [0.2, 0.4]


def test_time_spent_paused_says_nothing_about_speed() -> None:
    clock, speeds = Clock(), dict[str, float]()

    class Sleeper(Throttle):
        def pause_point(self, share_done: float | None = None) -> None:
            clock.now += 10.0

    pace = Pace("relu", 1e9, Sleeper(), speeds, clock, clock)
    for _ in range(20):
        clock.now += 0.03
        pace.done(3e6)
    assert speeds["relu"] == pytest.approx(1e8)


def test_a_slower_machine_is_noticed_at_once() -> None:
    clock, speeds = Clock(), {"relu": 1e9}
    pace = Pace("relu", 1e9, Throttle(), speeds, clock, clock)
    clock.now += 0.1
    pace.done(1e6)
    assert speeds["relu"] == pytest.approx(1e7)


class Shared(Clock):
    """A thread's own clock: it stands for most of the time."""

    def __init__(self, wall: Clock, share: float):
        self._wall, self._share = wall, share

    def __call__(self) -> float:
        return self._wall.now * self._share


@pytest.mark.parametrize(("share", "believed"), [(1.0, 1e8), (0.6, 1e8 / 0.6), (0.25, 2e8), (0.05, 1e9)])
def test_on_a_busy_machine_pieces_become_half_as_large_as_their_work_allows_and_no_smaller(
    share: float, believed: float
) -> None:
    clock, speeds = Clock(), dict[str, float]()
    pace = Pace("matmul", 1e9, Throttle(), speeds, clock, Shared(clock, share))
    clock.now += 0.02
    pace.done(2e6)  # 1e8 a second by the wall
    assert speeds["matmul"] == pytest.approx(believed)
