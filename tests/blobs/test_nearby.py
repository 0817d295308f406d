"""Blobs of a coordinator on this machine: read and left as files, by its own user alone, verified like any others."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moregpu.blobs import nearby
from moregpu.blobs.format import seal
from moregpu.blobs.local import LEFT_HERE, BlobFiles
from moregpu.blobs.syncing import STRIDE_BYTES
from moregpu.errors import DigestMismatch, NotFound, OutOfSpace
from moregpu.jobs import Blob

PIN = bytes(range(32))
ADDRESS = "127.0.0.1:8787"
CONTENT = os.urandom(3_000_000)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where notes are left."""
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(nearby, "_RUN", tmp_path / "none")
    monkeypatch.setattr(nearby, "_SHARED", shared)
    return shared


@pytest.fixture
def files(tmp_path: Path) -> BlobFiles:
    return BlobFiles(tmp_path / "blobs")


@pytest.fixture
def found(notes: Path, files: BlobFiles, tmp_path: Path) -> Iterator[nearby.NearbyBlobs]:
    retract = nearby.announce(PIN, 8787, tmp_path / "blobs")
    blobs = nearby.find(PIN, ADDRESS)
    assert blobs is not None
    yield blobs
    retract()
    assert nearby.find(PIN, ADDRESS) is None


def kept(files: BlobFiles) -> Blob:
    blob, sealed = seal(memoryview(CONTENT))
    upload = files.begin("t-ann", blob.digest, len(sealed))
    upload.write(sealed)
    upload.finish()
    return blob


def test_what_is_there_is_opened_and_what_is_not_is_to_be_fetched(found: nearby.NearbyBlobs, files: BlobFiles) -> None:
    blob = kept(files)
    out = bytearray(1_500_000)
    assert found.has(blob.digest)
    assert found.read_into(blob, 1_000_000, 2_500_000, memoryview(out))
    assert out == CONTENT[1_000_000:2_500_000]
    files.delete(blob.digest)
    assert not found.has(blob.digest)
    assert not found.read_into(blob, 0, 10, memoryview(out)[:10])


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="no way to ask what is in memory")
def test_what_nobody_reads_again_soon_leaves_the_systems_memory(
    found: nearby.NearbyBlobs, files: BlobFiles, tmp_path: Path
) -> None:
    probe = tmp_path / "blobs" / "probe"
    probe.write_bytes(CONTENT)
    with probe.open("rb") as file:
        os.fsync(file.fileno())

        def advised() -> None:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        if not leaves_memory(file.fileno(), advised):
            pytest.skip("this file system keeps what it has in memory")
    blob, out = kept(files), memoryview(bytearray(len(CONTENT)))

    def read(*, is_last: bool) -> None:
        assert found.read_into(blob, 0, len(CONTENT), out, is_last=is_last) and out == CONTENT

    with files.path(blob.digest).open("rb") as file:
        read(is_last=False)
        assert is_in_memory(file.fileno())
        assert not leaves_memory(file.fileno(), lambda: read(is_last=False))
        assert leaves_memory(file.fileno(), lambda: read(is_last=True))


def leaves_memory(file: int, after: Callable[[], None]) -> bool:
    """Whether a file does after that, now or again: the system keeps pages that another core has just put aside."""
    for _ in range(20):
        after()
        if not is_in_memory(file):
            return True
    return False


