"""What is open on the link, and what to say again after it dropped. Pure: frames in, who is to hear what out.

`moregpu.wire.link` says what the messages mean; `moregpu.client.link` owns the socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from moregpu.client.words import packed
from moregpu.errors import HandshakeFailed, InvalidRequest, MoreGPUError, from_code
from moregpu.wire.api import Problem
from moregpu.wire.link import MAX_TO_LINK_BYTES, Ended, FromLink, Refused, Shown, Stop, ToLink

Hear = Callable[[FromLink | MoreGPUError], None]
"""Told every answer in order; the last one is `Ended`, `Shown` or an error."""

_decode = msgspec.msgpack.Decoder(FromLink).decode


class _Open(NamedTuple):
    frame: bytes
    hear: Hear


class Heard(NamedTuple):
    """An answer and who waits for it."""

    hear: Hear
    answer: FromLink | MoreGPUError


class Exchanges:
    """The requests that are open on one link. Not thread-safe: its shell holds a lock."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, make: Callable[[int], ToLink], hear: Hear) -> tuple[int, bytes]:
        """Open a request; returns its id and its frame. Raises `InvalidRequest` for one that no frame holds."""
        id = self._next
        frame = packed(make(id))
        if len(frame) > MAX_TO_LINK_BYTES:
            raise InvalidRequest(f"a request of {len(frame)} bytes; the link takes {MAX_TO_LINK_BYTES}")
        self._next += 1
        self._open[id] = _Open(frame, hear)
        return id, frame

    def received(self, frame: bytes) -> Heard | None:
        """Read an answer; None for one that nobody waits for any more. Raises `HandshakeFailed` for no answer."""
        try:
            answer = _decode(frame)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise HandshakeFailed(
                f"the coordinator's answer is not understood: {error}", "is it a MoreGPU coordinator of this version?"
            ) from error
        if answer.id is None:
            return None
        waiting = self._open.get(answer.id)
        if waiting is None:
            return None
        if isinstance(answer, Ended | Shown | Refused):
            del self._open[answer.id]
        return Heard(waiting.hear, error_of(answer.problem) if isinstance(answer, Refused) else answer)

    def again(self) -> list[bytes]:
        """What to send on a new connection: idempotency keys make each of them find its own job."""
        return [waiting.frame for waiting in self._open.values()]

    def stop(self, id: int) -> bytes | None:
        """Close a request: nobody hears of it any more. The frame that says so, where there is need to."""
        return packed(Stop(id=id)) if self._open.pop(id, None) else None

    def fail(self, error: MoreGPUError) -> list[Heard]:
        """Close all with an error."""
        closed = [Heard(waiting.hear, error) for waiting in self._open.values()]
        self._open.clear()
        return closed


def error_of(problem: Problem) -> MoreGPUError:
    """The error that a problem document names."""
    return from_code(problem.type.rpartition("/")[2], problem.detail or problem.title, problem.hint)
