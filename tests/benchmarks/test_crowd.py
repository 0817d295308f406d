"""Light workers are workers: let in, proven, given work, checked, and back after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.coordinator import TINY
from benchmarks.crowd import Crowd
from moregpu.cli.loopback import LoopbackPool


@pytest.mark.slow
def test_light_workers_compute_what_is_checked_and_come_back_after_a_restart(tmp_path: Path) -> None:
    with LoopbackPool(tmp_path / "home") as local:
        local.start_coordinator()
        with Crowd(local, workers=3, processes=2) as crowd:
            crowd.wait(lambda said: said.online == 3, 60)
            with local.connect() as pool:
                job = pool.submit_job(TINY, wait_s=30)
                job.result()
                assert job.evidence()["recomputed"] == 1
            first = crowd.wait(lambda said: said.accepted >= 1, 30).last_welcome
            local.kill_coordinator()
            local.start_coordinator()
            crowd.wait(lambda said: said.online == 3 and said.last_welcome > first, 60)
