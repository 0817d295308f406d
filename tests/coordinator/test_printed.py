"""What functions printed is kept bounded, in order, and says what it leaves out."""

from __future__ import annotations

from moregpu.coordinator.printed import MAX_JOBS, JobLines
from moregpu.wire.printed import JOB_BURST_LINES, JOB_LINES, LINE_CHARACTERS


def texts(printed: JobLines, job: str = "j-1", start: int = 0) -> list[str]:
    return [line.text for line in printed.after(job, start)]


def test_lines_come_back_in_order_from_where_one_left_off() -> None:
    printed = JobLines()
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
    printed = JobLines()
    for second in range(60):
        printed.add("j-1", 0, "anna", ["x" * 10_000] * 2_000, 1.0 + second)
    lines = texts(printed)
    assert len(lines) == JOB_LINES
    assert max(map(len, lines)) == LINE_CHARACTERS
    assert any("are left out" in line for line in lines)


def test_a_job_that_prints_little_loses_nothing() -> None:
    printed = JobLines()
    for second in range(1000):
        printed.add("j-1", 0, "anna", [f"step {second}"], float(second + 1))
    assert texts(printed) == [f"step {second}" for second in range(1000)]


def test_a_burst_is_kept() -> None:
    printed = JobLines()
    printed.add("j-1", 0, "anna", [str(line) for line in range(JOB_BURST_LINES)], 1.0)
    assert len(texts(printed)) == JOB_BURST_LINES


def test_the_job_that_printed_longest_ago_goes_unless_somebody_listens() -> None:
    printed = JobLines()
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
