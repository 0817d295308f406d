"""What nobody looks into is hashed, compared and joined a record at a time: a large result fills no memory."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from blake3 import blake3

from moregpu.blobs.format import RECORD_BYTES, seal
from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.opening import plain_part, windows
from moregpu.errors import DigestMismatch
from moregpu.jobs import Blob, Tensor
from moregpu.wire.statement import content_digest, scattered_digest


def kept(files: BlobFiles, plain: bytes) -> Blob:
    blob, sealed = seal(plain)
    upload = files.begin("client", blob.digest, len(sealed))
    upload.write(memoryview(sealed))
    upload.finish()
    return blob


def line(data: Blob | bytes, size: int, region: tuple[int, int] | None = None) -> Tensor:
    return Tensor(dtype="uint8", shape=(size,), data=data, region=None if region is None else (region,))


@pytest.mark.parametrize("size", [0, 1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 3 * RECORD_BYTES + 5])
def test_the_windows_of_a_line_are_its_bytes_in_order(tmp_path: Path, size: int) -> None:
    files, plain = BlobFiles(tmp_path), os.urandom(size)
    blob = kept(files, plain)
    for start, stop in ((0, size), (size // 3, size), (size // 3, size // 2), (size, size)):
        whole = line(blob, size, (start, stop))
        found = [bytes(window) for window in windows(whole, files)]
        assert b"".join(found) == bytes(plain_part(whole, files)) == plain[start:stop]
        assert all(len(window) <= RECORD_BYTES for window in found)
    assert b"".join(bytes(window) for window in windows(line(plain, size), files)) == plain


def test_the_digest_of_windows_is_the_one_that_a_worker_signs(tmp_path: Path) -> None:
    files, plain, key = BlobFiles(tmp_path), os.urandom(9 * RECORD_BYTES + 7), os.urandom(32)
    tensor = line(kept(files, plain), len(plain))
    found = scattered_digest(key, "uint8", tensor.shape, windows(tensor, files))
    assert found == content_digest(key, "uint8", tensor.shape, plain)


def test_a_large_line_is_read_in_the_memory_of_a_few_records(tmp_path: Path) -> None:
    files, size = BlobFiles(tmp_path), 40 * RECORD_BYTES
    tensor = line(kept(files, bytes(size)), size)
    digest = blake3()
    tracemalloc.start()
    try:
        for window in windows(tensor, files):
            digest.update(window)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert digest.digest() == blake3(bytes(size)).digest()
    assert most < 6 * RECORD_BYTES


def test_a_line_of_another_length_than_it_says_or_that_is_gone_is_refused_before_a_byte_of_it(tmp_path: Path) -> None:
    files = BlobFiles(tmp_path)
    blob = kept(files, b"twelve bytes")
    with pytest.raises(DigestMismatch, match="12 bytes where"):
        next(windows(line(blob, 13), files))
    files.delete(blob.digest)
    with pytest.raises(DigestMismatch, match="not here any more"):
        next(windows(line(blob, 12), files))
