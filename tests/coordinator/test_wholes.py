"""Columns of a sealed matrix: the same bytes as opened alone, opened once for all of them, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moregpu.blobs.format import seal
from moregpu.blobs.local import BlobFiles, Reader
from moregpu.coordinator.opening import plain_part
from moregpu.coordinator.wholes import Wholes
from moregpu.errors import DigestMismatch
from moregpu.jobs import Blob, Tensor

ROWS, COLUMNS = 700, 1000


class Counting(BlobFiles):
    """Notes how often a blob is opened."""

    opened = 0

    def open_reader(self, digest: str) -> Reader:
        self.opened += 1
        return super().open_reader(digest)


def kept(files: BlobFiles, plain: bytes) -> Blob:
    blob, sealed = seal(plain)
    upload = files.begin("client", blob.digest, len(sealed))
    upload.write(memoryview(sealed))
    upload.finish()
    return blob


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Counting, Blob]]:
    files = Counting(tmp_path_factory.mktemp("blobs"))
    yield files, kept(files, os.urandom(ROWS * COLUMNS * 4))


def columns(blob: Blob, start: int, stop: int, rows: tuple[int, int] = (0, ROWS)) -> Tensor:
    return Tensor(dtype="float32", shape=(ROWS, COLUMNS), data=blob, region=(rows, (start, stop)))


@given(
    rows=st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(lambda pair: (min(pair), max(pair))),
    span=st.tuples(st.integers(0, COLUMNS), st.integers(0, COLUMNS)).map(lambda pair: (min(pair), max(pair))),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_part_is_what_opening_it_alone_gives(
    store: tuple[Counting, Blob], rows: tuple[int, int], span: tuple[int, int]
) -> None:
    files, blob = store
    wholes = Wholes(files)
    wanted = bytes(plain_part(columns(blob, *span, rows), files))
    for _ in range(2):
        assert bytes(wholes.part(columns(blob, *span, rows))) == wanted


def test_the_tasks_of_one_job_open_it_once_and_leave_nothing(store: tuple[Counting, Blob]) -> None:
    files, blob = store
    wholes = Wholes(files)
    before = files.opened
    for start in range(0, COLUMNS, 100):
        assert start == 0 or wholes.open_bytes == blob.size_bytes
        wholes.part(columns(blob, start, start + 100))
    assert files.opened - before == 1
    assert wholes.open_bytes == 0


def test_threads_wait_for_the_one_that_opens(store: tuple[Counting, Blob]) -> None:
    files, blob = store
    wholes = Wholes(files)
    before = files.opened
    parts = [columns(blob, start, start + 40) for start in range(0, 960, 40)]
    with ThreadPoolExecutor(8) as threads:
        found = [bytes(part) for part in threads.map(wholes.part, parts)]
    assert files.opened - before == 1
    assert found == [bytes(plain_part(part, files)) for part in parts]


def test_rows_are_read_where_they_lie(store: tuple[Counting, Blob]) -> None:
    files, blob = store
    wholes = Wholes(files)
    wholes.part(columns(blob, 0, COLUMNS, (5, 90)))
    assert wholes.open_bytes == 0


def test_what_is_open_stays_within_its_limit(tmp_path: Path) -> None:
    files = BlobFiles(tmp_path)
    size = ROWS * COLUMNS * 4
    wholes = Wholes(files, 2 * size)
    for _ in range(5):
        wholes.part(columns(kept(files, os.urandom(size)), 3, 9))
        assert wholes.open_bytes <= 2 * size
    tight = Wholes(files, size - 1)
    tight.part(columns(kept(files, os.urandom(size)), 3, 9))
    assert tight.open_bytes == 0


def test_what_a_job_left_open_goes_when_nothing_is_checked_any_more(store: tuple[Counting, Blob]) -> None:
    files, blob = store
    wholes = Wholes(files)

    async def story() -> None:
        wholes.part(columns(blob, 0, 100))
        assert wholes.open_bytes == blob.size_bytes
        wholes.rest_soon()
        wholes.rest_soon()
        async with asyncio.timeout(20.0):
            while wholes.open_bytes:  # noqa: ASYNC110 - a timer makes no event
                await asyncio.sleep(0.01)

    asyncio.run(story())


def test_a_blob_that_is_not_what_its_name_says_is_said_each_time(tmp_path: Path) -> None:
    files = BlobFiles(tmp_path)
    blob = kept(files, os.urandom(ROWS * COLUMNS * 4))
    wrong = Blob(digest=blob.digest, key=bytes(len(blob.key)), size_bytes=blob.size_bytes)
    wholes = Wholes(files)
    for _ in range(2):
        with pytest.raises(DigestMismatch):
            wholes.part(columns(wrong, 0, 10))
    assert bytes(wholes.part(columns(blob, 0, 10))) == bytes(plain_part(columns(blob, 0, 10), files))
