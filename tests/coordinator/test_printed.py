"""What functions printed is kept bounded, in order, and says what it leaves out."""

from __future__ import annotations

from moregpu.coordinator.printed import BURST, MAX_JOBS, MAX_LINE, MAX_LINES, Printed


def texts(printed: Printed, job: str = "j-1", start: int = 0) -> list[str]:
    return [line.text for line in printed.after(job, start)]


def test_lines_come_back_in_order_from_where_one_left_off() -> None:
    printed = Printed()
    printed.add("j-1", 0, "anna", ["one", "two"], 1.0)
    printed.add("j-1", 1, "ben", ["three"], 2.0)
    assert texts(printed) == ["one", "two", "three"]
    assert texts(printed, start=2) == ["three"]
    assert texts(printed, start=3) == []
    assert [(line.task, line.worker, line.number) for line in printed.after("j-1", 1)] == [
        (0, "anna", 1),
        (1, "ben", 2),
    ]
    assert texts(printed, "j-2") == []


def test_sixty_megabytes_of_output_stay_bounded_and_what_is_left_out_is_said() -> None:
    printed = Printed()
    for second in range(60):
        printed.add("j-1", 0, "anna", ["x" * 10_000] * 2_000, 1.0 + second)
    lines = texts(printed)
    assert len(lines) == MAX_LINES
    assert max(map(len, lines)) == MAX_LINE
    assert any("lines are left out" in line for line in lines)


def test_a_job_that_prints_little_loses_nothing() -> None:
    printed = Printed()
    for second in range(1000):
        printed.add("j-1", 0, "anna", [f"step {second}"], float(second + 1))
    assert texts(printed) == [f"step {second}" for second in range(1000)]


def test_a_burst_is_kept() -> None:
    printed = Printed()
    printed.add("j-1", 0, "anna", [str(line) for line in range(BURST)], 1.0)
    assert len(texts(printed)) == BURST


def test_the_job_that_printed_longest_ago_goes_unless_somebody_listens() -> None:
    printed = Printed()
    heard: list[int] = []
    stop = printed.listen("j-0", lambda: heard.append(1))
    for job in range(MAX_JOBS + 10):
        printed.add(f"j-{job}", 0, "anna", ["line"], 1.0)
    assert texts(printed, "j-0") == ["line"]
    assert texts(printed, "j-1") == []
    assert heard == [1]
    stop()
    printed.add("j-0", 0, "anna", ["another"], 2.0)
    assert heard == [1]
