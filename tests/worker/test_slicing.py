"""The slicer obeys duty, pauses and stops between slices. The clock is the test's: nothing here waits."""

from __future__ import annotations

import pytest

from moregpu.worker.slicing import BEAT_S, SLICE_S, DutySlicer, OutOfTime
from moregpu.workloads.protocol import TaskStopped


class World:
    """A clock that only work and rest move, and an agent that speaks at given times."""

    def __init__(self, duty: float = 1.0):
        self.now = 0.0
        self.worked = 0.0
        self.rests: list[float] = []
        self.said: list[tuple[float, str]] = []
        self.beats: list[tuple[float | None, bool]] = []
        self.slicer = DutySlicer(
            self.listen, lambda share, paused: self.beats.append((share, paused)), lambda: self.now
        )
        self.slicer.set_duty(duty)

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds

    def listen(self, timeout_s: float | None) -> None:
        """Wait until something is said, at most so long."""
        assert timeout_s is not None
        until = self.now + timeout_s
        if self.said and self.said[0][0] <= until:
            at, what = self.said.pop(0)
            until = max(self.now, at)
            if what == "stop":
                self.slicer.stop()
            else:
                self.slicer.set_duty(float(what))
        if timeout_s:
            self.rests.append(until - self.now)
        self.now = until


def run(world: World, slices: int, seconds: float = SLICE_S) -> None:
    for index in range(slices):
        world.work(seconds)
        world.slicer.pause_point((index + 1) / slices)


@pytest.mark.parametrize("duty", [0.05, 0.25, 0.5, 0.85])
def test_the_share_of_work_is_the_duty(duty: float) -> None:
    world = World(duty)
    world.slicer.begin(None)
    run(world, 200)
    assert world.worked / world.now == pytest.approx(duty, abs=0.01)


def test_at_full_duty_it_never_rests() -> None:
    world = World()
    world.slicer.begin(None)
    run(world, 100)
    assert world.rests == []


def test_no_work_is_done_between_a_pause_and_the_end_of_the_pause() -> None:
    world = World()
    world.slicer.begin(None)
    world.said = [(0.1, "0"), (7.0, "1")]
    run(world, 10)
    assert world.worked == pytest.approx(10 * SLICE_S)
    assert world.now == pytest.approx(7.0 + (10 - 4) * SLICE_S, abs=1e-9), "one slice finished after the pause came"
    assert (0.4, True) in world.beats


def test_while_paused_it_goes_on_giving_life_signs() -> None:
    world = World()
    world.slicer.begin(None)
    world.said = [(0.0, "0"), (60.0, "1")]
    run(world, 1)
    assert len(world.beats) >= 60 / BEAT_S


def test_while_working_it_gives_a_life_sign_every_second() -> None:
    world = World()
    world.slicer.begin(None)
    run(world, 200, 0.05)
    assert len(world.beats) == pytest.approx(10 / BEAT_S, abs=1)
    assert all(not paused for _, paused in world.beats)


def test_a_stop_ends_the_task_at_the_next_pause_point() -> None:
    world = World()
    world.slicer.begin(None)
    world.said = [(0.05, "stop")]
    with pytest.raises(TaskStopped):
        run(world, 100)
    assert world.worked <= 0.05 + SLICE_S


def test_a_stop_during_a_pause_ends_the_task_at_once() -> None:
    world = World()
    world.slicer.begin(None)
    world.said = [(0.0, "0"), (5.0, "stop")]
    with pytest.raises(TaskStopped):
        run(world, 100)
    assert world.worked == SLICE_S
    assert world.now == 5.0


def test_a_task_given_during_a_pause_does_not_begin() -> None:
    world = World(0.0)
    world.said = [(30.0, "1")]
    world.slicer.begin(None)
    assert world.now == 30.0


def test_the_time_limit_counts_work_and_not_rests_or_pauses() -> None:
    world = World(0.5)
    world.slicer.begin(0.3)
    world.said = [(0.1, "0"), (100.0, "0.5")]
    with pytest.raises(OutOfTime):
        run(world, 100)
    assert world.worked == pytest.approx(0.3 + SLICE_S, abs=SLICE_S)
    assert world.now > 100.0


def test_what_one_task_owes_is_paid_before_the_next_begins() -> None:
    world = World(0.5)
    world.slicer.begin(None)
    world.work(0.04)
    assert world.slicer.end() == pytest.approx(0.04)
    world.slicer.begin(None)
    assert world.now == pytest.approx(0.08)


def test_idling_between_two_tasks_pays_what_the_first_owes() -> None:
    world = World(0.5)
    world.slicer.begin(None)
    world.work(0.04)
    world.slicer.end()
    world.now += 1.0
    world.slicer.begin(None)
    assert world.now == pytest.approx(1.04)
    assert world.rests == []
