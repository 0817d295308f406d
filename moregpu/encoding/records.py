"""Results of several calls in one stream of bytes: one record a call, in the calls' order.

    u32 status (`Status`) · u32 zero · u64 length of the content · content · zeros up to a multiple of 8

The content is an encoded value: the call's result, or its `Failure`. Streams joined are a stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from moregpu.encoding.layout import Malformed

HEAD = struct.Struct("<IIQ")
_ZEROS = bytes(8)


class Status(IntEnum):
    """What a call came to."""

    VALUE = 0
    FAILURE = 1


def record(status: Status, buffers: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """One call's record, around the buffers that `encode` gave (`failures.packed` for a failure)."""
    length = sum(memoryview(buffer).nbytes for buffer in buffers)
    gap = -length % 8
    head = HEAD.pack(status, 0, length)
    if len(buffers) == 1 and length <= 4096:
        return [b"".join((head, *buffers, _ZEROS[:gap]))]
    return [head, *buffers, *([_ZEROS[:gap]] if gap else [])]


def read_records(stream: bytes | bytearray | memoryview) -> Iterator[tuple[Status, memoryview]]:
    """Each record's status and content, not copied. Raises `Malformed` where a record ends before it should."""
    whole = memoryview(stream).cast("B")
    place = 0
    while place < len(whole):
        if place + HEAD.size > len(whole):
            raise Malformed("a record is cut off")
        status, _, length = HEAD.unpack_from(whole, place)
        place += HEAD.size
        if status not in (0, 1) or place + length > len(whole):
            raise Malformed("a record is cut off, or of an unknown kind")
        yield Status(status), whole[place : place + length]
        place += length + -length % 8


class RecordCounter:
    """Counts the records of a stream that comes in pieces, cut anywhere."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.failed = 0
        """Of the records so far, those of a failure."""
        self._count = 0
        self._head = b""
        self._left = 0  # of the record's content, and the zeros behind it
        self._is_sound = True

    @property
    def count(self) -> int | None:
        """How many records came; None where they are none, or the last one is cut off."""
        return self._count if self._is_sound and not self._head and not self._left else None

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        """Take the next piece."""
        view = memoryview(piece).cast("B")
        self.size_bytes += len(view)
        while self._is_sound and len(view):
            passed = min(self._left, len(view))
            self._left -= passed
            view = view[passed:]
            if self._left or not len(view):
                return
            missing = HEAD.size - len(self._head)
            self._head += bytes(view[:missing])
            view = view[missing:]
            if len(self._head) < HEAD.size:
                return
            status, _, length = HEAD.unpack(self._head)
            self._head, self._left = b"", length + -length % 8
            self._count += 1
            self.failed += status == Status.FAILURE
            self._is_sound = status in (Status.VALUE, Status.FAILURE)
