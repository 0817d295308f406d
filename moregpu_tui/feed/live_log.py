"""A job's own log as it grows: server-sent events, read on a thread of its own.

The stream of events tells live lines to whoever keeps up; what a job prints is wanted whole, also what was printed
before anybody looked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import msgspec

from moregpu.client.doors import Doors, path_of
from moregpu.errors import MoreGPUError
from moregpu.wire.api import LogLine

_decode = msgspec.json.Decoder(LogLine).decode

GATHER_S = 0.1
"""Lines that come within so long are told together."""


class Following:
    """One connection to one job's log. `lines` gives what came; it ends with the job, or raises what went wrong."""

    def __init__(self, doors: Doors, job: str) -> None:
        self._doors = doors
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._came: list[LogLine] = []
        self._news = asyncio.Event()
        self._ended = False
        self._error: MoreGPUError | None = None
        self._stopped = threading.Event()

    async def lines(self, tell: Callable[[list[LogLine]], None]) -> None:
        """Tell lines as they come, in their order. Raises what ended the connection before the job ended."""
        threading.Thread(target=self._read, name="console-log", daemon=True).start()
        try:
            while not self._ended or self._came:
                await self._news.wait()
                self._news.clear()
                await asyncio.sleep(GATHER_S)
                came, self._came = self._came, []
                if came:
                    tell(came)
            if self._error is not None:
                raise self._error
        finally:
            # The thread wakes with the next piece, a quarter of a minute later at most, and finds that nobody listens.
            self._stopped.set()

    def _read(self) -> None:
        error: MoreGPUError | None = None
        try:
            pieces = self._doors.read(
                path_of("jobs", self._job, "logs"), accept="text/event-stream", query={"follow": 1}
            )
            for line in read_lines(pieces):
                if self._stopped.is_set():
                    return
                self._call(self._came.append, line)
        except MoreGPUError as broken:
            error = broken
        finally:
            self._doors.close()
            self._call(self._end, error)

    def _call(self, work: Callable[..., None], argument: object) -> None:
        def done() -> None:
            work(argument)
            self._news.set()

        try:
            self._loop.call_soon_threadsafe(done)
        except RuntimeError:
            self._stopped.set()  # the console is gone

    def _end(self, error: MoreGPUError | None) -> None:
        self._ended, self._error = True, error


def read_lines(pieces: Iterator[bytes]) -> Iterator[LogLine]:
    """The lines in a body of server-sent events, cut anywhere. What is none of this version's is passed over."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for text in whole:
            if text.startswith(b"data: "):
                try:
                    yield _decode(text[6:])
                except msgspec.DecodeError:
                    continue
