"""A skip for a missing part is a failure where all parts are required."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPING = """
import pytest

def test_in_a_test():
    pytest.skip("missing: a keyring; mend: apt-get install gnome-keyring")

def test_for_another_system():
    pytest.skip("only on Windows")
"""
SKIPPING_MODULE = """
import pytest

pytest.importorskip("there_is_no_such_module")
"""


def run_with(folder: Path, required: str) -> str:
    shutil.copy(Path(__file__).parent / "conftest.py", folder)
    (folder / "test_skipping.py").write_text(SKIPPING)
    (folder / "test_whole_module.py").write_text(SKIPPING_MODULE)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-ra",
            "--continue-on-collection-errors",
            "-pno:cacheprovider",
            "-pno:xdist",
            folder,
        ],
        cwd=folder,
        env=os.environ | {"MOREGPU_REQUIRE_ALL": required, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.slow
def test_a_skip_is_printed_with_its_reason_and_how_to_mend_it(tmp_path: Path) -> None:
    output = run_with(tmp_path, "0")
    assert "3 skipped" in output
    assert "mend: apt-get install gnome-keyring" in output


@pytest.mark.slow
def test_a_skip_for_a_missing_part_fails_where_all_is_required(tmp_path: Path) -> None:
    output = run_with(tmp_path, "1")
    assert "1 failed, 1 skipped, 1 error" in output
    assert "mend: apt-get install gnome-keyring" in output


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shell")
def test_ci_requires_all_parts() -> None:
    script = (Path(__file__).parent.parent / ".ci" / "run").read_text()
    assert "MOREGPU_REQUIRE_ALL=1 make test" in script
