"""Kept results on disk: there until the last word, gone after it, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moregpu.wire.messages import LeaseRef, ResultEntry
from moregpu.worker.results import SETTLE_S, KeptResults

ENTRY = ResultEntry(task="t-1", attempt=1, token=bytes(16), statement=b"statement")
REF = LeaseRef(task="t-1", attempt=1, token=bytes(16))


def test_a_result_is_there_until_it_is_dropped(tmp_path: Path) -> None:
    kept = KeptResults(tmp_path / "results")
    kept.keep(ENTRY)
    kept.keep(ENTRY)
    assert KeptResults(tmp_path / "results").load() == [ENTRY]
    kept.drop(REF)
    assert list((tmp_path / "results").iterdir()) == []
    kept.drop(REF)


def test_another_attempt_is_another_result(tmp_path: Path) -> None:
    kept = KeptResults(tmp_path / "results")
    other = ResultEntry(task="t-1", attempt=2, token=bytes(16), statement=b"other")
    kept.keep(ENTRY)
    kept.keep(other)
    kept.drop(REF)
    assert KeptResults(tmp_path / "results").load() == [other]


def test_a_result_that_may_yet_be_settled_is_not_written(tmp_path: Path) -> None:
    kept = KeptResults(tmp_path / "results")
    young = ResultEntry(task="t-2", attempt=1, token=bytes(16), statement=b"young")
    made = [(1.0, ENTRY), (1.0 + SETTLE_S / 2, young)]
    assert kept.keep_old(made, now=1.0 + SETTLE_S)
    assert KeptResults(tmp_path / "results").load() == [ENTRY]
    assert not kept.keep_old(made, now=1.0 + 2 * SETTLE_S)
    assert {entry.task for entry in KeptResults(tmp_path / "results").load()} == {"t-1", "t-2"}


def test_what_an_earlier_process_wrote_goes_with_its_last_word(tmp_path: Path) -> None:
    KeptResults(tmp_path / "results").keep(ENTRY)
    kept = KeptResults(tmp_path / "results")
    kept.load()
    kept.drop(REF)
    assert list((tmp_path / "results").iterdir()) == []


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    kept = KeptResults(tmp_path / "results")
    kept.keep(ENTRY)
    (path,) = (tmp_path / "results").iterdir()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("size", [0, 1, 10])
def test_a_file_that_a_crash_cut_off_is_dropped(tmp_path: Path, size: int) -> None:
    KeptResults(tmp_path / "results").keep(ENTRY)
    (path,) = (tmp_path / "results").iterdir()
    os.truncate(path, size)
    assert KeptResults(tmp_path / "results").load() == []
    assert list((tmp_path / "results").iterdir()) == []
