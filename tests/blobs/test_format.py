"""A sealed blob opens whole and unchanged under its own key, or not at all (rows 42 and 43)."""

from __future__ import annotations

import struct

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from moregpu.blobs.format import (
    HEADER_BYTES,
    RECORD_BYTES,
    SEALED_RECORD_BYTES,
    Opener,
    Sealer,
    header_of,
    name_of,
    open_into,
    open_range,
    record_span,
    records,
    seal,
    sealed_size,
)
from moregpu.blobs.stream import SealStream
from moregpu.errors import DigestMismatch
from moregpu.jobs import Blob

KEY = bytes(range(32))
MiB = RECORD_BYTES
SIZES = [0, 1, 15, MiB - 1, MiB, MiB + 1, 2 * MiB, 5 * MiB + 7]


def pattern(size: int) -> bytes:
    return blake3(size.to_bytes(8, "big")).digest(size)


@pytest.mark.parametrize("size", SIZES)
def test_what_was_sealed_opens(size: int) -> None:
    plain = pattern(size)
    blob, sealed = seal(plain)
    assert len(sealed) == sealed_size(size)
    assert blob == Blob(digest=blake3(sealed).hexdigest(), key=blob.key, size_bytes=size)
    out = bytearray(size)
    open_into(blob, sealed, out)
    assert out == plain
    assert size < 16 or plain[:16] not in sealed


def test_two_sealings_share_neither_key_nor_name() -> None:
    (first, sealed_1), (second, sealed_2) = seal(b"same"), seal(b"same")
    assert first.key != second.key
    assert first.digest != second.digest
    assert sealed_1 != sealed_2


def test_the_header_is_as_documented() -> None:
    _, sealed = seal(b"x" * 77, key=KEY)
    magic, version, record_bytes, size, key_id, reserved = struct.unpack(">8sIIQ16s24s", sealed[:HEADER_BYTES])
    assert (magic, version, record_bytes, size) == (b"MoreGPU\0", 1, 1_048_576, 77)
    assert key_id == blake3(KEY, derive_key_context="moregpu blob key id").digest(16)
    assert reserved == bytes(24)


@pytest.mark.parametrize("size", [0, 10, 3 * MiB + 5])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_flipped_bit_anywhere_is_found(size: int, data: st.DataObject) -> None:
    blob, sealed = seal(pattern(size), key=KEY)
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1) | st.integers(0, 8 * HEADER_BYTES - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DigestMismatch):
        open_into(blob, sealed, bytearray(size))
    # a liar that also changes the name fails at the records, or at the header that they are bound to
    with pytest.raises(DigestMismatch):
        open_into(replace(blob, digest=name_of(sealed)), sealed, bytearray(size))


def sealed_records(sealed: bytes | bytearray) -> tuple[bytes, list[bytes]]:
    body = sealed[HEADER_BYTES:]
    return bytes(sealed[:HEADER_BYTES]), [
        bytes(body[at : at + SEALED_RECORD_BYTES]) for at in range(0, len(body), SEALED_RECORD_BYTES)
    ]


@pytest.mark.parametrize("fault", ["swapped", "last cut off", "last repeated", "last one earlier", "record of another"])
def test_records_out_of_place_are_refused(fault: str) -> None:
    size = 3 * MiB
    blob, sealed = seal(pattern(size), key=KEY)
    header, parts = sealed_records(sealed)
    match fault:
        case "swapped":
            parts[0], parts[1] = parts[1], parts[0]
        case "last cut off":
            parts.pop()
        case "last repeated":
            parts.append(parts[-1])
        case "last one earlier":
            parts[0], parts[2] = parts[2], parts[0]
        case _:
            parts[1] = sealed_records(seal(pattern(size))[1])[1][1]
    changed = header + b"".join(parts)
    with pytest.raises(DigestMismatch):
        open_into(replace(blob, digest=name_of(changed)), changed, bytearray(size))


def test_a_shorter_blob_does_not_pass_as_a_cut_longer_one() -> None:
    """Whole records cut off, and the header rewritten to what is left: each record is bound to its header."""
    blob, sealed = seal(pattern(3 * MiB), key=KEY)
    cut = header_of(KEY, 2 * MiB) + sealed[HEADER_BYTES : HEADER_BYTES + 2 * SEALED_RECORD_BYTES]
    with pytest.raises(DigestMismatch):
        open_into(Blob(digest=name_of(cut), key=KEY, size_bytes=2 * MiB), cut, bytearray(2 * MiB))
    with pytest.raises(DigestMismatch):
        open_into(replace(blob, digest=name_of(cut)), cut, bytearray(3 * MiB))


def test_another_key_is_refused() -> None:
    blob, sealed = seal(b"secret", key=KEY)
    with pytest.raises(DigestMismatch, match="another key"):
        open_into(replace(blob, key=bytes(32)), sealed, bytearray(6))
    with pytest.raises(DigestMismatch):
        open_range(replace(blob, key=bytes(32)), lambda start, stop: sealed[start:stop], 0, 6, bytearray(6))


