"""Pages for operators: what they quote is what the program says, and what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moregpu.coordinator.api.table import NATIVE

ROOT = Path(__file__).parents[2]
PAGES = ("docs/http.md", "docs/operations.md", "docs/security.md", "docs/troubleshooting.md", "SECURITY.md")
SOURCE = " ".join(
    re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8")) for path in (ROOT / "moregpu").rglob("*.py")
)
"""With strings that are written over several lines joined."""


def test_messages_that_are_quoted_are_messages() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    cells = re.findall(r"(?m)^\| (?:\d{3} |failed: )?`([^`]+)`", page)
    pieces = {piece.strip(" ;:'") for cell in cells for piece in cell.split("…")}
    known = {"CERTIFICATE_VERIFY_FAILED"}  # Python's own
    missing = [piece for piece in pieces - known if len(piece) > 8 and piece.lower() not in SOURCE.lower()]
    assert missing == []
    assert len(pieces) > 15


@pytest.mark.parametrize("page", PAGES)
def test_calls_that_are_named_exist(page: str) -> None:
    doors = {(door.verb, re.sub(r"\{[^}]+\}", "{}", door.path)) for door in NATIVE}
    named = re.findall(r"`(GET|POST|PUT|PATCH|DELETE|HEAD) (/v1/[^\s`?]*)", (ROOT / page).read_text())
    missing = [(verb, path) for verb, path in named if (verb, re.sub(r"\{[^}]+\}", "{}", path)) not in doors]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_options_of_serve_that_are_named_exist(page: str) -> None:
    options = set(re.findall(r"moregpu serve(?: [^`\n]*?)?(--[a-z-]+)", (ROOT / page).read_text()))
    known = (ROOT / "moregpu" / "cli" / "serve.py").read_text()
    for option in options - {"--help"}:
        assert option in known or option.removeprefix("--").replace("-", "_") + ":" in known, option
