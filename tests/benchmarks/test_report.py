"""What a benchmark prints fits a terminal, says which bars were missed, and decides the exit status."""

from __future__ import annotations

import json

import pytest

from benchmarks import memory
from benchmarks.report import Result, result, run

LONG = "a remark that is much longer than what is left of a line beside a name, a value, a unit and a bar"


def measured(workers: int = 3) -> list[Result]:
    return [
        result(
            f"tiny jobs a second, {workers} submitters over HTTP", [173.1] * 3, "jobs/s", "higher", 1000.0, note=LONG
        ),
        Result(name="kernels on a GPU", value=float("nan"), unit="s", skipped="there is no adapter [here]"),
        Result(name="product", value=0.1, unit="s", better="lower", bar=0.2, peers={"another": 0.3}),
    ]


def test_the_table_fits_80_columns_and_tells_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run("Title", measured, [])
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()) <= 80
    for told in ("missed", "ok", "no adapter [here]", "another: 0.3", "≥ 1000", "0.1", "a random read:"):
        assert told in printed


def test_numbers_become_options_and_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    run("Title", measured, ["--json", "--workers", "7"], workers=3)
    names = [one["name"] for one in json.loads(capsys.readouterr().out)["results"]]
    assert names[0] == "tiny jobs a second, 7 submitters over HTTP"


def test_a_missed_bar_fails_the_check_and_a_skipped_part_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("Title", measured, ["--check"])
    assert ended.value.code == 1
    run("Title", lambda: measured()[1:], ["--check"])
    assert "kernels" in capsys.readouterr().out


def test_nothing_that_is_no_number_passes_a_bar() -> None:
    assert not result("x", [float("nan")], "s", "lower", 1.0).ok
    assert not result("x", [float("nan")], "s", "higher", 1.0).ok


def test_a_walk_through_memory_visits_all_of_it_once() -> None:
    after = memory.circle(64)
    seen: list[int] = []
    at = 0
    while not seen or at != 0:
        seen.append(at)
        at = after[at]
    assert len(set(seen)) == len(seen) == 64 * 1024 // memory.LINE_BYTES
