"""The README's Python runs as it stands there, against a real pool."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from moregpu.cli.loopback import LoopbackPool
from moregpu.wire.api import TokenRequest

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_snippet_of_the_readme_runs_with_a_submitters_line(road: LoopbackPool, tmp_path: Path) -> None:
    with road.connect() as pool:
        line = pool.create_token(TokenRequest(label="reader")).line
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    shown = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        env=os.environ | {"MOREGPU_ADMIN_TOKEN": line, "MOREGPU_HOME": str(tmp_path / "empty")},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert shown.returncode == 0, shown.stderr
    assert "recomputed" in shown.stdout
    assert shown.stdout.splitlines()[-1] in ("anna", "ben")