@given(st.binary(max_size=200))
def test_no_header_raises_anything_else(header: bytes) -> None:
    with pytest.raises(DigestMismatch):
        Opener(KEY, header)


@given(st.binary(min_size=HEADER_BYTES - 8, max_size=HEADER_BYTES - 8), st.integers(0, 2**64 - 1))
def test_no_almost_good_header_raises_anything_else(rest: bytes, size: int) -> None:
    with pytest.raises(DigestMismatch):
        Opener(KEY, b"MoreGPU\0" + rest)
    header = bytearray(header_of(KEY, 5))
    header[16:24] = size.to_bytes(8, "big")
    if size <= 1 << 52:
        assert Opener(KEY, header).size_bytes == size  # nothing is allocated for a length
    else:
        with pytest.raises(DigestMismatch):
            Opener(KEY, header)


@given(st.integers(0, 1 << 50))
def test_a_blob_of_any_size_has_a_record_for_each_mebibyte_and_one_for_nothing(size: int) -> None:
    assert records(size) == max(1, (size + MiB - 1) // MiB)
    assert sealed_size(size) == HEADER_BYTES + size + 16 * records(size)


# ---- ranges ----------------------------------------------------------------------------------------------------------

BIG = pattern(6 * MiB + 123)
BIG_BLOB, BIG_SEALED = seal(BIG, key=KEY)
edges = st.integers(0, len(BIG)) | st.sampled_from([k * MiB + d for k in range(7) for d in (0, 1, 122)])


@given(edges, edges)
@settings(max_examples=60, deadline=None)
def test_a_range_reads_only_the_records_that_hold_it(one: int, other: int) -> None:
    start, stop = sorted((one, other))
    asked: list[tuple[int, int]] = []

    def read(low: int, high: int) -> bytes:
        asked.append((low, high))
        return bytes(BIG_SEALED[low:high])

    out = bytearray(stop - start)
    open_range(BIG_BLOB, read, start, stop, out)
    assert out == BIG[start:stop]
    if start == stop:
        assert asked == []
        return
    first, last, low, high = record_span(start, stop, len(BIG))
    assert (asked[0][0], asked[-1][1]) == (low, high)
    assert high - low <= (last - first + 1) * SEALED_RECORD_BYTES
    assert (first, last) == (start // MiB, (stop - 1) // MiB)


def test_a_range_of_a_damaged_blob_is_refused_and_others_still_open() -> None:
    sealed = bytearray(BIG_SEALED)
    sealed[HEADER_BYTES + 2 * SEALED_RECORD_BYTES + 9] ^= 1
    out = bytearray(MiB)
    open_range(BIG_BLOB, lambda start, stop: sealed[start:stop], 0, MiB, out)
    assert out == BIG[:MiB]
    with pytest.raises(DigestMismatch, match="Record 2"):
        open_range(BIG_BLOB, lambda start, stop: sealed[start:stop], MiB, 3 * MiB, bytearray(2 * MiB))
    with pytest.raises(DigestMismatch, match="shorter"):
        open_range(BIG_BLOB, lambda start, stop: sealed[start : stop - 1], 0, 5, bytearray(5))


def test_ranges_outside_and_buffers_of_another_size_are_the_callers_error() -> None:
    def read(start: int, stop: int) -> bytes:
        raise AssertionError("nothing is to be read")

    with pytest.raises(ValueError, match="do not go into"):
        open_range(BIG_BLOB, read, 0, 5, bytearray(4))
    with pytest.raises(ValueError, match="not a part"):
        open_range(BIG_BLOB, read, len(BIG), len(BIG) + 1, bytearray(1))
    with pytest.raises(ValueError, match="no record 7"):
        Sealer(KEY, 6 * MiB + 1).seal_into(7, b"", bytearray(16))
    with pytest.raises(ValueError, match="holds 1 bytes"):
        Sealer(KEY, 1).seal_into(0, b"ab", bytearray(18))


# ---- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("piece", [1 << 30, 300_000, MiB])
def test_a_stream_seals_the_same_as_a_buffer(size: int, piece: int) -> None:
    plain, sealed = pattern(size), bytearray()
    stream = SealStream(size, sealed.extend, lambda length: KEY[:length])
    for at in range(0, size, piece):
        stream.write(plain[at : at + piece])
    blob = stream.finish()
    assert (blob, sealed) == seal(plain, key=KEY)


def test_a_stream_takes_exactly_what_was_announced() -> None:
    with pytest.raises(ValueError, match="fewer"):
        SealStream(5, lambda _: None).finish()
    stream = SealStream(5, lambda _: None)
    stream.write(b"abc")
    with pytest.raises(ValueError, match="more"):
        stream.write(b"def")
    stream.write(b"de")
    assert stream.finish().size_bytes == 5
