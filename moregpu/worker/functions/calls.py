"""A function task as the room knows it, and the records of its calls as they come together."""

from __future__ import annotations

from typing import Literal

import msgspec

from moregpu.worker.functions.frames import Span
from moregpu.worker.memory import Region


class CallTask(msgspec.Struct, kw_only=True):
    """Calls of one program."""

    number: int
    key: tuple[object, ...]  # tasks of one key may share a sandbox
    digest: str
    form: Literal["pickle", "script"]
    calls: tuple[int, ...]  # bytes of each call's arguments
    program: Span
    arguments: Span
    shared: dict[str, Span]
    raw: bytes
    region: Region | None
    residents: tuple[Region, ...] = ()  # what many tasks read
    seed: int
    time_limit_s: float | None  # of each call
    is_alone: bool  # whether nothing of it may be there for the next
    worked_before_s: float = 0.0

    def arguments_from(self, call: int) -> Span:
        """Where the arguments of the calls from this one on lie."""
        skipped = sum(self.calls[:call])
        return Span(start=self.arguments.start + skipped, size_bytes=self.arguments.size_bytes - skipped)


class Records:
    """The records of a task's first calls, one behind the other."""

    def __init__(self) -> None:
        self.calls = 0
        self._parts: list[bytes | memoryview] = []

    def add(self, calls: int, records: bytes | memoryview) -> None:
        """Append the records of the next so many calls."""
        self.calls += calls
        if len(records):
            self._parts.append(records)

    def joined(self) -> bytes | memoryview:
        """All of them."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
