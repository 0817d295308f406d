"""Blobs over HTTPS, blocking: sealed as they leave, opened as they arrive, resumed where a connection was cut.

Call it from threads that may wait. Memory is a record or two, whatever the blob's size.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Iterator, Sequence

import msgspec
from blake3 import blake3

from moregpu.blobs import nearby
from moregpu.blobs.calls import PROBLEM_BYTES, Calls, Send
from moregpu.blobs.format import (
    HEADER_BYTES,
    KEY_BYTES,
    RECORD_BYTES,
    SEALED_RECORD_BYTES,
    TAG_BYTES,
    Opener,
    Readable,
    Sealer,
    Writable,
    record_span,
    sealed_size,
)
from moregpu.blobs.stream import SealStream
from moregpu.errors import Conflict, DigestMismatch, InvalidRequest, NotFound, Unavailable
from moregpu.jobs import Blob

RESUMABLE_BYTES = 32 << 20
"""From here on an upload is sealed twice, once to learn its name, so that a cut costs a record and not the whole."""

_PIECE_BYTES = 1 << 20


class BlobHTTP:
    """Blobs of one coordinator.

    Args:
        address: "host:port".
        pin: SHA-256 of the leaf to trust; None or b"": the system's store verifies.
        bearer: gives the token, asked anew for each request.
        timeout_s: for every connection, read and write.
        patience_s: how long nobody may answer, or no byte arrive, before a transfer is given up; at the least the two
            seconds of `TRIES`.

    Every method may raise `Unreachable`, `WrongCertificate`, or the typed error that the coordinator answered with
    (`NotFound`, `OutOfSpace`, `Unauthorized`, …).
    """

    def __init__(
        self,
        address: str,
        pin: bytes | None,
        bearer: Callable[[], str],
        timeout_s: float = 30.0,
        patience_s: float = 0.0,
    ) -> None:
        self._calls = Calls(address, pin, bearer, timeout_s, patience_s)
        self._nearby = nearby.find(pin, address)

    # ---- up ----------------------------------------------------------------------------------------------------------

    def upload(self, sealed: Readable, digest: str) -> None:
        """Put a sealed blob there; a cut connection is resumed at the offset that arrived."""
        view = memoryview(sealed).cast("B")

        def pieces(offset: int) -> Iterator[memoryview]:
            for at in range(offset, len(view), _PIECE_BYTES):
                yield view[at : at + _PIECE_BYTES]

        self._put(digest, len(view), pieces)

    def upload_stream(self, plain: Readable, entropy: Callable[[int], bytes] = os.urandom) -> Blob:
        """Seal a buffer while sending it; returns its name and fresh key. `plain` must not change meanwhile.

        Below `RESUMABLE_BYTES` a cut connection means another sealing under another key.
        """
        return self.upload_pieces([plain], entropy)

    def upload_pieces(self, pieces: Sequence[Readable], entropy: Callable[[int], bytes] = os.urandom) -> Blob:
        """The same of a value in pieces, which are joined only where they have to be."""
        if (blob := self._upload_here(pieces, entropy)) is not None:
            return blob
        view = memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces)).cast("B")
        if len(view) >= RESUMABLE_BYTES:
            return self._upload_resumable(view, entropy)

        headers = {"Content-Length": str(sealed_size(len(view)))}

        def attempt() -> Blob:
            sent: list[Blob] = []

            def body(send: Send) -> None:
                stream = SealStream(len(view), send, entropy)
                stream.write(view)
                sent.append(stream.finish())

            self._calls.request("POST", "/v1/blobs", headers, body)
            answer = msgspec.json.decode(self._calls.answer().read(PROBLEM_BYTES), type=dict[str, str | int])
            if not sent or answer.get("digest") != sent[0].digest:
                raise DigestMismatch("The coordinator received other bytes than were sent")
            return sent[0]

        return self._calls.retrying(attempt)

    def _upload_here(self, pieces: Sequence[Readable], entropy: Callable[[int], bytes]) -> Blob | None:
        """Leave a file for the coordinator to take over; None where that is not to be done, or was refused."""
        size = sum(memoryview(piece).nbytes for piece in pieces)
        if self._nearby is None or size < nearby.LEAST_BYTES:
            return None
        left = self._nearby.leave(pieces, entropy)
        if left is None:
            return None
        name, blob = left
        headers = {"Content-Length": "0", "Upload-Length": str(sealed_size(size)), "Upload-Here": name}

        def attempt() -> None:
            self._calls.request("PUT", f"/v1/blobs/{blob.digest}", headers)
            self._calls.answer().read(PROBLEM_BYTES)

        try:
            self._calls.retrying(attempt)
        except (NotFound, DigestMismatch, InvalidRequest, Conflict):  # sent, it may be taken; or it is refused again
            self._nearby.withdraw(name)
            return None
        except BaseException:
            self._nearby.withdraw(name)
            raise
        return blob

    def _upload_resumable(self, plain: memoryview, entropy: Callable[[int], bytes]) -> Blob:
        sealer = Sealer(entropy(KEY_BYTES), len(plain))
        sealed = memoryview(bytearray(SEALED_RECORD_BYTES))
        name = blake3(sealer.header)
        tags: list[bytes] = []
        for index in range(sealer.records):
            written = sealer.seal_into(index, _record(plain, index), sealed)
            name.update(sealed[:written])
            tags.append(bytes(sealed[written - TAG_BYTES : written]))
        digest = name.hexdigest()

        def pieces(offset: int) -> Iterator[memoryview]:
            if offset < HEADER_BYTES:
                yield memoryview(sealer.header)[offset:]
            first = max(0, offset - HEADER_BYTES) // SEALED_RECORD_BYTES
            skip = max(0, offset - HEADER_BYTES) % SEALED_RECORD_BYTES
            for index in range(first, sealer.records):
                written = sealer.seal_into(index, _record(plain, index), sealed)
                if bytes(sealed[written - TAG_BYTES : written]) != tags[index]:  # never two contents under one key
                    raise DigestMismatch(
                        "The data changed while it was uploaded", "Leave arrays alone until it is done"
                    )
                yield sealed[skip:written]
                skip = 0

        self._put(digest, sealed_size(len(plain)), pieces)
        return Blob(digest=digest, key=sealer.key, size_bytes=len(plain))

    def _put(self, digest: str, total: int, pieces: Callable[[int], Iterator[memoryview]]) -> None:
        offset = 0
        first = True

        def body(send: Send) -> None:
            for piece in pieces(offset):
                send(piece)

        def attempt() -> None:
            nonlocal offset, first
            ask, first = not first, False
            while True:
                there = self._offset_there(digest, total) if ask else offset
                if there is None:
                    return
                offset, ask = there, False
                headers = {"Content-Length": str(total - offset), "Upload-Length": str(total)}
                try:
                    self._calls.request("PUT", f"/v1/blobs/{digest}?offset={offset}", headers, body)
                    answer = self._calls.answer()
                    answer.read(PROBLEM_BYTES)
                    if answer.status == 201:
                        return
                    raise Unavailable("The coordinator took an upload only in part")
                except Conflict:  # more or less is there than thought
                    if self._offset_there(digest, total) == offset:
                        raise
                    ask = True

        self._calls.retrying(attempt, progress=lambda: offset)

    def _offset_there(self, digest: str, total: int) -> int | None:
        """Sealed bytes that arrived of an own upload; None when the blob is there whole."""
        self._calls.request("HEAD", f"/v1/blobs/{digest}")
        answer = self._calls.answer(passing=(200, 404))
        answer.read()
        if answer.status == 200:
            return None
        stated = answer.headers.get("Upload-Offset", "0")
        return min(int(stated), total) if stated.isdecimal() else 0

    # ---- down --------------------------------------------------------------------------------------------------------

    def head(self, digest: str) -> int | None:
        """Sealed bytes of a blob that is there and may be read, else None."""

        def attempt() -> int | None:
            self._calls.request("HEAD", f"/v1/blobs/{digest}")
            answer = self._calls.answer(passing=(200, 404))
            answer.read()
            return int(answer.headers["Content-Length"]) if answer.status == 200 else None

        return self._calls.retrying(attempt)

    def download_into(self, blob: Blob, out: Writable, *, is_given: bool = False, is_last: bool = False) -> None:
        """Fetch a whole blob and open it into `out` (`blob.size_bytes` bytes) as it arrives.

        `is_given`: the coordinator itself has just named it to this token's holder (a part of a result, an assignment),
        so that it needs not be asked whether it may be read. `is_last`: nobody is expected to read it soon. Raises
        `DigestMismatch` when any record does not open; `out` is then not to be used.
        """
        self.download_range_into(blob, 0, blob.size_bytes, out, is_given=is_given, is_last=is_last)

    def download_range_into(
        self, blob: Blob, start: int, stop: int, out: Writable, *, is_given: bool = False, is_last: bool = False
    ) -> None:
        """Fetch the records that hold the plain bytes [start, stop) and open those bytes into `out`."""
        target = memoryview(out).cast("B")
        if len(target) != stop - start:
            raise ValueError(f"{stop - start} bytes do not go into {len(target)}")
        if start == stop or self._read_here(blob, start, stop, target, is_given=is_given, is_last=is_last):
            return
        opener = Opener.of(blob)
        index, last, _, sealed_stop = record_span(start, stop, blob.size_bytes)
        sealed = memoryview(bytearray(min(SEALED_RECORD_BYTES, blob.size_bytes + TAG_BYTES)))
        scratch = bytearray()

        def attempt() -> None:
            nonlocal index, scratch
            sealed_start = HEADER_BYTES + index * SEALED_RECORD_BYTES
            answer = self._get(blob.digest, sealed_start, sealed_stop)
            while index <= last:
                length = opener.record_bytes(index)
                _read_exactly(answer, sealed[: length + TAG_BYTES])
                record_start = index * RECORD_BYTES
                if start <= record_start and record_start + length <= stop:
                    opener.open_into(index, sealed[: length + TAG_BYTES], target[record_start - start :])
                else:
                    scratch = scratch or bytearray(RECORD_BYTES)
                    opener.open_into(index, sealed[: length + TAG_BYTES], scratch)
                    low, high = max(start, record_start), min(stop, record_start + length)
                    target[low - start : high - start] = memoryview(scratch)[low - record_start : high - record_start]
                index += 1
            self._end(answer)

        self._calls.retrying(attempt, progress=lambda: index)

    def _read_here(self, blob: Blob, start: int, stop: int, out: memoryview, *, is_given: bool, is_last: bool) -> bool:
        """Read from this machine's disk what the coordinator lets this token have; False where the network has to."""
        if self._nearby is None or stop - start < nearby.LEAST_BYTES:
            return False
        # The file could be read without asking. That a digest and a key are not enough holds here, too.
        may_be_read = is_given or self.head(blob.digest) is not None
        return may_be_read and self._nearby.read_into(blob, start, stop, out, is_last=is_last)

    def is_here(self, digest: str) -> bool:
        """Whether a blob is read from this machine's own disk: to keep another copy of it is in vain."""
        return self._nearby is not None and self._nearby.has(digest)

    def download_sealed(self, digest: str, sealed_bytes: int, write: Callable[[memoryview], None]) -> None:
        """Fetch the sealed bytes themselves, piece by piece, for a cache that checks the name at the end."""
        buffer = memoryview(bytearray(_PIECE_BYTES))
        at = 0

        def attempt() -> None:
            nonlocal at
            answer = self._get(digest, at, sealed_bytes)
            while at < sealed_bytes:
                piece = buffer[: min(_PIECE_BYTES, sealed_bytes - at)]
                _read_exactly(answer, piece)
                write(piece)
                at += len(piece)
            self._end(answer)

        if sealed_bytes:
            self._calls.retrying(attempt, progress=lambda: at)

    def close(self) -> None:
        """Close all connections, those of other threads too; transfers under way end with `Unreachable`."""
        self._calls.close()

    def reader(self, blob: Blob, *, is_given: bool = False) -> Callable[[int, int, memoryview], None]:
        """For `regions.read_part`: reads plain ranges of this blob. `is_given`: as for `download_into`."""

        def read(start: int, stop: int, out: memoryview) -> None:
            self.download_range_into(blob, start, stop, out, is_given=is_given)

        return read

    def _get(self, digest: str, start: int, stop: int) -> http.client.HTTPResponse:
        self._calls.request("GET", f"/v1/blobs/{digest}", {"Range": f"bytes={start}-{stop - 1}"})
        answer = self._calls.answer()
        if answer.status != 206 and not (answer.status == 200 and start == 0):
            self._calls.drop()
            raise Unavailable(
                "The coordinator does not send parts of blobs", "Is a proxy in between that removes ranges?"
            )
        return answer

    def _end(self, answer: http.client.HTTPResponse) -> None:
        """All that was wanted has come: keep the connection when nothing else is on it."""
        if answer.length:
            self._calls.drop()
        else:
            answer.read()  # marks the answer as done


def _record(plain: memoryview, index: int) -> memoryview:
    return plain[index * RECORD_BYTES : (index + 1) * RECORD_BYTES]


def _read_exactly(answer: http.client.HTTPResponse, out: memoryview) -> None:
    while out:
        read = answer.readinto(out)
        if not read:
            raise ConnectionResetError("the connection was cut in the middle of a blob")
        out = out[read:]
