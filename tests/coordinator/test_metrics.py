"""Figures in Prometheus' text: escaped, complete, and counted once."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from moregpu.coordinator.cases import Ruling
from moregpu.coordinator.measures import SAMPLES, Measures
from moregpu.coordinator.metrics import Counter, Histogram, family
from moregpu.coordinator.shell import SystemClock
from moregpu.coordinator.store.protocol import Completed
from moregpu.wire.messages import LeaseRef

REF = LeaseRef(task="t-1", attempt=1, token=bytes(16))


def ruling(verdict: str, **more: object) -> Ruling:
    return Ruling(ref=REF, completed=Completed(ref=REF, verdict=verdict), **more)  # type: ignore[arg-type]


def measures() -> Measures:
    return Measures(None, SystemClock())  # type: ignore[arg-type] — nothing here asks the store


def test_labels_are_escaped() -> None:
    lines = list(family("x", "help", "gauge", [({"name": 'a"b\\c\nd'}, 1.5)]))
    assert lines == ["# HELP x help", "# TYPE x gauge", 'x{name="a\\"b\\\\c\\nd"} 1.5']


def test_numbers_that_are_odd_have_their_spelling() -> None:
    lines = list(family("x", "h", "gauge", [({}, math.inf), ({}, -math.inf), ({}, math.nan), ({}, 3.0), ({}, 1e18)]))
    assert [line.split()[1] for line in lines[2:]] == ["+Inf", "-Inf", "NaN", "3", "1e+18"]


@given(st.lists(st.floats(min_value=0, max_value=1e4)))
def test_a_histogram_counts_each_observation_up_to_every_bound(values: list[float]) -> None:
    histogram = Histogram("h", "help")
    for value in values:
        histogram.observe(value)
    histogram.observe(math.nan)
    samples = dict(line.rsplit(" ", 1) for line in histogram.lines() if not line.startswith("#"))
    for bound in (0.001, 1.0, 300.0):
        text = repr(bound) if bound < 1 else str(int(bound))
        assert int(samples[f'h_bucket{{le="{text}"}}']) == sum(value <= bound for value in values)
    assert int(samples['h_bucket{le="+Inf"}']) == int(samples["h_count"]) == len(values)
    assert math.isclose(float(samples["h_sum"]), math.fsum(values), rel_tol=1e-6, abs_tol=1e-6)


def test_a_counter_without_labels_is_there_from_the_start() -> None:
    assert list(Counter("c", "help").lines())[-1] == "c 0"
    assert list(Counter("c", "help", ("state",)).lines()) == ["# HELP c help", "# TYPE c counter"]


def test_a_result_counts_once_however_often_it_is_sent() -> None:
    counted = measures()
    first = ruling("accepted", fresh=True, units=10, flops=5.0, seconds=0.5, speed_key="relu.float32")
    counted.judged("w-1", "gpu", first)
    counted.judged("w-1", "gpu", ruling("accepted", fresh=False, units=10, flops=5.0, seconds=0.5))
    counted.judged("w-1", "cpu", ruling("rejected", failed=True))
    counted.judged("w-1", "cpu", ruling("fenced"))
    assert (counted.tasks_done.value(), counted.tasks_failed.value()) == (1, 1)
    assert (counted.gpu_tasks.value(), counted.cpu_tasks.value()) == (1, 0)
    assert (counted.units.value(), counted.worker_operations.value("w-1")) == (10, 5)
    assert counted.worker_errors.value("w-1") == 1
    assert 'moregpu_task_seconds_count{kernel="relu"} 1' in list(counted.task_seconds.lines())


def test_trends_hold_the_last_spans() -> None:
    counted = measures()
    for units in (3, 0, 4):
        counted.judged("w-1", "cpu", ruling("accepted", fresh=True, units=units))
        counted.sample(["w-1"])
    assert counted.trend() == counted.trend("w-1") == [3, 0, 4]
    for _ in range(2 * SAMPLES):
        counted.sample(["w-1"])
    assert counted.trend() == [0] * SAMPLES
