"""Sealed blobs: the format, sealing and opening. Pure: bytes in, bytes out.

A blob is a header of 64 bytes and records of 1 MiB plain bytes, the last one shorter; an empty blob has one empty
record. Each record is AES-256-GCM under the blob's own key, with its place and whether it is the last one in the nonce
and the header as associated data: a record out of place, a missing end, another length or key do not open. The header
follows from key and length alone, so that a reader of a range needs not fetch it.

Who seals makes a fresh key for each sealing; no key ever seals two contents.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from moregpu.errors import DigestMismatch
from moregpu.jobs import Blob

MAGIC = b"MoreGPU\0"
VERSION = 1
HEADER_BYTES = 64
RECORD_BYTES = 1 << 20
TAG_BYTES = 16
SEALED_RECORD_BYTES = RECORD_BYTES + TAG_BYTES
KEY_BYTES = 32
MAX_RECORDS = 1 << 32

_HEADER = struct.Struct(">8sIIQ16s24x")
_KEY_ID_CONTEXT = "moregpu blob key id"
_PARALLEL_BYTES = 8 << 20

Readable = bytes | bytearray | memoryview
Writable = bytearray | memoryview
Read = Callable[[int, int], Readable]
"""Sealed bytes [start, stop) of one blob."""


# ---- sizes -----------------------------------------------------------------------------------------------------------


def records(size_bytes: int) -> int:
    """Records of a blob of `size_bytes` plain bytes."""
    return max(1, -(-size_bytes // RECORD_BYTES))


def sealed_size(size_bytes: int) -> int:
    """Sealed bytes of a blob of `size_bytes` plain bytes."""
    return HEADER_BYTES + size_bytes + TAG_BYTES * records(size_bytes)


def record_span(start: int, stop: int, size_bytes: int) -> tuple[int, int, int, int]:
    """Records that hold the plain bytes [start, stop), start < stop: (first, last, sealed start, sealed stop)."""
    if not 0 <= start < stop <= size_bytes:
        raise ValueError(f"[{start}, {stop}) is not a part of {size_bytes} bytes")
    first, last = start // RECORD_BYTES, (stop - 1) // RECORD_BYTES
    sealed_stop = min(HEADER_BYTES + (last + 1) * SEALED_RECORD_BYTES, sealed_size(size_bytes))
    return first, last, HEADER_BYTES + first * SEALED_RECORD_BYTES, sealed_stop


def header_of(key: bytes, size_bytes: int) -> bytes:
    """The header of the blob of this key and length."""
    return _HEADER.pack(MAGIC, VERSION, RECORD_BYTES, size_bytes, key_id(key))


def key_id(key: bytes) -> bytes:
    """16 bytes that tell keys apart and nothing about them."""
    return blake3(key, derive_key_context=_KEY_ID_CONTEXT).digest(16)


# ---- records ---------------------------------------------------------------------------------------------------------


class Sealer:
    """Seals one content of known length, record by record, under a key that seals nothing else."""

    def __init__(self, key: bytes, size_bytes: int) -> None:
        _check_size(size_bytes)
        self.key = key
        self.size_bytes = size_bytes
        self.records = records(size_bytes)
        self.header = header_of(key, size_bytes)
        self._cipher = AESGCM(key)

    def record_bytes(self, index: int) -> int:
        """Plain bytes of record `index`."""
        return min(RECORD_BYTES, self.size_bytes - index * RECORD_BYTES)

    def seal_into(self, index: int, plain: Readable, out: Writable) -> int:
        """Seal record `index` into the front of `out`; returns the sealed bytes (plain and 16)."""
        expected = _check_index(self, index)
        if len(plain) != expected:
            raise ValueError(f"record {index} holds {expected} bytes, not {len(plain)}")
        nonce = _nonce(index, index == self.records - 1)
        return self._cipher.encrypt_into(nonce, plain, self.header, memoryview(out)[: expected + TAG_BYTES])


class Opener:
    """Opens one blob, record by record, in any order. Raises `DigestMismatch` on every fault, before use."""

    def __init__(self, key: bytes, header: Readable) -> None:
        if len(header) != HEADER_BYTES:
            raise DigestMismatch("A sealed blob is cut off within its header")
        magic, version, record_bytes, size_bytes, id = _HEADER.unpack(header)
        if magic != MAGIC or version != VERSION or record_bytes != RECORD_BYTES:
            raise DigestMismatch("That is not a sealed blob of this version")
        if len(key) != KEY_BYTES or id != key_id(key):
            raise DigestMismatch("The sealed blob belongs to another key")
        _check_size(size_bytes)
        self.size_bytes: int = size_bytes
        self.records = records(size_bytes)
        self.header = header_of(key, size_bytes)
        if bytes(header) != self.header:  # the reserved bytes
            raise DigestMismatch("That is not a sealed blob of this version")
        self._cipher = AESGCM(key)

    @classmethod
    def of(cls, blob: Blob) -> Opener:
        """From the name alone: a stored header that differs makes every record fail."""
        return cls(blob.key, header_of(blob.key, blob.size_bytes))

    def record_bytes(self, index: int) -> int:
        """Plain bytes of record `index`."""
        return min(RECORD_BYTES, self.size_bytes - index * RECORD_BYTES)

    def open_into(self, index: int, sealed: Readable, out: Writable) -> int:
        """Open record `index` into the front of `out`; returns its plain bytes. `out` is untrusted when it raises."""
        expected = _check_index(self, index)
        if len(sealed) != expected + TAG_BYTES:
            raise DigestMismatch(f"Record {index} has {len(sealed)} bytes instead of {expected + TAG_BYTES}")
        nonce = _nonce(index, index == self.records - 1)
        try:
            return self._cipher.decrypt_into(nonce, sealed, self.header, memoryview(out)[:expected])
        except InvalidTag as error:
            raise DigestMismatch(f"Record {index} of a sealed blob is damaged or exchanged") from error


# ---- whole blobs and ranges ------------------------------------------------------------------------------------------


def seal(
    buffer: Readable, key: bytes | None = None, entropy: Callable[[int], bytes] = os.urandom
) -> tuple[Blob, bytearray]:
    """Seal a whole buffer (C-contiguous; `memoryview(array).cast("B")`) in memory; the key is fresh unless given."""
    plain = memoryview(buffer).cast("B")
    sealer = Sealer(entropy(KEY_BYTES) if key is None else key, len(plain))
    sealed = bytearray(sealed_size(len(plain)))
    sealed[:HEADER_BYTES] = sealer.header
    out = memoryview(sealed)
    for index in range(sealer.records):
        start = HEADER_BYTES + index * SEALED_RECORD_BYTES
        sealer.seal_into(index, plain[index * RECORD_BYTES : (index + 1) * RECORD_BYTES], out[start:])
    return Blob(digest=name_of(sealed), key=sealer.key, size_bytes=len(plain)), sealed


def name_of(sealed: Readable) -> str:
    """A blob's digest: BLAKE3 of the sealed bytes, in hex. Uses all cores from 8 MiB on."""
    return blake3(sealed, max_threads=blake3.AUTO if len(sealed) >= _PARALLEL_BYTES else 1).hexdigest()


