"""Blobs on disk: whole or unseen, resumed by their own principal only, refused before the disk is full."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from moregpu.blobs.format import open_range, seal
from moregpu.blobs.local import BlobFiles
from moregpu.errors import Conflict, DigestMismatch, NotFound, OutOfSpace, TooLarge

BLOB, SEALED = seal(os.urandom(3_000_000))
ANYTHING = 1.0  # a disk mark that never refuses: the machine's own disk may be rather full


@pytest.fixture
def files(tmp_path: Path) -> BlobFiles:
    return BlobFiles(tmp_path / "blobs", ANYTHING)


def put(files: BlobFiles, sealed: bytes | bytearray, digest: str | None = None, principal: str = "me") -> str:
    upload = files.begin(principal, digest, len(sealed))
    upload.write(memoryview(sealed)[upload.offset :])
    return upload.finish()


def test_a_blob_is_kept_under_the_name_that_its_bytes_have(files: BlobFiles) -> None:
    assert files.size(BLOB.digest) is None
    assert put(files, SEALED) == BLOB.digest
    assert files.size(BLOB.digest) == files.used_bytes() == len(SEALED)
    assert files.path(BLOB.digest).read_bytes() == SEALED
    assert list(files.digests()) == [BLOB.digest]
    with files.open_reader(BLOB.digest) as reader:
        assert reader.size_bytes == len(SEALED)
        out = bytearray(1_000)
        open_range(BLOB, reader.read_at, 1_500_000, 1_501_000, out)
        assert reader.read_at(len(SEALED) - 1, len(SEALED) + 5) == SEALED[-1:]


def test_folders_and_files_are_private(files: BlobFiles) -> None:
    put(files, SEALED)
    path = files.path(BLOB.digest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def test_a_half_upload_is_not_seen_and_resumes_where_it_stopped(files: BlobFiles) -> None:
    upload = files.begin("me", BLOB.digest, len(SEALED))
    upload.write(SEALED[:1_234_567])
    upload.pause()
    assert files.size(BLOB.digest) is None
    assert files.offset("me", BLOB.digest) == 1_234_567
    again = BlobFiles(files.path(BLOB.digest).parents[1], ANYTHING)  # another process, after a crash
    resumed = again.begin("me", BLOB.digest, len(SEALED))
    assert resumed.offset == 1_234_567
    resumed.write(SEALED[1_234_567:])
    assert resumed.finish() == BLOB.digest
    assert again.offset("me", BLOB.digest) is None


def test_nobody_squats_anothers_upload(files: BlobFiles) -> None:
    """Row 45: rubbish under the same digest by somebody else does not touch the honest upload."""
    squat = files.begin("mallory", BLOB.digest, len(SEALED))
    squat.write(bytes(len(SEALED)))
    assert files.offset("me", BLOB.digest) is None
    assert put(files, SEALED, BLOB.digest) == BLOB.digest
    with pytest.raises(DigestMismatch):
        squat.finish()
    assert files.path(BLOB.digest).read_bytes() == SEALED


def test_wrong_bytes_are_thrown_away(files: BlobFiles) -> None:
    upload = files.begin("me", BLOB.digest, 5)
    upload.write(b"wrong")
    with pytest.raises(DigestMismatch):
        upload.finish()
    assert files.offset("me", BLOB.digest) is None
    assert list(files.digests()) == []


def test_an_upload_takes_what_was_announced(files: BlobFiles) -> None:
    upload = files.begin("me", None, 4)
    upload.write(b"ab")
    with pytest.raises(Conflict, match="2 of 4"):
        upload.finish()
    with pytest.raises(TooLarge):
        upload.write(b"cde")
    upload.write(b"cd")
    assert files.size(upload.finish()) == 4
    with pytest.raises(Conflict):
        upload.write(b"")
    with pytest.raises(TooLarge):
        files.begin("me", None, -1)


def test_a_newer_upload_of_the_same_takes_over(files: BlobFiles) -> None:
    """The client came back while its old connection was not yet known to be dead."""
    old = files.begin("me", BLOB.digest, len(SEALED))
    old.write(SEALED[:1_000])
    new = files.begin("me", BLOB.digest, len(SEALED))
    assert new.offset == 1_000
    with pytest.raises(Conflict, match="took over"):
        old.write(SEALED[1_000:2_000])
    old.pause()
    new.write(SEALED[1_000:])
    assert new.finish() == BLOB.digest


def test_uploads_without_a_name_do_not_resume(files: BlobFiles) -> None:
    upload = files.begin("me", None, 10)
    upload.write(b"12345")
    upload.pause()
    assert not upload.path.exists()
    aborted = files.begin("me", BLOB.digest, len(SEALED))
    aborted.write(b"12345")
    aborted.abort()
    assert files.offset("me", BLOB.digest) is None


def test_the_same_blob_twice_is_one(files: BlobFiles) -> None:
    put(files, SEALED)
    put(files, SEALED, BLOB.digest, "another")
    assert files.used_bytes() == len(SEALED)
    assert files.delete(BLOB.digest)
    assert not files.delete(BLOB.digest)
    assert files.used_bytes() == 0


def test_a_deleted_blob_is_gone_but_its_readers_read_on(files: BlobFiles) -> None:
    put(files, SEALED)
    with files.open_reader(BLOB.digest) as reader:
        files.delete(BLOB.digest)
        assert reader.read_at(0, 10) == SEALED[:10]
    with pytest.raises(NotFound):
        files.open_reader(BLOB.digest)


@pytest.mark.parametrize(
    "name", ["", "..", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n", "g" * 64, "0" * 63 + "/"]
)
def test_names_that_are_no_digests_are_refused(files: BlobFiles, name: str) -> None:
    for call in (files.path, files.open_reader, files.delete):
        with pytest.raises(NotFound):
            call(name)
    with pytest.raises(NotFound):
        files.begin("me", name, 1)
    assert files.size(name) is None


def test_the_disk_mark_refuses_before_anything_is_written(tmp_path: Path) -> None:
    full = BlobFiles(tmp_path / "blobs", 0.0)
    with pytest.raises(OutOfSpace) as refused:
        full.begin("me", None, 1)
    assert refused.value.hint
    assert list((tmp_path / "blobs" / "partial").iterdir()) == []
    assert full.free_bytes() == 0


def test_uploads_under_way_count_against_the_mark(files: BlobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda: 1_000)
    first = files.begin("me", None, 600)
    with pytest.raises(OutOfSpace):
        files.begin("me", None, 600)
    first.abort()
    files.begin("me", None, 600).abort()


def test_a_disk_that_fills_up_keeps_the_offset_and_shows_nothing(
    files: BlobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = files.begin("me", BLOB.digest, len(SEALED))
    upload.write(SEALED[:1_000])
    real = os.write

    def full(file: int, data: Any) -> int:
        if os.lseek(file, 0, os.SEEK_CUR) >= 1_500:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, bytes(data[:500]))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OutOfSpace):
        upload.write(SEALED[1_000:])
    assert upload.offset == 1_000
    assert upload.path.stat().st_size == 1_000
    monkeypatch.undo()
    upload.write(SEALED[1_000:])  # space was made: it goes on, hash included
    assert upload.finish() == BLOB.digest


def test_a_disk_that_is_full_at_fsync_accepts_nothing(files: BlobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = files.begin("me", None, len(SEALED))
    upload.write(SEALED)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutOfSpace):
        upload.finish()
    assert files.size(BLOB.digest) is None
    monkeypatch.undo()
    assert upload.finish() == BLOB.digest  # nothing was lost: it may be finished when there is room


def test_old_partials_are_cleaned_and_open_ones_are_not(files: BlobFiles) -> None:
    left = files.begin("me", BLOB.digest, len(SEALED))
    left.write(b"x")
    left.pause()
    active = files.begin("you", BLOB.digest, len(SEALED))
    later = time.time() + 60
    assert files.clean_partials(time.time() - 60) == 0
    assert files.clean_partials(later) == 1
    assert files.offset("me", BLOB.digest) is None
    active.write(SEALED)
    assert active.finish() == BLOB.digest


@pytest.mark.parametrize("system", ["with pread", "without"])
def test_readers_work_from_many_threads(files: BlobFiles, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(files, SEALED)
    if system == "without":  # Windows
        monkeypatch.delattr(os, "pread")
    wrong: list[int] = []
    with files.open_reader(BLOB.digest) as reader:

        def read(start: int) -> None:
            for at in range(start, len(SEALED), 100_000):
                if reader.read_at(at, at + 50_000) != SEALED[at : at + 50_000]:
                    wrong.append(at)

        threads = [threading.Thread(target=read, args=(start,)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
