"""Tables for people, on terminals of any width."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moregpu.cli import show

HINT = "no sandbox holds here; make a user with `useradd --system moregpu-jobs` → docs/security.md says what is needed"
ROWS = [["✓", "version", "2.0"], ["✗", "functions here", HINT]]


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, *, whole: bool
) -> list[str]:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(show.typer, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    monkeypatch.setattr(show.typer, "style", lambda text, **_: text)
    show.print_table(["", "WHAT", "FOUND"], ROWS, "", longest=1000, whole=whole)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_whole_table_says_all_of_its_last_column_within_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(monkeypatch, capsys, columns, whole=True)
    assert all(len(line) <= columns for line in lines)
    assert " ".join(" ".join(lines[2:]).split()) == f"✗ functions here {HINT}"
    assert all(line.startswith(" " * 19) for line in lines[3:])


def test_any_other_table_is_cut_at_the_edge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(monkeypatch, capsys, 60, whole=False)
    assert len(lines) == 3 and len(lines[2]) == 60 and lines[2].endswith("…")


@given(st.text("ab -/", min_size=1, max_size=80), st.integers(0, 60), st.integers(1, 60))
def test_nothing_but_space_is_lost_by_going_on_in_the_next_line(text: str, indent: int, limit: int) -> None:
    line = ("x" * indent + text).rstrip()
    parts = show._wrapped(line, indent, limit)
    assert "".join("".join(parts).split()) == "".join(line.split())
