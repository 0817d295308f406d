"""Output as people get it: whole lines, a few of them, and how many more there were."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moregpu.wire.printed import LINE_CHARACTERS, TASK_BURST_LINES, TASK_BYTES, TASK_LINES_PER_S
from moregpu.worker.functions.printed import PROGRESS_S, TaskLines


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=40), max_size=30), st.data())
def test_lines_come_whole_however_they_are_read(lines: list[str], data: st.DataObject) -> None:
    printed = TaskLines(Clock())
    text = "\n".join(lines).encode()
    got: list[str] = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        got += printed.take(text[:size])
        text = text[size:]
    got += printed.end()
    assert got == (lines if lines and lines[-1] else lines[:-1])


def test_too_many_lines_are_counted_and_left_out() -> None:
    clock = Clock()
    printed = TaskLines(clock)
    assert len(printed.take(b"x\n" * (TASK_BURST_LINES + 70))) == TASK_BURST_LINES
    clock.now = 0.1
    assert len(printed.take(b"y\n" * 1000)) == TASK_LINES_PER_S / 10
    (last,) = printed.end()
    assert str(70 + 1000 - TASK_LINES_PER_S // 10) in last


def test_one_task_s_noise_is_not_the_next_one_s() -> None:
    printed = TaskLines(Clock())
    printed.take(b"x\n" * (TASK_BURST_LINES + 1) + b"unfinished")
    printed.begin()
    assert printed.take(b"next\n") == ["next"]
    assert printed.end() == []


def test_long_lines_are_cut_and_bytes_are_bounded() -> None:
    printed = TaskLines(Clock())
    (line,) = printed.take(b"z" * 10 * LINE_CHARACTERS + b"\n")
    assert len(line) <= LINE_CHARACTERS + 2
    total = sum(len(line) for _ in range(300) for line in printed.take(b"w" * LINE_CHARACTERS * 4 + b"\n"))
    assert total <= TASK_BYTES


def test_a_line_without_end_takes_no_memory() -> None:
    printed = TaskLines(Clock())
    for _ in range(100):
        assert printed.take(b"q" * 65536) == []
    assert sum(map(len, printed.end())) <= LINE_CHARACTERS + 2


def test_how_far_a_progress_bar_is_can_be_read_before_it_is_done() -> None:
    clock = Clock()
    printed = TaskLines(clock)
    got: list[tuple[float, str]] = []
    for tick in range(400):
        clock.now = tick / 4
        got += [(clock.now, line) for line in printed.take(f"\r{tick:3}/400 |{'#' * 40}|".encode())]
    clock.now += 0.25
    got += [(clock.now, line) for line in printed.take(b"\n")]
    assert [line[:7] for _, line in got[:2]] == ["  0/400", " 20/400"]
    assert got[-1][1].startswith("399/400")
    assert all(line.count("|") == 2 for _, line in got)
    between = [later - at for (at, _), (later, _) in pairwise(got[:-1])]
    assert set(between) == {PROGRESS_S}
    assert printed.end() == []


def test_a_bar_that_wipes_itself_leaves_nothing_before_the_next_line() -> None:
    printed = TaskLines(Clock())
    assert printed.take(b"\r 50 %\r100 %") == [" 50 %"]
    assert printed.take(b"\r      \rdone\n") == ["done"]
    assert printed.take(b"\rat the end\r") == []
    assert printed.end() == ["at the end"]


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=40), max_size=30), st.data())
def test_lines_that_end_as_on_windows_come_once_however_they_are_read(lines: list[str], data: st.DataObject) -> None:
    printed = TaskLines(Clock())
    text = "".join(line + "\r\n" for line in lines).encode()
    got: list[str] = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        got += printed.take(text[:size])
        text = text[size:]
    assert [*got, *printed.end()] == lines
