"""docs/http.md names every door with its role, and each of its commands works against a live pool."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.coordinator.api.table import COMPAT, NATIVE, SOCKETS

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()


def test_it_lists_every_call_with_its_role() -> None:
    listed = dict(re.findall(r"(?m)^\| `([A-Z]+ \S+)` \| ([a-z, ]+) \|", PAGE))
    roles = {"bearer": "submitter, worker"}
    assert listed == {
        f"{door.verb} {door.path.replace(':path}', '}')}": roles.get(door.access, door.access) for door in NATIVE
    }
    assert all(f"`{door.path}`" in PAGE for door in SOCKETS)


def test_it_names_every_call_of_the_old_api() -> None:
    for door in COMPAT:
        assert door.path.replace("{rest:path}", "*") in PAGE.replace("\n", " "), door.path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="missing: curl; mend: apt-get install curl")
def test_every_command_works(tmp_path: Path) -> None:
    blocks = re.findall(r"(?s)```sh\n(.*?)```", PAGE)
    assert len(blocks) >= 7
    # A refusal must fail the script: curl says nothing of it by itself.
    script = 'set -euo pipefail\ncurl() { command curl --fail-with-body --max-time 60 "$@"; }\n' + "\n".join(blocks)
    with LoopbackPool(tmp_path / "home") as local:
        local.start_coordinator()
        local.start_worker("ann")
        local.wait_for_workers("ann")
        access = local.access()
        work = tmp_path / "work"
        work.mkdir()
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=work,
            env={"PATH": os.environ["PATH"], "BASE": f"https://{access.addresses[0]}", "TOKEN": access.token},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (work / "result.npy").read_bytes()[-8:] == b"\0\0\0\0\0\0\0\x40"
    assert '"ok": true' in done.stdout and '"verified": true' in done.stdout
