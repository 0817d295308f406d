"""The page for operators names tests that exist, for every promise."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "durability.md").read_text()


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 20
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


def test_every_promise_names_what_shows_it() -> None:
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| promise", "| what", "| row", "| |"))
    ]
    promises = [row for row in rows if not re.match(r"\| I\d \|", row)]
    assert len(promises) > 20
    for row in promises:
        assert re.search(r"`tests/|\bI\d\b", row.rsplit("|", 2)[1]), row


def test_every_invariant_has_its_predicates() -> None:
    source = (ROOT / "tests" / "simulation" / "invariants.py").read_text()
    source += (ROOT / "tests" / "simulation" / "rest.py").read_text()
    for number in range(1, 9):
        assert f"| I{number} |" in PAGE
        assert f'broken(f"{number}: ' in source or f'return f"{number}: ' in source, number
