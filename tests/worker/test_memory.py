"""Shared memory whose pages are found ahead of what is written there."""

from __future__ import annotations

import os
import threading

import pytest

from moregpu.worker.memory import FILLED_BYTES, Region, RegionPool

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only where shared memory has no name")


def filled() -> None:
    """Wait for the threads that look for pages."""
    for thread in threading.enumerate():
        if thread.name == "fill":
            thread.join()


def held_bytes(region: Region) -> int:
    return os.fstat(region.fd).st_blocks * 512


def test_a_large_region_that_is_to_be_written_has_its_pages_before_that() -> None:
    regions = RegionPool()
    large, small = regions.fresh(FILLED_BYTES), regions.fresh(FILLED_BYTES - 1)
    filled()
    assert held_bytes(large) >= FILLED_BYTES and held_bytes(small) == 0


def test_one_that_is_kept_for_reuse_takes_what_is_written_alone() -> None:
    region = RegionPool().take(FILLED_BYTES)
    filled()
    assert held_bytes(region) == 0


def test_what_was_written_meanwhile_stays() -> None:
    region = Region(1, FILLED_BYTES)
    with region.view(5_000_000, 7) as view:
        view[:] = b"written"
        region.fill_ahead()
        filled()
        assert bytes(view) == b"written"


def test_a_region_that_is_closed_at_once_leaves_nothing_open() -> None:
    filled()
    before = len(os.listdir("/proc/self/fd"))
    region = Region(1, FILLED_BYTES)
    region.fill_ahead()
    region.close()
    filled()
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the mapping keeps a descriptor of its own
