"""A disk that is really full: a tiny file system in memory, filled to the last block."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.coordinator.store.sqlite import SqliteStore
from moregpu.errors import OutOfSpace
from moregpu.jobs import Tensor
from moregpu.workloads.kernel.spec import KernelSpec
from tests.coordinator.store import rows
from tests.coordinator.store.conftest import WRAP_KEY


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    except FileNotFoundError:
        mounted = 1
    if mounted:
        pytest.skip("this process may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def bulky() -> KernelSpec:
    size = 100_000
    return KernelSpec(operation="relu", inputs={"a": Tensor(dtype="uint8", shape=(size,), data=os.urandom(size))})


def test_jobs_are_kept_until_the_disk_is_full_then_refused_and_again_kept_when_there_is_room(small_disk: Path) -> None:
    async def story() -> None:
        clock = rows.TestClock()
        store = SqliteStore(small_disk / "pool.db", WRAP_KEY, clock)
        await store.open(clock.now)
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        kept: list[str] = []
        with pytest.raises(OutOfSpace, match="full"):
            for _ in range(1000):
                kept.append((await store.add_job(rows.job(spec=bulky()))).id)
        assert 0 < len(kept) < 30
        for _ in range(3):
            with pytest.raises(OutOfSpace):
                await store.add_job(rows.job(spec=bulky()))
        assert sorted(job.id for job in await store.jobs(limit=1000)) == sorted(kept)
        ballast.unlink()
        kept.append((await store.add_job(rows.job(spec=bulky()))).id)
        await store.close()

        again = SqliteStore(small_disk / "pool.db", WRAP_KEY, clock)
        await again.open(clock.now)
        assert sorted(job.id for job in await again.jobs(limit=1000)) == sorted(kept)
        await again.close()

    asyncio.run(story())


def test_a_disk_that_is_full_from_the_start_refuses_to_open(small_disk: Path) -> None:
    async def story() -> None:
        try:
            (small_disk / "ballast").write_bytes(bytes(4 << 20))
        except OSError:
            pass
        store = SqliteStore(small_disk / "pool.db", WRAP_KEY, rows.TestClock())
        with pytest.raises(OutOfSpace):
            await store.open(0.0)
        await store.close()

    asyncio.run(story())
