"""What the documents say is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moregpu.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    named = set(
        re.findall(
            r"`((?:moregpu\w*|kernels|tests|benchmarks|docs|assets|installers|\.ci)/[\w./-]*)`", document.read_text()
        )
    )
    placeholders = {path for path in named if re.search(r"\b[A-Z]{3,}\.\w+$", path) and "README" not in path}
    missing = sorted(path for path in named - placeholders if not (ROOT / path).exists())
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    missing = sorted(link for link in links if not (document.parent / link).exists())
    assert missing == []


def test_the_tour_visits_every_part_of_the_pool() -> None:
    tour = (ROOT / "docs" / "architecture.md").read_text()
    packages = [path.parent for path in (ROOT / "moregpu").glob("*/__init__.py")]
    missed = [package.name for package in packages if f"moregpu/{package.name}/" not in tour]
    assert missed == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_a_document_shows_exists(document: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(), re.DOTALL)
    typed = [line.split() for block in blocks for line in block.splitlines() if line.startswith("moregpu ")]
    assert {words[1] for words in typed} <= set(COMMANDS)


def test_the_first_commands_of_the_readme_set_themselves_up() -> None:
    readme = (ROOT / "README.md").read_text()
    block = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)[0]
    assert [line.split("#")[0].strip() for line in block.splitlines()] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make (\w+)`", readme):
        assert f"\n{target}:" in makefile
