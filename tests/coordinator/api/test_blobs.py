"""Doors to blobs: resume, Range, squatters, early refusals."""

from __future__ import annotations

import os
import socket

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from moregpu.blobs import nearby
from moregpu.blobs.format import RECORD_BYTES, seal, sealed_size
from moregpu.blobs.transfer import BlobHTTP
from moregpu.coordinator.api.blobs import parse_range
from moregpu.coordinator.api.problems import NotSatisfiable
from moregpu.coordinator.protocol import BlobRight
from moregpu.errors import NotFound, Unreachable

from .conftest import Pool


@pytest.fixture(scope="module")
def token(pool: Pool) -> str:
    return pool.token("submitter")


@pytest.fixture
def blob() -> tuple[str, bytes]:
    data = os.urandom(300_000)
    return blake3(data).hexdigest(), data


def test_a_blob_that_was_posted_can_be_read_back(pool: Pool, token: str, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    answer = pool.ask("POST", "/v1/blobs", token, data)
    assert (answer.status, answer.json()) == (201, {"digest": digest, "sealed_bytes": len(data)})
    got = pool.ask("GET", f"/v1/blobs/{digest}", token)
    assert (got.status, got.body, got.headers["accept-ranges"]) == (200, data, "bytes")
    head = pool.ask("HEAD", f"/v1/blobs/{digest}", token)
    assert (head.status, head.headers["content-length"], head.body) == (200, str(len(data)), b"")


@pytest.mark.parametrize("way", ["network", "files"])
def test_the_transfer_of_clients_and_workers_speaks_to_these_doors(
    pool: Pool, token: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "network":
        monkeypatch.setattr(nearby, "find", lambda *_: None)
    with_key = os.urandom(3 * RECORD_BYTES + 7)
    transfer = BlobHTTP(pool.address, pool.pin, lambda: token)
    try:
        assert (transfer._nearby is not None) == (way == "files")
        blob = transfer.upload_stream(with_key)
        out = bytearray(len(with_key))
        transfer.download_into(blob, out)
        assert bytes(out) == with_key
        part = bytearray(1000)
        transfer.download_range_into(blob, RECORD_BYTES - 500, RECORD_BYTES + 500, part)
        assert bytes(part) == with_key[RECORD_BYTES - 500 : RECORD_BYTES + 500]
        named, sealed = seal(b"x" * 100_000)
        transfer.upload(sealed, named.digest)
        assert transfer.head(named.digest) == len(sealed)
    finally:
        transfer.close()


def test_a_blob_beside_is_read_where_the_coordinator_gave_it_or_says_that_it_may_be(pool: Pool, token: str) -> None:
    content = os.urandom(RECORD_BYTES + 7)
    own, strange = (BlobHTTP(pool.address, pool.pin, lambda t=t: t) for t in (token, pool.token("submitter")))
    try:
        blob = own.upload_stream(content)
        out = bytearray(len(content))
        with pytest.raises(NotFound):  # a digest and a key are not enough
            strange.download_into(blob, out)
        assert bytes(out) == bytes(len(content))
        own.close()
        with pytest.raises(Unreachable):
            own.download_into(blob, out)
        own.download_into(blob, out, is_given=True)  # nobody is asked
        assert bytes(out) == content
    finally:
        strange.close()


def test_a_file_that_was_left_beside_the_blobs_is_taken_over_for_who_may_upload(pool: Pool, token: str) -> None:
    found = nearby.find(pool.pin, pool.address)
    assert found is not None
    left = found.leave([os.urandom(300_000)], os.urandom)
    assert left is not None
    name, blob = left
    path, size = f"/v1/blobs/{blob.digest}", str(sealed_size(blob.size_bytes))
    headers = {"Upload-Length": size, "Upload-Here": name}
    assert pool.ask("PUT", path, pool.token("viewer"), b"", headers).status == 403
    assert pool.ask("PUT", path, token, b"", {**headers, "Upload-Here": "0" * 32}).status == 404
    assert pool.ask("PUT", path, token, b"", {**headers, "Upload-Here": f"../{name}"}).status == 404
    assert pool.ask("PUT", path, token, b"", headers).status == 201
    assert pool.ask("PUT", path, token, b"", headers).status == 201  # its answer was lost: it is there
    assert pool.ask("HEAD", path, token).headers["content-length"] == size
    assert pool.ask("GET", path, pool.token("submitter")).status == 404  # it is its uploader's alone


def test_an_upload_goes_on_where_it_was_cut(pool: Pool, token: str, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    path = f"/v1/blobs/{digest}"
    total = {"Upload-Length": str(len(data))}
    first = pool.ask("PUT", path, token, data[:100_000], total)
    assert (first.status, first.json()) == (200, {"offset": 100_000})
    assert pool.ask("HEAD", path, token).headers["upload-offset"] == "100000"
    wrong = pool.ask("PUT", f"{path}?offset=50000", token, data[50_000:], total)
    assert (wrong.status, wrong.code, wrong.json()["offset"]) == (409, "conflict", 100_000)
    last = pool.ask("PUT", f"{path}?offset=100000", token, data[100_000:], total)
    assert (last.status, last.json()["digest"]) == (201, digest)
    assert pool.ask("GET", path, token).body == data


def test_a_sender_that_vanishes_in_the_middle_leaves_what_came(pool: Pool, token: str, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    secure = pool.socket()
    secure.sendall(
        f"PUT /v1/blobs/{digest}?offset=0 HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(data)}\r\n\r\n".encode()
        + data[:200_000]
    )
    secure.unwrap()
    secure.close()
    offset = ""
    for _ in range(200):  # until the coordinator saw the end
        offset = pool.ask("HEAD", f"/v1/blobs/{digest}", token).headers.get("upload-offset", "")
        if offset == "200000":
            break
    assert offset == "200000"
    rest = pool.ask("PUT", f"/v1/blobs/{digest}?offset=200000", token, data[200_000:])
    assert rest.status == 201


def test_nobody_squats_anothers_partial_upload(pool: Pool, token: str, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    squatter = pool.token("submitter")
    junk = os.urandom(1000)
    squatted = pool.ask("PUT", f"/v1/blobs/{digest}", squatter, junk, {"Upload-Length": str(len(data))})
    assert squatted.status == 200
    assert pool.ask("HEAD", f"/v1/blobs/{digest}", token).headers.get("upload-offset") is None
    assert pool.ask("PUT", f"/v1/blobs/{digest}", token, data).status == 201
    assert pool.ask("GET", f"/v1/blobs/{digest}", token).body == data
    assert pool.ask("GET", f"/v1/blobs/{digest}", squatter).status == 404


def test_uploading_the_same_again_is_answered_at_once(pool: Pool, token: str, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    assert pool.ask("PUT", f"/v1/blobs/{digest}", token, data).status == 201
    assert pool.ask("PUT", f"/v1/blobs/{digest}", token, data).status == 201


def test_two_who_hold_the_same_sealed_bytes_both_may_read(pool: Pool, token: str, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    other = pool.token("submitter")
    assert pool.ask("PUT", f"/v1/blobs/{digest}", token, data).status == 201
    for verb in ("GET", "HEAD"):
        hidden = pool.ask(verb, f"/v1/blobs/{digest}", other)
        assert (hidden.status, data in hidden.body) == (404, False)
    assert pool.ask("PUT", f"/v1/blobs/{digest}", other, data).status == 201
    assert pool.ask("GET", f"/v1/blobs/{digest}", other).body == data
    assert pool.ask("GET", f"/v1/blobs/{digest}", token).body == data


def test_bytes_that_are_not_what_their_name_says_are_thrown_away(
    pool: Pool, token: str, blob: tuple[str, bytes]
) -> None:
    digest, data = blob
    assert pool.ask("PUT", f"/v1/blobs/{digest}", token, data[:-1] + b"?").code == "digest-mismatch"
    assert pool.ask("HEAD", f"/v1/blobs/{digest}", token).headers.get("upload-offset") is None
    assert pool.ask("PUT", f"/v1/blobs/{digest}", token, data).status == 201


def test_a_range_of_a_blob(pool: Pool, token: str, blob: tuple[str, bytes]) -> None:
    digest, data = blob
    pool.ask("POST", "/v1/blobs", token, data)
    path = f"/v1/blobs/{digest}"
    part = pool.ask("GET", path, token, headers={"Range": "bytes=10-99999"})
    assert (part.status, part.body) == (206, data[10:100_000])
    assert part.headers["content-range"] == f"bytes 10-99999/{len(data)}"
    assert pool.ask("GET", path, token, headers={"Range": "bytes=-5"}).body == data[-5:]
    beyond = pool.ask("GET", path, token, headers={"Range": f"bytes={len(data)}-"})
    assert (beyond.status, beyond.code) == (416, "range-not-satisfiable")


@pytest.mark.parametrize("digest", ["x", "0" * 63, "0" * 65, "A" * 64, "..", "%2e%2e%2f%2e%2e%2fpool.sqlite"])
def test_what_is_no_name_is_nowhere(pool: Pool, token: str, digest: str) -> None:
    assert pool.ask("GET", f"/v1/blobs/{digest}", token).status == 404
    assert pool.ask("PUT", f"/v1/blobs/{digest}", token, b"x" * 64).status == 404


def test_a_blob_without_a_length_or_of_no_length_is_refused(pool: Pool, token: str) -> None:
    connection = pool.connection()
    connection.request(
        "POST", "/v1/blobs", body=iter([b"x" * 64]), headers={"Authorization": f"Bearer {token}"}, encode_chunked=True
    )
    assert connection.getresponse().status == 411
    connection.close()
    assert pool.ask("POST", "/v1/blobs", token, b"x").code == "invalid-request"
    for length in ("-1", "x", "9" * 19):
        answer = pool.ask("PUT", f"/v1/blobs/{'0' * 64}", token, b"x" * 64, {"Upload-Length": length})
        assert answer.code == "invalid-request"


def test_more_than_the_disk_takes_is_refused_before_it_is_sent(pool: Pool) -> None:
    secure = pool.socket()
    secure.sendall(
        f"POST /v1/blobs HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {pool.admin}\r\n"
        f"Expect: 100-continue\r\nContent-Length: {1 << 39}\r\n\r\n".encode()
    )
    answer = secure.recv(65536)
    assert answer.startswith(b"HTTP/1.1 507")
    assert b"about:moregpu/out-of-space" in answer or b"about:moregpu/out-of-space" in secure.recv(65536)
    secure.close()


def test_a_refusal_in_the_middle_of_a_long_body_reaches_the_sender(pool: Pool) -> None:
    """A server that just closes resets the connection, and the reason is lost."""
    connection = pool.connection()
    connection.putrequest("POST", "/v1/blobs")
    connection.putheader("Content-Length", str(8 << 20))
    connection.putheader("Authorization", "Bearer wrong")
    connection.endheaders()
    for _ in range(8):
        connection.send(bytes(1 << 20))
    answer = connection.getresponse()
    assert answer.status in (401, 429)
    assert answer.getheader("connection") == "close"
    connection.close()


def test_a_reader_that_goes_away_in_the_middle_harms_nobody(pool: Pool, token: str) -> None:
    data = os.urandom(8 << 20)
    digest = pool.ask("POST", "/v1/blobs", token, data).json()["digest"]
    secure = pool.socket()
    secure.sendall(
        f"GET /v1/blobs/{digest} HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    secure.recv(1000)
    secure.shutdown(socket.SHUT_RDWR)
    secure.close()
    assert pool.ask("GET", f"/v1/blobs/{digest}", token).body == data


@given(text=st.text(max_size=40), size=st.integers(1, 10_000))
def test_no_range_header_breaks_it(text: str, size: int) -> None:
    try:
        span = parse_range("bytes=" + text, size)
    except NotSatisfiable:
        return
    if span is not None:
        assert 0 <= span[0] < span[1] <= size


@given(size=st.integers(1, 1000), first=st.integers(0, 1000), last=st.integers(0, 1000))
def test_a_range_means_what_rfc_9110_says(size: int, first: int, last: int) -> None:
    data = list(range(size))
    if first > last:
        assert (first < size and parse_range(f"bytes={first}-{last}", size) is None) or first >= size
    elif first < size:
        span = parse_range(f"bytes={first}-{last}", size)
        assert span is not None
        assert data[span[0] : span[1]] == data[first : last + 1]
    else:
        with pytest.raises(NotSatisfiable):
            parse_range(f"bytes={first}-{last}", size)


def test_of_what_a_worker_left_here_the_oldest_makes_room_but_not_what_it_uploads_just_now(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = "w-" + "0" * 26

    async def blob_right(bearer: str, digest: str) -> tuple[str, BlobRight] | None:
        left = 12_000 - sum(row.sealed_bytes for row in pool.services.desk.store.loose_blobs(worker))
        return (worker, BlobRight(write_bytes=10_000, left_bytes=left)) if bearer == "mgw_test" else None

    monkeypatch.setattr(pool.services.desk, "blob_right", blob_right)
    size, digests = pool.services.blobs.size, []
    for _ in range(3):
        answer = pool.ask("POST", "/v1/blobs", "mgw_test", os.urandom(5000))
        assert answer.status == 201
        digests.append(answer.json()["digest"])
    assert [size(digest) for digest in digests] == [None, 5000, 5000]

    half = os.urandom(4000)
    name = f"/v1/blobs/{blake3(half).hexdigest()}"
    assert pool.ask("PUT", name, "mgw_test", half[:1000], {"Upload-Length": str(len(half))}).status == 200
    assert size(digests[1]) is None, "the room it takes at its end is made at its beginning"
    assert pool.ask("POST", "/v1/blobs", "mgw_test", os.urandom(6500)).status == 201
    assert pool.services.blobs.unfinished_bytes(worker) == 0, "nobody goes on with it"

    open_one = pool.services.blobs.begin(worker, blake3(half).hexdigest(), 9_000)
    refused = pool.ask("POST", "/v1/blobs", "mgw_test", os.urandom(8000))
    assert (refused.status, refused.code) == (429, "too-many-requests")
    assert "hand in" in refused.json()["hint"]
    open_one.abort()
    assert pool.ask("POST", "/v1/blobs", "mgw_test", os.urandom(8000)).status == 201
