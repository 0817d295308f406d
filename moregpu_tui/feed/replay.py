"""Sessions as JSON lines: written while a pool is watched, and played again at the same pace.

A line is `{"t": seconds since the start, "kind": name, "body": …}`. No secret is in them: invites and tokens
lost theirs before they became inputs, and keys of results never were inputs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from moregpu.errors import Conflict, InvalidRequest
from moregpu_tui.feed.source import Offer
from moregpu_tui.feed.still import Still
from moregpu_tui.state.events import Happened, Input, Linked, clean_data, happened

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Input)}
VERSION = 1

DEEPEST = 12
"""No input is nested deeper."""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    t: float
    kind: str
    body: msgspec.Raw = msgspec.Raw(b"null")


class Recorder:
    """Writes inputs as they come. The file is made anew, readable by its owner only."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except FileExistsError as error:
            raise InvalidRequest(f"{path} is there already", "choose another name: nothing is overwritten") from error
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}") from error
        self._clock = clock
        self._begun = clock()
        self._write("moregpu-console", {"version": VERSION})

    def wrap(self, offer: Offer) -> Offer:
        """The same way on, with a copy into the file."""

        def both(*inputs: Input) -> None:
            for one in inputs:
                self._write(type(one).__name__, one)
            offer(*inputs)

        return both

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _write(self, kind: str, body: object) -> None:
        line = {"t": round(self._clock() - self._begun, 3), "kind": kind, "body": body}
        self._file.write(msgspec.json.encode(line) + b"\n")


def read(path: Path) -> list[tuple[float, Input]]:
    """A recording: (seconds, input), made safe once more: a file is a stranger's. Raises `InvalidRequest`."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from error
    found: list[tuple[float, Input]] = []
    try:
        head = msgspec.json.decode(lines[0], type=_Line)
        if head.kind != "moregpu-console" or msgspec.json.decode(head.body)["version"] != VERSION:
            raise ValueError("another format")
        for text in lines[1:]:
            line = msgspec.json.decode(text, type=_Line)
            if line.kind in _KINDS:
                body = clean_data(msgspec.json.decode(line.body), DEEPEST)
                one = cast("Input", msgspec.convert(body, _KINDS[line.kind]))
                found.append((line.t, happened(one.event) if isinstance(one, Happened) else one))
    except (IndexError, KeyError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise InvalidRequest(f"{path} is no recording of a console", "moregpu-tui --record FILE makes one") from error
    return found


async def paced(
    lines: list[tuple[float, Input]], pause: Callable[[float], Any] = asyncio.sleep
) -> AsyncIterator[Input]:
    """Inputs at the pace at which they came."""
    at = 0.0
    for t, one in lines:
        if t > at:
            await pause(t - at)
            at = t
        yield one


class Replay(Still):
    """A recording as a source. Nothing can be changed in the past."""

    kind = "replay"

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(Conflict("this is a recording: nothing can be changed in it", "connect to a pool"))
        self._lines = read(path)
        self._clock = clock

    async def run(self, offer: Offer) -> None:
        """Play it, then stay at its end."""
        async for one in paced(self._lines):
            if isinstance(one, Linked):  # its times are of another process's clock
                one = Linked(link=msgspec.structs.replace(one.link, heard_at=self._clock()))
            offer(one)
        await super().run(offer)
