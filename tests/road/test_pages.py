"""The pages for users are run as they stand: Python blocks as one program, commands in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool

DOCS = Path(__file__).parent.parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def run(words: list[str], road: LoopbackPool, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"MOREGPU_HOME": str(road.home), "MOREGPU_SECRETS": "file"}
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=110)


def run_commands(page: str, road: LoopbackPool, folder: Path) -> int:
    count = 0
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "moregpu"
            shown = run([sys.executable, "-m", *words], road, folder)
            assert shown.returncode == 0, f"{line}: {shown.stderr or shown.stdout}"
            count += 1
    return count


def test_the_page_of_the_sdk_is_one_program(road: LoopbackPool, tmp_path: Path) -> None:
    shown = run([sys.executable, "-W", "error", "-c", "\n".join(blocks("sdk.md", "python"))], road, tmp_path)
    assert shown.returncode == 0, shown.stderr


def test_the_quickstart_leads_to_a_product(road: LoopbackPool, tmp_path: Path) -> None:
    shown = run([sys.executable, "-W", "error", "-c", "\n".join(blocks("quickstart.md", "python"))], road, tmp_path)
    assert shown.returncode == 0, shown.stderr
    (job,) = blocks("quickstart.md", "toml")
    (tmp_path / "job.toml").write_text(job)
    assert run_commands("quickstart.md", road, tmp_path) >= 8


@pytest.mark.timeout(300)
def test_the_admins_page_runs(road: LoopbackPool, tmp_path: Path) -> None:
    with road.connect() as pool:
        name = pool.info().name
    try:
        assert run_commands("admin.md", road, tmp_path) >= 15
    finally:
        assert road.run("pool", "rename", name).returncode == 0
