"""What loads when: the pure layers know no framework, the command line draws nothing until it must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "moregpu_tui"
PURE = [
    f"moregpu_tui.{layer}.{path.stem}"
    for layer in ("state", "present")
    for path in sorted((HERE / layer).glob("*.py"))
    if path.stem != "__init__"
]


def loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_state_and_present_load_no_framework_and_no_loop() -> None:
    loaded = loaded_by("\n".join(f"import {name}" for name in PURE))
    assert not loaded & {"textual", "asyncio", "websockets", "http.client", "numpy"}


def test_the_command_line_loads_no_textual() -> None:
    assert "textual" not in loaded_by("import moregpu_tui.cli; moregpu_tui.cli.parse(['--demo'])")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--demo"], "no terminal"),
        (["--demo", "--connect", "https://somewhere:1"], "a pool of its own"),
        (["--plain", "--replay", "/nowhere/at/all"], "cannot be read"),
    ],
)
def test_what_cannot_be_is_one_line_and_an_exit_status(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moregpu_tui", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
