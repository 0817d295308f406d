"""Bytes are on their way to the disk while their owner goes on, and none of its errors is lost."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from moregpu.blobs.syncing import STRIDE_BYTES, Syncing


@pytest.fixture
def file(tmp_path: Path) -> Generator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    files: list[int] = []
    monkeypatch.setattr("moregpu.blobs.syncing.os.fsync", files.append)
    return files


def test_less_than_a_stride_is_left_to_whoever_syncs_it_at_the_end(file: int, synced: list[int]) -> None:
    with Syncing(file) as syncing:
        syncing.wrote(STRIDE_BYTES - 1)
    assert synced == []


def test_a_stride_is_synced_before_the_block_ends(file: int, synced: list[int]) -> None:
    with Syncing(file) as syncing:
        syncing.wrote(STRIDE_BYTES - 1)
        syncing.wrote(1)
    assert synced == [file]


def test_who_writes_does_not_wait_for_the_disk(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(_file: int) -> None:
        begun.set()
        assert goes_on.wait(10), "the writer waits for this"

    monkeypatch.setattr("moregpu.blobs.syncing.os.fsync", slow)
    with Syncing(file) as syncing:
        for _ in range(5):
            syncing.wrote(STRIDE_BYTES)
        assert begun.wait(10)
        goes_on.set()  # a writer that waited would not come here


def test_the_error_of_an_earlier_sync_is_raised_at_the_end(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([OSError(errno.EIO, "the disk"), None])

    def once(_file: int) -> None:
        if (error := next(answers)) is not None:
            raise error

    monkeypatch.setattr("moregpu.blobs.syncing.os.fsync", once)
    with pytest.raises(OSError, match="the disk"), Syncing(file) as syncing:
        syncing.begin()
        syncing.begin()
