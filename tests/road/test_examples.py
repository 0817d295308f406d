"""Every example runs as it stands, with nothing but its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.wire.api import TokenRequest

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(road: LoopbackPool, tmp_path: Path, example: Path) -> None:
    with road.connect() as pool:
        line = pool.create_token(TokenRequest(label=example.stem)).line
    environment = os.environ | {
        "MOREGPU_ADMIN_TOKEN": line,
        "MOREGPU_BASE": f"https://127.0.0.1:{road.port}",
        "MOREGPU_HOME": str(tmp_path),
    }
    shown = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip()
    assert shown.stderr == ""
