"""docs/cli.md and completion are made from the commands, and stay so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.cli import reference
from moregpu.cli.completion import words
from moregpu.cli.main import COMMANDS

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"


def moregpu(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "moregpu", *arguments], capture_output=True, text=True, check=True
    ).stdout


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == reference.page(), "python -m moregpu.cli.reference > docs/cli.md"


def test_every_command_has_a_sentence_and_every_option_one() -> None:
    for command in reference.commands():
        assert command.help.endswith((".", "`", "-o z.npy")) or "\n" in command.help, command.words
        assert all(help for _, help, _ in command.arguments), command.words
        assert all(help for _, _, help, _ in command.options), command.words


def test_every_exit_code_is_told() -> None:
    assert reference.exit_codes() <= set(reference.MEANINGS)


def test_completion_knows_every_command_and_option() -> None:
    table = words()
    assert set(table[""]) == set(COMMANDS)
    assert {"pause", "resume", "drain", "approve", "set", "remove"} <= set(table["worker"])
    assert "--ceiling" in table["worker set"]
    assert {"--profile", "--json", "matmul", "--help"} <= set(table["submit"]) | {"matmul"}


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (("wor",), {"worker", "workers"}),
        (("worker", "pa"), {"pause"}),
        (("worker", "set", "--ce"), {"--ceiling"}),
        (("jobs", "--st"), {"--state"}),
        (("workers", "--json", "--pro"), {"--profile"}),
        (("pool", "rotate", "fi"), {"finish"}),
        (("completion", "po"), {"powershell"}),
        (("worker", ""), {"pause", "resume", "drain", "approve", "set", "remove"}),  # and no file
        (("submit", "relu", "two"), {"two words.npy"}),
    ],
)
def test_bash_completes(tmp_path: Path, typed: tuple[str, ...], wanted: set[str]) -> None:
    script = tmp_path / "moregpu.bash"
    script.write_text(moregpu("completion", "bash"))
    (tmp_path / "two words.npy").touch()
    line = " ".join(f"'{word}'" for word in ("moregpu", *typed))
    code = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(typed)}; _moregpu; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    shown = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert {word for word in shown.stdout.splitlines() if word not in ("", script.name)} == wanted, shown.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish", "powershell"])
def test_other_shells_read_their_script(tmp_path: Path, shell: str) -> None:
    script = tmp_path / "script"
    script.write_text(moregpu("completion", shell))
    assert "worker" in script.read_text()
    program = shutil.which(shell if shell != "powershell" else "pwsh")
    if program is not None and shell != "powershell":
        subprocess.run([program, "-n", str(script)], check=True)
