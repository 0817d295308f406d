"""The coordinator's disk is full while a worker computes: rows 16 and 24, over real processes and a real small disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.errors import OutOfSpace
from moregpu.jobs import JobState
from tests.faults.rig import SLOWED, Rig, until

DISK_BYTES = 64 << 20


@pytest.fixture
def small_disk(tmp_path: Path, local: LoopbackPool) -> Iterator[Path]:
    """A disk of 64 MiB where the coordinator keeps its state."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("missing: the right to mount a small disk; mend: run as root on Linux")
    local.state.mkdir(parents=True, mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(local.state)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"missing: mounts in this container ({mounted.stderr.strip()}); mend: run with CAP_SYS_ADMIN")
    yield local.state
    local.stop()
    subprocess.run(["umount", "--lazy", str(local.state)], check=True)


def test_a_result_that_finds_the_disk_full_is_kept_by_its_worker_and_counts_once_there_is_room(
    small_disk: Path, rig: Rig
) -> None:
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    filled = fill(small_disk)
    with pytest.raises(OutOfSpace):
        rig.product(seed=2)
    until(lambda: refusals(rig) >= 2)
    assert product.handle.status().state is JobState.RUNNING
    filled.unlink()
    product.is_right_and_once()
    rig.product(seed=3, size=64).is_right_and_once()


def test_a_coordinator_that_dies_on_a_full_disk_starts_on_it_and_goes_on_when_there_is_room(
    small_disk: Path, rig: Rig
) -> None:
    anna = rig.start_worker("anna", *SLOWED)
    product = rig.product()
    product.until_leased(anna)
    filled = fill(small_disk)
    until(lambda: refusals(rig) >= 2)
    rig.local.kill_coordinator()
    filled.unlink()
    rig.local.start_coordinator()
    product.is_right_and_once()


def fill(disk: Path) -> Path:
    """Write until nothing more goes in; returns the file to delete."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            piece = bytes(size)
            try:
                while file.write(piece) == size:
                    pass
            except OSError:
                continue
    return ballast


def refusals(rig: Rig) -> int:
    """How often something could not be kept, as the logs of the coordinator and of its worker tell."""
    said = (rig.local.home / "logs" / "coordinator.log").read_text().count("a commit failed and was undone")
    for log in rig.local.home.glob("state/worker-*/logs/worker.log"):
        said += log.read_text().count("a blob has to wait")
    return said
