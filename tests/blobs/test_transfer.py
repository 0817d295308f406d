"""Blobs cross a network that breaks: nothing is lost, little is sent twice, nothing wrong is used (rows 29 and 43)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from moregpu.blobs import calls, transfer
from moregpu.blobs.cache import SealedCache
from moregpu.blobs.calls import TRIES
from moregpu.blobs.format import SEALED_RECORD_BYTES, seal, sealed_size
from moregpu.blobs.regions import read_part
from moregpu.blobs.transfer import BlobHTTP
from moregpu.errors import DigestMismatch, NotFound, OutOfSpace, Unauthorized, Unavailable, Unreachable
from moregpu.jobs import Blob, Tensor

MiB = 1 << 20
PLAIN = os.urandom(5 * MiB + 12_345)
BLOB, SEALED = seal(PLAIN)


@pytest.fixture
def http(door: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobHTTP]:
    monkeypatch.setattr(calls, "delays", lambda: iter(lambda: 0.0, None))  # the waits are tested in tests/wire
    http = BlobHTTP(door.address, door.pin, lambda: door.token, 10.0)
    yield http
    http.close()


def opened(http: BlobHTTP, blob: Blob) -> bytes:
    out = bytearray(blob.size_bytes)
    http.download_into(blob, out)
    return bytes(out)


def there(door: Any) -> None:
    upload = door.files.begin("me", BLOB.digest, len(SEALED))
    upload.write(memoryview(SEALED)[upload.offset :])
    upload.finish()


# ---- up --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, MiB, 3 * MiB + 1])
def test_a_buffer_goes_up_sealed_and_comes_back(door: Any, http: BlobHTTP, size: int) -> None:
    blob = http.upload_stream(PLAIN[:size])
    assert blob.size_bytes == size
    assert door.files.size(blob.digest) == sealed_size(size)
    assert opened(http, blob) == PLAIN[:size]
    assert size < 16 or PLAIN[:16] not in door.files.path(blob.digest).read_bytes()


def test_a_sealed_blob_goes_up_under_its_name(door: Any, http: BlobHTTP) -> None:
    http.upload(SEALED, BLOB.digest)
    assert door.files.path(BLOB.digest).read_bytes() == SEALED
    assert http.head(BLOB.digest) == len(SEALED)
    assert http.head("0" * 64) is None


@pytest.mark.parametrize("cuts", [[0], [100], [MiB], [3_000_000], [1_000_000, 1_000_000, 0, 2_000_000]], ids=str)
def test_a_cut_upload_goes_on_where_it_was_cut(door: Any, http: BlobHTTP, cuts: list[int]) -> None:
    door.cut_uploads_after = list(cuts)
    http.upload(SEALED, BLOB.digest)
    assert door.files.path(BLOB.digest).read_bytes() == SEALED
    assert door.body_bytes == len(SEALED)  # of what arrived, not a byte was sent again


def test_a_large_buffer_resumes_too_and_not_a_byte_is_kept_of_it(
    door: Any, http: BlobHTTP, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "RESUMABLE_BYTES", MiB)
    door.cut_uploads_after = [10, 1_500_000, 64 + SEALED_RECORD_BYTES]
    blob = http.upload_stream(memoryview(PLAIN))
    assert door.body_bytes == sealed_size(len(PLAIN))
    assert opened(http, blob) == PLAIN


def test_data_that_changes_while_it_is_uploaded_is_not_sent_under_the_same_key(
    door: Any, http: BlobHTTP, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "RESUMABLE_BYTES", MiB)
    array = bytearray(PLAIN)
    real = http._put

    def changed_meanwhile(*arguments: Any) -> None:
        array[2 * MiB] ^= 1
        real(*arguments)

    monkeypatch.setattr(http, "_put", changed_meanwhile)
    with pytest.raises(DigestMismatch, match="changed"):
        http.upload_stream(array)
    assert list(door.files.digests()) == []


def test_a_small_buffer_that_is_cut_is_sealed_anew(door: Any, http: BlobHTTP) -> None:
    door.cut_uploads_after = [100_000]
    keys: list[bytes] = []

    def entropy(length: int) -> bytes:
        keys.append(os.urandom(length))
        return keys[-1]

    blob = http.upload_stream(PLAIN[:300_000], entropy)
    assert len(keys) == 2
    assert blob.key == keys[1]
    assert opened(http, blob) == PLAIN[:300_000]
    assert list(door.files.digests()) == [blob.digest]


def test_an_offset_that_differs_is_asked_for(door: Any, http: BlobHTTP) -> None:
    """An earlier process had sent half of it."""
    upload = door.files.begin("me", BLOB.digest, len(SEALED))
    upload.write(memoryview(SEALED)[:2_000_000])
    upload.pause()
    http.upload(SEALED, BLOB.digest)
    assert door.body_bytes == len(SEALED) - 2_000_000
    assert door.files.path(BLOB.digest).read_bytes() == SEALED


def test_an_upload_that_was_whole_but_not_finished_is_finished(door: Any, http: BlobHTTP) -> None:
    """The coordinator fell after the last byte and before the blob was kept."""
    upload = door.files.begin("me", BLOB.digest, len(SEALED))
    upload.write(SEALED)
    upload.pause()
    door.cut_uploads_after = [0]
    http.upload(SEALED, BLOB.digest)
    assert door.files.path(BLOB.digest).read_bytes() == SEALED
    assert door.body_bytes == 0


def test_a_refusal_in_mid_body_is_read(door: Any, http: BlobHTTP) -> None:
    door.refusal = lambda: OutOfSpace("The coordinator's disk is full", "Delete something")
    for upload in (lambda: http.upload_stream(PLAIN), lambda: http.upload(SEALED, BLOB.digest)):
        with pytest.raises(OutOfSpace) as refused:
            upload()
        assert refused.value.hint == "Delete something"
    door.refusal = None
    http.upload(SEALED, BLOB.digest)


def test_wrong_bytes_are_refused_by_name(door: Any, http: BlobHTTP) -> None:
    with pytest.raises(DigestMismatch):
        http.upload(b"other bytes", BLOB.digest)
    assert list(door.files.digests()) == []


# ---- down ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[0], [100], [SEALED_RECORD_BYTES], [1_500_000, 10, 2_500_000]], ids=str)
def test_a_cut_download_loses_at_most_a_record_a_cut(door: Any, http: BlobHTTP, cuts: list[int]) -> None:
    there(door)
    door.cut_downloads_after = list(cuts)
    assert opened(http, BLOB) == PLAIN
    assert door.sent_bytes <= len(SEALED) + len(cuts) * SEALED_RECORD_BYTES


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (MiB - 1, MiB + 1), (0, len(PLAIN)), (len(PLAIN) - 1, len(PLAIN)), (5, 5), (MiB, 2 * MiB)],
)
def test_a_range_fetches_the_records_that_hold_it(door: Any, http: BlobHTTP, start: int, stop: int) -> None:
    there(door)
    out = bytearray(stop - start)
    http.download_range_into(BLOB, start, stop, out)
    assert out == PLAIN[start:stop]
    assert door.sent_bytes <= (stop - start) + 2 * SEALED_RECORD_BYTES
    with pytest.raises(ValueError, match="do not go into"):
        http.download_range_into(BLOB, 0, 5, bytearray(4))


def test_a_region_of_a_tensor_is_read_over_the_network(door: Any, http: BlobHTTP) -> None:
    there(door)
    rows = len(PLAIN) // 1_000
    blob = http.upload_stream(PLAIN[: rows * 1_000])
    tensor = Tensor(dtype="uint8", shape=(rows, 1_000), data=blob, region=((10, 40), (100, 200)))
    expected = b"".join(PLAIN[row * 1_000 + 100 : row * 1_000 + 200] for row in range(10, 40))
    assert read_part(tensor, http.reader(blob)) == expected


@pytest.mark.parametrize("at", [0, 70, MiB + 500, -1])
def test_damaged_bytes_are_refused_and_not_retried(door: Any, http: BlobHTTP, at: int) -> None:
    there(door)

    def damage(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    door.damage = damage
    with pytest.raises(DigestMismatch):
        opened(http, BLOB)
    assert len(door.requests) == 1


def test_a_cache_is_filled_with_the_sealed_bytes(door: Any, http: BlobHTTP, tmp_path: Any) -> None:
    there(door)
    door.cut_downloads_after = [2_000_000]
    cache = SealedCache(tmp_path / "cache", 1 << 30)
    writer = cache.writer(BLOB.digest, len(SEALED))
    http.download_sealed(BLOB.digest, len(SEALED), writer.write)
    writer.finish()
    with cache.reader(BLOB.digest) or pytest.fail("gone") as reader:
        assert reader.read_at(0, len(SEALED)) == SEALED


def test_what_is_not_there_is_not_found(http: BlobHTTP) -> None:
    with pytest.raises(NotFound):
        opened(http, BLOB)


def test_a_proxy_that_removes_ranges_is_an_error_and_not_wrong_data(door: Any, http: BlobHTTP) -> None:
    there(door)
    door.ignores_ranges = True
    with pytest.raises(Unavailable, match="parts"):
        http.download_range_into(BLOB, 2 * MiB, 2 * MiB + 1, bytearray(1))
    out = bytearray(5)
    http.download_sealed(BLOB.digest, 5, lambda piece: out.__setitem__(slice(0, 5), piece))  # the rest is not read
    assert out == SEALED[:5]
    assert http.head(BLOB.digest) == len(SEALED)


# ---- connections -----------------------------------------------------------------------------------------------------


def test_one_connection_serves_many_requests_and_a_closed_idle_one_does_no_harm(door: Any, http: BlobHTTP) -> None:
    there(door)
    for _ in range(3):
        assert opened(http, BLOB) == PLAIN
        assert http.head(BLOB.digest) == len(SEALED)
    door.closes_idle_connections = True
    for _ in range(3):
        assert http.head(BLOB.digest) == len(SEALED)
    assert len(door.requests) == 9


def test_a_wrong_token_is_said_at_once_and_is_in_no_url(door: Any, http: BlobHTTP) -> None:
    there(door)
    bad = BlobHTTP(door.address, door.pin, lambda: "mgt_other", 10.0)
    for call in (lambda: opened(bad, BLOB), lambda: bad.upload_stream(b"x"), lambda: bad.upload(SEALED, BLOB.digest)):
        with pytest.raises(Unauthorized, match="Log in again"):
            call()
    assert len(door.requests) == 3
    opened(http, BLOB)
    assert not any("mgt_" in request for request in door.requests)
    bad.close()


def test_a_coordinator_that_is_busy_is_asked_again(door: Any, http: BlobHTTP) -> None:
    there(door)
    answers = iter([Unavailable("busy"), Unavailable("busy")])

    def refuse_twice() -> Any:
        error = next(answers, None)
        if error is None:
            door.refusal = None
            return Unavailable("one more")
        return error

    door.refusal = refuse_twice
    assert opened(http, BLOB) == PLAIN
    assert len(door.requests) == 4


def test_a_coordinator_that_stays_away_is_unreachable(door: Any, http: BlobHTTP) -> None:
    there(door)
    door.cut_downloads_after = [0] * 100
    with pytest.raises(Unreachable, match=f"{TRIES} times"):
        opened(http, BLOB)
    assert len(door.requests) == TRIES
    nobody = BlobHTTP("127.0.0.1:1", door.pin, lambda: "t", 1.0)
    with pytest.raises(Unreachable):
        nobody.head(BLOB.digest)


def test_a_patient_transfer_outlives_a_coordinator_that_is_away_for_longer(
    door: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "delays", lambda: iter(lambda: 0.0, None))
    there(door)
    door.cut_downloads_after = [0] * 5 * TRIES
    patient = BlobHTTP(door.address, door.pin, lambda: door.token, 10.0, patience_s=60.0)
    assert opened(patient, BLOB) == PLAIN
    assert len(door.requests) == 5 * TRIES + 1
    patient.close()


def test_each_thread_has_its_own_connection(door: Any, http: BlobHTTP) -> None:
    there(door)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(3):
            if opened(http, BLOB) != PLAIN:
                wrong.append("data")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(door.requests) == 12


def test_closing_breaks_off_what_other_threads_are_doing(door: Any, http: BlobHTTP) -> None:
    there(door)
    door.holds_downloads = threading.Event()
    ended: list[BaseException] = []

    def work() -> None:
        try:
            opened(http, BLOB)
        except Unreachable as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 10
    while not door.requests and time.monotonic() < deadline:
        time.sleep(0.005)
    http.close()
    thread.join(10)
    assert not thread.is_alive()
    assert len(ended) == 1
    door.holds_downloads.set()
    with pytest.raises(Unreachable, match="closed"):
        http.head(BLOB.digest)
