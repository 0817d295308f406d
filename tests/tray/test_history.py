"""What ran here: summed, kept, and told again after a restart."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu_tray.history import FILE, HOUR_S, KEPT_DAYS, WATTS_PER_CORE, History, bars, duration, energy


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0 // HOUR_S * HOUR_S

    def __call__(self) -> float:
        return self.now


def note(history: History, job: str = "j-1", seconds: float = 10.0, submitter: str = "eva") -> None:
    history.note(job=job, submitter=submitter, name="rays", kind="kernel", seconds=seconds, cores=2)


def folder(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def test_tasks_are_summed_by_job_with_their_energy(tmp_path: Path) -> None:
    clock = Clock()
    history = History(folder(tmp_path), clock)
    for _ in range(1000):
        note(history)
    note(history, "j-2", 5.0, "ben")
    first, second = history.jobs_since(clock.now)
    assert (first.job, first.tasks, first.seconds, first.submitter) == ("j-1", 1000, 10_000.0, "eva")
    assert first.watt_hours == pytest.approx(10_000 * 2 * WATTS_PER_CORE / 3600)
    assert (second.job, second.tasks) == ("j-2", 1)
    assert history.since(clock.now).tasks == 1001


def test_it_is_there_after_a_restart_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    clock, place = Clock(), folder(tmp_path)
    history = History(place, clock)
    note(history)
    history.flush()
    assert History(place, clock).since(clock.now).tasks == 1
    assert stat.S_IMODE((place / FILE).stat().st_mode) == 0o600


def test_hours_are_told_oldest_first_and_old_ones_go(tmp_path: Path) -> None:
    clock, place = Clock(), folder(tmp_path)
    history = History(place, clock)
    note(history, seconds=60.0)
    clock.now += HOUR_S
    note(history, seconds=30.0)
    assert history.hours(3) == [0.0, 60.0, 30.0]
    clock.now += (KEPT_DAYS + 1) * 24 * HOUR_S
    note(history)
    assert history.since(0.0).tasks == 1


def test_a_clock_that_goes_back_loses_nothing(tmp_path: Path) -> None:
    clock = Clock()
    history = History(folder(tmp_path), clock)
    note(history)
    clock.now -= 5 * HOUR_S
    note(history)
    assert history.since(clock.now).tasks == 2


@pytest.mark.skipif(os.getuid() != 0 and not os.access("/dev/full", os.W_OK), reason="needs /dev/full")
def test_a_full_disk_costs_nothing_but_time(tmp_path: Path) -> None:
    clock, place = Clock(), folder(tmp_path)
    history = History(place, clock)
    (place / FILE).symlink_to("/dev/full")
    note(history)
    history.flush()
    assert history.jobs_since(0.0) == []
    (place / FILE).unlink()
    history.flush()
    assert history.since(0.0).tasks == 1


def test_names_of_strangers_are_cleaned(tmp_path: Path) -> None:
    clock = Clock()
    history = History(folder(tmp_path), clock)
    history.note(job="j", submitter="e\x1b[31mva", name="a\u202eb", kind="kernel", seconds=1.0, cores=1)
    (ran,) = history.jobs_since(0.0)
    assert "\x1b" not in ran.submitter
    assert "\u202e" not in ran.name


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "1 h 0 min"), (11_999, "3 h 20 min")]
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_energy_is_called_an_estimate() -> None:
    assert [energy(value) for value in (0.04, 12.3, 1530)] == ["about 0.0 Wh", "about 12 Wh", "about 1.5 kWh"]


@given(st.lists(st.floats(-1, 1e6), max_size=30))
def test_the_plot_has_one_sign_an_hour(values: list[float]) -> None:
    assert len(bars(values, 3600.0)) == len(values)
    assert bars([0.0, 1.0, 3600.0], 3600.0) == " ▁█"
