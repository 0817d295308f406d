"""What a connection is told in one turn goes out in one piece, in order, and nothing is held back or lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from moregpu.coordinator.cork import FULL_BYTES, Corked


class Recorder:
    """A transport that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.closed = True
        self.done.append("closed")

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> str:
        return name

    def pause_reading(self) -> None:
        self.done.append("paused")


def corked(*steps: Any) -> list[Any]:
    """What came out, turn by turn: bytes are written, None ends the loop's turn, others are called by name."""

    async def run() -> list[Any]:
        recorder = Recorder()
        transport = Corked(cast("asyncio.Transport", recorder), asyncio.get_running_loop())
        for step in steps:
            if step is None:
                await asyncio.sleep(0)
            elif isinstance(step, bytes):
                transport.write(step)
            else:
                getattr(transport, step)()
        await asyncio.sleep(0)
        return recorder.done

    return asyncio.run(run())


def test_one_turn_is_one_write() -> None:
    assert corked(b"head ", b"body", None, b"next") == [b"head body", b"next"]


def test_large_pieces_are_not_held_and_keep_their_place() -> None:
    large = bytes(FULL_BYTES + 1)
    assert corked(b"head", large, b"tail", large) == [b"head", large, b"tail", large]
    assert b"".join(corked(*[b"x" * 5000] * 10)) == b"x" * 50_000


def test_closing_comes_after_what_was_written_and_nothing_after_closing() -> None:
    assert corked(b"last words", "close") == [b"last words", "closed"]
    assert corked("close", b"too late") == ["closed"]


def test_all_else_is_the_transports_own() -> None:
    assert corked("pause_reading", b"a") == ["paused", b"a"]
