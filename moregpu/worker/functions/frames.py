"""What agent, zygote and child say to each other; framed as `moregpu.worker.frames` does.

Two streams: one to the zygote (fork, signal, clear), one to each child (programs, calls). Results
do not travel in frames: see `journal`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_LENGTHS = struct.Struct("<II")
MAX_FRAME_BYTES = 64 << 20


class _Frame(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A header."""


class Span(_Frame, frozen=True, kw_only=True, array_like=True):
    """Bytes of a task: in the frame's raw part, or in the task's region, or in one that many tasks read."""

    start: int
    size_bytes: int
    resident: int | None = None


# ---- agent → zygote --------------------------------------------------------------------------------------------------


class Fork(_Frame, frozen=True, kw_only=True, array_like=True, tag="fork"):
    """Make a child. Three descriptors follow: its stream, what regions are passed on, and its journal."""

    number: int


class Signal(_Frame, frozen=True, kw_only=True, array_like=True, tag="signal"):
    """Send this signal to all processes of the sandbox but the zygote."""

    signal: int


class Clear(_Frame, frozen=True, kw_only=True, array_like=True, tag="clear"):
    """End all processes of the sandbox but the zygote; with `files`, empty its folders, too."""

    number: int
    files: bool = False


ToZygote = Fork | Signal | Clear


# ---- zygote → agent --------------------------------------------------------------------------------------------------


class Entered(_Frame, frozen=True, kw_only=True, array_like=True, tag="entered"):
    """Confined, and ready to fork. What stands in `version` goes into statements: packages of a job run there, too."""

    version: Annotated[str, Meta(pattern=r"^Python 3\.\d{1,3}\.[0-9a-z+]{1,20}$")]


class Ended(_Frame, frozen=True, kw_only=True, array_like=True, tag="ended"):
    """A child ended, by itself or not. `status` as `os.waitstatus_to_exitcode` gives it: negative for a signal."""

    number: int
    status: int


class Cleared(_Frame, frozen=True, kw_only=True, array_like=True, tag="cleared"):
    """Nothing but the zygote is left."""

    number: int


FromZygote = Entered | Ended | Cleared


# ---- agent → child ---------------------------------------------------------------------------------------------------


class Load(_Frame, frozen=True, kw_only=True, array_like=True, tag="load"):
    """A program, once a child: in the raw part, or in the region."""

    digest: str
    form: Literal["pickle", "script"]
    where: Span
    region: int | None = None


class Call(_Frame, frozen=True, kw_only=True, array_like=True, tag="call"):
    """Call the program once for each entry of `calls`; each call adds one record to the journal."""

    number: int
    digest: str
    seed: int  # of the first of these calls; the next one has the next
    calls: list[int]  # bytes of each call's arguments, one behind the other from `where` on
    where: Span
    shared: dict[str, Span] = {}
    region: int | None = None


ToChild = Load | Call


# ---- child → agent ---------------------------------------------------------------------------------------------------


class Returned(_Frame, frozen=True, kw_only=True, array_like=True, tag="returned"):
    """All calls of a task have their records."""

    number: int


FromChild = Returned

_encode = msgspec.msgpack.Encoder().encode
to_zygote = msgspec.msgpack.Decoder(ToZygote).decode
from_zygote = msgspec.msgpack.Decoder(FromZygote).decode
to_child = msgspec.msgpack.Decoder(ToChild).decode
from_child = msgspec.msgpack.Decoder(FromChild).decode


def frame(header: ToZygote | FromZygote | ToChild | FromChild, *raw: bytes | memoryview) -> bytes:
    """Encode a frame."""
    head = _encode(header)
    return b"".join((_LENGTHS.pack(len(head), sum(len(part) for part in raw)), head, *raw))


class Frames:
    """Cuts a stream of bytes into frames: (header, raw) pairs, both still encoded."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES):
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Add what was read; gives the frames that are complete. Raises `ValueError` for one that is too large."""
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            head, raw = _LENGTHS.unpack_from(self._buffer)
            stop = _LENGTHS.size + head + raw
            if stop > self._max_bytes:
                raise ValueError(f"a frame of {stop} bytes")
            if len(self._buffer) < stop:
                return
            with memoryview(self._buffer) as view:
                cut = bytes(view[_LENGTHS.size : _LENGTHS.size + head]), bytes(view[_LENGTHS.size + head : stop])
            del self._buffer[:stop]
            yield cut
