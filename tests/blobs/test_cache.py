"""A worker keeps ciphertext it used lately, within its limit, and never a byte that is not what the name says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moregpu.blobs.cache import SealedCache
from moregpu.blobs.format import seal
from moregpu.errors import DigestMismatch

MADE = [seal(os.urandom(1_000 - 80)) for _ in range(5)]
DIGESTS = [blob.digest for blob, _ in MADE]


def put(cache: SealedCache, *numbers: int) -> None:
    for number in numbers:
        cache.put(DIGESTS[number], MADE[number][1])


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = SealedCache(tmp_path / "cache", 3_000)
    put(cache, 0, 1, 2)
    reader = cache.reader(DIGESTS[0])
    assert reader is not None
    reader.close()
    put(cache, 3)
    assert cache.hot() == [DIGESTS[3], DIGESTS[0], DIGESTS[2]]
    assert cache.hot(1) == [DIGESTS[3]]
    assert cache.reader(DIGESTS[1]) is None
    assert cache.used_bytes() == 3_000
    assert sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) == 3_000


def test_what_is_kept_reads_back_and_survives_a_restart(tmp_path: Path) -> None:
    put(SealedCache(tmp_path / "cache", 10_000), 0, 1)
    (tmp_path / "cache" / "partial-0123").write_bytes(b"left by a crash")
    cache = SealedCache(tmp_path / "cache", 10_000)
    assert set(cache.hot()) == set(DIGESTS[:2])
    with cache.reader(DIGESTS[1]) or pytest.fail("gone") as reader:
        assert reader.read_at(0, 1_000) == MADE[1][1]
    assert not (tmp_path / "cache" / "partial-0123").exists()
    assert stat.S_IMODE((tmp_path / "cache" / DIGESTS[1]).stat().st_mode) == 0o600
    assert SealedCache(tmp_path / "cache", 1_500).used_bytes() == 1_000  # a smaller limit after a restart


def test_wrong_bytes_are_not_kept(tmp_path: Path) -> None:
    cache = SealedCache(tmp_path / "cache", 10_000)
    with pytest.raises(DigestMismatch):
        cache.put(DIGESTS[0], MADE[1][1])
    short = cache.writer(DIGESTS[0], 1_000)
    short.write(memoryview(MADE[0][1])[:500])
    with pytest.raises(DigestMismatch):
        short.finish()
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(ValueError, match="name"):
        cache.writer("../evil", 1)


def test_what_is_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    cache = SealedCache(tmp_path / "cache", 500)
    put(cache, 0)
    assert cache.hot() == []
    assert not cache.fits(1_000)


def test_a_file_that_was_taken_away_is_a_miss(tmp_path: Path) -> None:
    cache = SealedCache(tmp_path / "cache", 10_000)
    put(cache, 0, 1)
    (tmp_path / "cache" / DIGESTS[0]).unlink()
    (tmp_path / "cache" / DIGESTS[1]).write_bytes(b"cut")
    assert cache.reader(DIGESTS[0]) is None
    assert cache.reader(DIGESTS[1]) is None
    assert cache.used_bytes() == 0


def test_a_reader_reads_on_when_its_blob_is_evicted(tmp_path: Path) -> None:
    cache = SealedCache(tmp_path / "cache", 1_000)
    put(cache, 0)
    with cache.reader(DIGESTS[0]) or pytest.fail("gone") as reader:
        put(cache, 1)
        assert cache.hot() == [DIGESTS[1]]
        assert reader.read_at(0, 1_000) == MADE[0][1]
    cache.clear()
    assert cache.used_bytes() == 0
    assert list((tmp_path / "cache").iterdir()) == []