def open_into(blob: Blob, sealed: Readable, out: Writable) -> None:
    """Open a whole sealed buffer into `out` (`blob.size_bytes` bytes); raises `DigestMismatch` on every fault."""
    if len(sealed) != sealed_size(blob.size_bytes) or name_of(sealed) != blob.digest:
        raise DigestMismatch("A sealed blob is not what its name says")
    view = memoryview(sealed).cast("B")
    opener = Opener(blob.key, view[:HEADER_BYTES])
    if opener.size_bytes != blob.size_bytes:
        raise DigestMismatch("A sealed blob has another length than its name says")
    _open_records(opener, 0, opener.records, view[HEADER_BYTES:], memoryview(out).cast("B"))


def open_range(blob: Blob, read: Read, start: int, stop: int, out: Writable) -> None:
    """Open the plain bytes [start, stop) into `out`, reading only the records that hold them.

    Args:
        blob: which blob, and its key.
        read: gives sealed bytes [start, stop) of it.
        start: first plain byte.
        stop: plain byte after the last one.
        out: `stop - start` bytes.

    Raises:
        DigestMismatch: `read` gave other bytes than were sealed. What stands in `out` is then not to be used.
    """
    target = memoryview(out).cast("B")
    if len(target) != stop - start:
        raise ValueError(f"{stop - start} bytes do not go into {len(target)}")
    if start == stop:
        return
    opener = Opener.of(blob)
    first, last, _, _ = record_span(start, stop, blob.size_bytes)
    scratch: bytearray | None = None
    for index in range(first, last + 1):  # one at a time: what was just read is opened while it is in the cache
        plain_start = index * RECORD_BYTES
        plain_stop = plain_start + opener.record_bytes(index)
        at = HEADER_BYTES + index * SEALED_RECORD_BYTES
        sealed_bytes = plain_stop - plain_start + TAG_BYTES
        record = memoryview(read(at, at + sealed_bytes)).cast("B")
        if len(record) != sealed_bytes:
            raise DigestMismatch("A sealed blob is shorter than its name says")
        if start <= plain_start and plain_stop <= stop:
            opener.open_into(index, record, target[plain_start - start :])
        else:
            scratch = scratch or bytearray(RECORD_BYTES)
            opener.open_into(index, record, scratch)
            low, high = max(start, plain_start), min(stop, plain_stop)
            target[low - start : high - start] = memoryview(scratch)[low - plain_start : high - plain_start]


def _open_records(opener: Opener, first: int, stop: int, sealed: memoryview, out: memoryview) -> None:
    for index in range(first, stop):
        at = (index - first) * SEALED_RECORD_BYTES
        opener.open_into(index, sealed[at : at + SEALED_RECORD_BYTES], out[(index - first) * RECORD_BYTES :])


def _check_size(size_bytes: int) -> None:
    if not 0 <= size_bytes <= MAX_RECORDS * RECORD_BYTES:
        raise DigestMismatch(f"No sealed blob holds {size_bytes} bytes")


def _check_index(ends: Sealer | Opener, index: int) -> int:
    if not 0 <= index < ends.records:
        raise ValueError(f"there is no record {index}")
    return ends.record_bytes(index)


def _nonce(index: int, last: bool) -> bytes:
    return bytes(7) + index.to_bytes(4, "big") + (b"\x01" if last else b"\x00")