def is_in_memory(file: int) -> bool:
    """Whether a file's first bytes are read without its disk."""
    try:
        return os.preadv(file, [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False


def test_a_record_that_somebody_changed_does_not_open(found: nearby.NearbyBlobs, files: BlobFiles) -> None:
    blob = kept(files)
    with files.path(blob.digest).open("r+b") as file:
        file.seek(5_000)
        file.write(b"changed")
    with pytest.raises(DigestMismatch):
        found.read_into(blob, 0, len(CONTENT), memoryview(bytearray(len(CONTENT))))


def test_a_file_that_is_left_becomes_a_blob_once_its_bytes_hash_to_its_name(
    found: nearby.NearbyBlobs, files: BlobFiles, tmp_path: Path
) -> None:
    left = found.leave([CONTENT[:7], memoryview(CONTENT)[7:2_000_000], CONTENT[2_000_000:]], os.urandom)
    assert left is not None
    name, blob = left
    size = (tmp_path / "blobs" / LEFT_HERE / name).stat().st_size
    files.take_over(name, blob.digest, size)
    assert files.size(blob.digest) == size == files.used_bytes()
    out = bytearray(len(CONTENT))
    assert found.read_into(blob, 0, len(CONTENT), memoryview(out)) and out == CONTENT
    with pytest.raises(NotFound):
        files.take_over(name, blob.digest, size)


def test_what_the_disk_did_not_take_while_it_was_written_is_not_left(
    found: nearby.NearbyBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.EIO, "the disk")

    monkeypatch.setattr("moregpu.blobs.syncing.os.fsync", full)
    assert found.leave([bytes(STRIDE_BYTES + 1)], os.urandom) is None
    assert list((tmp_path / "blobs" / LEFT_HERE).iterdir()) == []


def test_what_the_disk_does_not_take_when_it_is_taken_over_is_no_blob(
    found: nearby.NearbyBlobs, files: BlobFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = found.leave([CONTENT], os.urandom)
    assert left is not None
    name, blob = left
    size = (tmp_path / "blobs" / LEFT_HERE / name).stat().st_size

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "the disk")

    monkeypatch.setattr("moregpu.blobs.syncing.os.fsync", full)
    with pytest.raises(OutOfSpace):
        files.take_over(name, blob.digest, size)
    assert files.size(blob.digest) is None
    assert list((tmp_path / "blobs" / LEFT_HERE).iterdir()) == [], "a second sync of it would say that all is well"


@pytest.mark.parametrize("lie", ["bytes", "length", "link", "name"])
def test_a_file_that_is_not_what_it_is_called_is_no_blob(
    found: nearby.NearbyBlobs, files: BlobFiles, tmp_path: Path, lie: str
) -> None:
    left = found.leave([CONTENT], os.urandom)
    assert left is not None
    name, blob = left
    path = tmp_path / "blobs" / LEFT_HERE / name
    size = path.stat().st_size
    match lie:
        case "bytes":
            with path.open("r+b") as file:
                file.write(b"other")
        case "length":
            size += 1
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case _:
            name = f"../{LEFT_HERE}/{name}"
    with pytest.raises((DigestMismatch, NotFound)):
        files.take_over(name, blob.digest, size)
    assert files.size(blob.digest) is None


def test_what_was_left_and_never_asked_for_is_thrown_away(
    found: nearby.NearbyBlobs, files: BlobFiles, tmp_path: Path
) -> None:
    assert found.leave([CONTENT], os.urandom) is not None
    folder = tmp_path / "blobs" / LEFT_HERE
    (path,) = folder.iterdir()
    assert files.clean_partials(path.stat().st_mtime - 1) == 0
    assert files.clean_partials(path.stat().st_mtime + 1) == 1
    assert list(folder.iterdir()) == []


def test_who_comes_by_another_certificate_or_another_port_goes_by_the_network(found: nearby.NearbyBlobs) -> None:
    assert nearby.find(None, ADDRESS) is None
    assert nearby.find(bytes(32), ADDRESS) is None
    assert nearby.find(PIN, "127.0.0.1:9000") is None


@pytest.mark.parametrize("open_to_others", ["folder", "note", "blobs"])
def test_a_note_that_somebody_else_may_have_written_says_nothing(
    found: nearby.NearbyBlobs, notes: Path, tmp_path: Path, open_to_others: str
) -> None:
    (folder,) = notes.iterdir()
    path = {"folder": folder, "note": folder / PIN.hex(), "blobs": tmp_path / "blobs"}[open_to_others]
    mode = path.stat().st_mode
    path.chmod(0o777)
    assert nearby.find(PIN, ADDRESS) is None
    path.chmod(mode)


def test_the_note_of_a_coordinator_that_started_meanwhile_stays(notes: Path, tmp_path: Path) -> None:
    for name in ("old", "new"):
        BlobFiles(tmp_path / name)
    retract_old = nearby.announce(PIN, 8787, tmp_path / "old")
    nearby.announce(PIN, 8787, tmp_path / "new")
    retract_old()
    assert nearby.find(PIN, ADDRESS) is not None
