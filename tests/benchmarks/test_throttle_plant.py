"""How what is free is defined, and what can be had of it at best: the figures of `benchmarks.throttle` rest on it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import benchmarks.throttle
from benchmarks.throttle_plant import STEP_S, Trace, drive, free_of, measure, ours, perfect, recorded, reversals
from moregpu.worker.probes.record import Recording, Sample
from moregpu.worker.throttle.controller import ACTIVE_DUTY, ACTIVE_HOLD_S, RISE_PER_S

RECORDINGS = sorted(benchmarks.throttle.FOLDER.glob("*.json"))


def trace(samples: list[tuple[float | None, float]]) -> Trace:
    recording = Recording(
        system="a system",
        cores=2,
        period_s=0.25,
        samples=[Sample(idle_s=idle_s, others=use) for idle_s, use in samples],
    )
    return recorded(recording)


def test_free_is_what_others_leave_below_the_ceiling_and_nothing_of_it_is_negative() -> None:
    free = free_of(trace([(None, 0.25)] * 4 + [(None, 0.95)] * 4), 0.85)
    assert np.allclose(free[: len(free) // 2], 0.6)
    assert np.allclose(free[len(free) // 2 :], 0.0)


def test_after_an_input_little_is_free_for_as_long_as_it_counts() -> None:
    free = free_of(trace([(100.0 + i, 0.0) for i in range(8)] + [(0.25 * i, 0.0) for i in range(40)]), 0.85)
    begun, held = round(2.0 / STEP_S), round(ACTIVE_HOLD_S / STEP_S)
    assert np.allclose(free[:begun], 0.85)
    assert np.allclose(free[begun : begun + held], ACTIVE_DUTY)
    assert np.allclose(free[begun + held :], 0.85)


def test_the_best_of_the_rules_falls_at_once_and_rises_slowly() -> None:
    free = np.concatenate([np.full(1000, 0.85), np.zeros(10), np.full(1000, 0.85)])
    best = perfect(free)
    assert np.all(best <= free)
    assert best[1009] == 0.0
    assert best[1010 + round(1.0 / STEP_S) - 1] == pytest.approx(RISE_PER_S)
    assert best[-1] == pytest.approx(0.85)


def test_a_reversal_is_a_turn_by_moves_that_matter() -> None:
    assert reversals(np.array([0.8, 0.79, 0.8, 0.79])) == 0
    assert reversals(np.array([0.8, 0.5, 0.6, 0.7])) == 1
    assert reversals(np.array([0.2, 0.8, 0.2, 0.8])) == 2


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_a_recording_holds_shares_and_seconds_alone(file: Path) -> None:
    recording = msgspec.json.decode(file.read_bytes(), type=Recording)
    assert len(recording.samples) * recording.period_s >= 200.0
    assert all(0.0 <= sample.others <= 1.0 for sample in recording.samples)
    assert set(msgspec.json.decode(file.read_bytes())) <= {"version", "system", "cores", "period_s", "samples", "of"}


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda file: file.stem)
def test_the_controller_harvests_nearly_all_that_its_rules_allow_on_a_real_machine(file: Path) -> None:
    trace = recorded(msgspec.json.decode(file.read_bytes(), type=Recording))
    free = free_of(trace)
    duty = drive(trace, 0, ours())
    taken = float(np.minimum(duty, free).sum())
    assert taken / float(perfect(free).sum()) >= 0.90
    if trace.use.mean() < benchmarks.throttle.FULL:
        assert taken / float(free.sum()) >= 0.80
        assert measure(trace, duty)["reversals_per_min"] == 0.0
    assert float(np.maximum(trace.use + duty - 1.0, 0.0).mean()) <= 0.05
