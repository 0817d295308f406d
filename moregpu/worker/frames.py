"""How agent and compute child speak: frames over a socket pair.

A frame is two little-endian u32 (length of the header, length of what follows it), a msgpack header (one of the Structs
below), and raw bytes: the values of a tiny task, so that they are copied once and never decoded. Large values lie in a
shared `Region`; its file descriptor travels over a second socket pair, once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import msgspec

from moregpu.jobs import DType

_LENGTHS = struct.Struct("<II")
MAX_FRAME_BYTES = 64 << 20


class _Frame(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A header."""


class Place(_Frame, frozen=True, kw_only=True, array_like=True):
    """Where a value lies: in the frame's raw bytes, or in the task's region."""

    dtype: DType
    shape: tuple[int, ...]  # of what is there
    start: int
    size_bytes: int
    whole_shape: tuple[int, ...] = ()  # inputs: of the array that this is a part of
    region: tuple[tuple[int, int], ...] | None = None  # inputs: which part
    resident: int | None = None  # inputs: the region that holds the whole tensor, and nothing else


# ---- agent → child ---------------------------------------------------------------------------------------------------


class RunTask(_Frame, frozen=True, kw_only=True, array_like=True, tag="run"):
    """Compute. Tasks are computed one after another, in the order they come."""

    number: int
    kind: str
    program: bytes
    parameters: bytes
    precision: str
    seed: int
    time_limit_s: float | None
    inputs: dict[str, Place]
    outputs: dict[str, Place]
    memory: int | None = None  # the region's number; None: values lie in the frames
    submitter: str = ""  # for whom: functions of two people never share a process


class StopTask(_Frame, frozen=True, kw_only=True, array_like=True, tag="stop"):
    """Stop that task, or take it from the queue. Answered by `Stopped`, unless it has just ended."""

    number: int


class SetDuty(_Frame, frozen=True, kw_only=True, array_like=True, tag="duty"):
    """Obey this share from the next slice on; 0 pauses."""

    duty: float


class Forget(_Frame, frozen=True, kw_only=True, array_like=True, tag="forget"):
    """These regions are gone."""

    regions: list[int]


ToChild = RunTask | StopTask | SetDuty | Forget


# ---- child → agent ---------------------------------------------------------------------------------------------------


class Ready(_Frame, frozen=True, kw_only=True, array_like=True, tag="ready"):
    """The engine is loaded."""

    driver: str
    memory_budget_bytes: int


class Done(_Frame, frozen=True, kw_only=True, array_like=True, tag="done"):
    """A task's outputs are there."""

    number: int
    seconds: float  # of work, rests left out
    outputs: dict[str, Place]


class Failed(_Frame, frozen=True, kw_only=True, array_like=True, tag="failed"):
    """A task could not be computed."""

    number: int
    code: str
    message: str
    fault: Literal["task", "engine", "worker"]


class Stopped(_Frame, frozen=True, kw_only=True, array_like=True, tag="stopped"):
    """A task was stopped, or taken from the queue, as asked."""

    number: int


class Beat(_Frame, frozen=True, kw_only=True, array_like=True, tag="beat"):
    """The child lives: once a second while it has a task, and at once when it begins to obey a pause."""

    number: int
    share: float | None
    paused: bool
    worked_s: float


class Unfit(_Frame, frozen=True, kw_only=True, array_like=True, tag="unfit"):
    """The device cannot be used: it does not open, or is lost for good. The child does nothing more."""

    reason: str


FromChild = Ready | Done | Failed | Stopped | Beat | Unfit

_encode = msgspec.msgpack.Encoder().encode
_to_child = msgspec.msgpack.Decoder(ToChild).decode
_from_child = msgspec.msgpack.Decoder(FromChild).decode


def frame(header: ToChild | FromChild, *raw: bytes | memoryview) -> bytes:
    """Encode a frame."""
    head = _encode(header)
    return b"".join((_LENGTHS.pack(len(head), sum(len(part) for part in raw)), head, *raw))


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self):
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self._buffer += data

    def to_child(self) -> Iterator[tuple[ToChild, bytes]]:
        """Frames that are complete, as the child reads them; raises `msgspec.DecodeError` or `ValueError`."""
        while (cut := self._cut()) is not None:
            yield _to_child(cut[0]), cut[1]

    def from_child(self) -> Iterator[tuple[FromChild, bytes]]:
        """Frames that are complete, as the agent reads them; raises `msgspec.DecodeError` or `ValueError`."""
        while (cut := self._cut()) is not None:
            yield _from_child(cut[0]), cut[1]

    def _cut(self) -> tuple[bytes, bytes] | None:
        if len(self._buffer) < _LENGTHS.size:
            return None
        head, raw = _LENGTHS.unpack_from(self._buffer)
        stop = _LENGTHS.size + head + raw
        if stop > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {stop} bytes")
        if len(self._buffer) < stop:
            return None
        with memoryview(self._buffer) as view:
            cut = bytes(view[_LENGTHS.size : _LENGTHS.size + head]), bytes(view[_LENGTHS.size + head : stop])
        del self._buffer[:stop]
        return cut
