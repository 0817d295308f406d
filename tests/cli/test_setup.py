"""`moregpu setup`: facts and the next line; asked on a terminal, told at once where nobody can answer."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from moregpu.cli.setup import PARTS, Machine, next_steps, rows_of

BARE = Machine(
    name="desk", system="Linux", cores=8, memory_bytes=16 << 30, gpus=[], gpu_note="the CPU (no GPU here)",
    sandbox="none", sandbox_note="bubblewrap is not installed", has_joined=False, holds_pool=False,
)  # fmt: skip
RICH = replace(BARE, gpus=["RTX 4090, Vulkan"], gpu_note="", sandbox="bubblewrap", sandbox_note="", has_joined=True)


def lines(machine: Machine, part: Any) -> list[str]:
    return [step.line for step in next_steps(machine, part)]


def test_each_part_has_its_lines() -> None:
    assert lines(BARE, "coordinator") == ["moregpu serve --host 0.0.0.0", "moregpu invite"]
    assert lines(BARE, "both") == ["moregpu serve --host 0.0.0.0 --worker", "moregpu invite"]
    assert lines(BARE, "worker") == ["moregpu join"]
    assert lines(RICH, "worker") == ["moregpu join", "moregpu join --allow functions=NAMES"]


def test_what_is_missing_is_said_with_its_reason() -> None:
    told = " ".join(cell for row in rows_of(BARE) for cell in row)
    assert "no GPU here" in told
    assert "stay off: no sandbox holds here (bubblewrap is not installed)" in told
    assert "16.0 GiB" in told
    told = " ".join(cell for row in rows_of(RICH) for cell in row)
    assert "RTX 4090" in told
    assert "is a worker already" in told


def command(home: Path, *options: str, **how: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MOREGPU_HOME": str(home), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "moregpu", "setup", *options],
        env=environment, capture_output=True, text=True, timeout=60, check=False, **how,
    )  # fmt: skip


@pytest.mark.slow
def test_a_program_gets_the_facts_and_nothing_is_asked_or_changed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = command(home, "--json", stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["machine"]["cores"] >= 1
    assert set(told["next"]) == set(PARTS)
    assert not home.exists() or not any(home.rglob("*.db"))


@pytest.mark.slow
def test_a_person_is_asked_and_told_the_one_next_line(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"printer\nwork\n")
        done = command(tmp_path / "home", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "coordinator, worker or both" in done.stdout
    assert "moregpu join" in done.stdout.partition("Next:")[2]
    assert "moregpu serve" not in done.stdout
