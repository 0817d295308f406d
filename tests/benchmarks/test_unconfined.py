"""The functions' benchmark reads itself without a sandbox, too: on a machine where, for it, none can be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.report import ROOT

_LEVEL = """
import asyncio, pathlib, sys
from benchmarks.unconfined import confine_nothing
from moregpu.worker.functions.probe import find_level
if sys.argv[2] == "confine nothing":
    confine_nothing()
print(asyncio.run(find_level(pathlib.Path(sys.argv[1]))).isolation)
"""


def level(folder: Path, what: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _LEVEL, str(folder), what],
        cwd=ROOT,
        env={**os.environ, "MOREGPU_FUNCTIONS_USER": "65400"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


def test_what_is_started_there_finds_no_sandbox_and_nobody_else_does_without(tmp_path: Path) -> None:
    assert level(tmp_path / "one", "confine nothing") == "none"
    assert level(tmp_path / "two", "nothing else") in ("bubblewrap", "landlock")
