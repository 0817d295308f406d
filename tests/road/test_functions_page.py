"""The page about functions is one program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool

from .test_pages import blocks, run


def test_the_page_about_functions_is_one_program(functions: LoopbackPool, tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks("functions.md", "python")))
    shown: subprocess.CompletedProcess[str] = run([sys.executable, "-W", "error", str(program)], functions, tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "49\n" in shown.stdout
    assert "Point(x=2.0, y=1.0)" in shown.stdout
    assert "[1, 10, 100]" in shown.stdout
    assert "'rate': 0.01, 'layers': 1" in shown.stdout
    assert "10000 line 0" in shown.stdout
