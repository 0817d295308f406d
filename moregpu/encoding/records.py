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
