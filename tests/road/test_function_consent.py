"""A worker whose owner lets functions in, but where no sandbox holds: they stay off, and the owner is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool


@pytest.mark.slow
def test_without_a_sandbox_functions_stay_off_and_the_owner_is_told_why(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this test needs a worker of root's, which has nobody to run functions as")
    with LoopbackPool(tmp_path / "home", {"MOREGPU_FUNCTIONS_USER": "surely-nobody-here"}) as local:
        local.start_coordinator()
        local.start_worker("anna", "--allow", "functions")
        (anna,) = local.wait_for_workers()
        assert "function" not in anna.kinds
        assert anna.isolation == "none"
        log = local.home / "state" / "worker-anna" / "logs" / "worker.log"
        assert "functions stay off" in log.read_text()
        assert "useradd" in log.read_text()
