"""The processes of one sandbox as the agent holds them: a zygote, and at most one child that it forked.

What is run in it, and what an end means, is decided by its `CellOwner`, the lane. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from typing import Protocol

import msgspec

from moregpu.encoding.failures import Cause
from moregpu.worker.functions.frames import (
    Clear,
    Cleared,
    Ended,
    Entered,
    Fork,
    Frames,
    FromZygote,
    Signal,
    ToChild,
    ToZygote,
    frame,
    from_child,
    from_zygote,
)
from moregpu.worker.functions.journal import JournalReader
from moregpu.worker.functions.streams import Stream
from moregpu.worker.memory import Region, pass_region
from moregpu.worker.sandbox.start import Confinement, start

CLEAR_S = 0.4
"""A sandbox that is not empty by then is ended as a whole."""

START_S = 30.0
"""A zygote that has not confined itself and imported what it was told to by then is given up."""

ENDED_S = 1.0
"""A child whose stream has ended is heard of by its end, too, unless it closed the stream itself: so long is waited."""

_IMPORTS = ("cloudpickle",)
"""What every child will want."""

_ZYGOTE = "moregpu.worker.functions.zygote"
_PIPE_BYTES = 1 << 16
_MAX_FRAME = 1 << 16  # what a child says is short: its results do not come this way


class CellOwner(Protocol):
    """Who is told what happens in there."""

    def entered(self, version: str) -> None:
        """It is confined; the child begins."""
        ...

    def returned(self, number: int) -> None:
        """The child says that a task's calls have their records."""
        ...

    def broke(self, cause: Cause, text: str) -> None:
        """The child is gone, or of no use."""
        ...

    def was_cleared(self) -> None:
        """Nothing that ran before runs any more, and there is a new child."""
        ...

    def printed(self, data: bytes) -> None:
        """What any of its processes printed."""
        ...

    def lost(self, reason: str) -> None:
        """The sandbox is of no use any more; it has yet to be closed."""
        ...


class Cell:
    """One sandbox's processes, from their start to their end."""

    def __init__(self, owner: CellOwner, how: Confinement):
        """Start it. Raises `OSError` where that is not possible."""
        self.how = how
        self.has_entered = False
        self.is_clearing = False
        self.is_closed = False
        self.loaded: set[str] = set()
        """Programs that the child has."""
        self._passed: dict[int, int] = {}
        self.journal = JournalReader()
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.TimerHandle | None = None
        self._forks = 0
        self._child: Stream | None = None
        self._passing: socket.socket | None = None
        self._process, self._zygote, self._pipe = self._spawn()
        self._waiting = self._loop.call_later(START_S, owner.lost, "the sandbox did not start in time")
        self._fork()

    @property
    def pid(self) -> int:
        """Of the process that the sandbox hangs on."""
        return self._process.pid

    @property
    def lent_bytes(self) -> int:
        """Memory that the agent and its processes share: inputs and results."""
        return sum(self._passed.values()) + self.journal.size_bytes

    # -- what its owner asks

    def send(self, header: ToChild, raw: bytes) -> None:
        """To the child."""
        if self._child is not None:
            self._child.send(frame(header, raw))

    def pass_region(self, region: Region) -> None:
        """Give the child a region's descriptor, once, ahead of the frame that names it."""
        if self._passing is not None and region.number not in self._passed:
            self._passed[region.number] = region.size_bytes
            try:
                pass_region(self._passing, region)
            except OSError:
                pass  # it has just ended, and is heard of soon

    def signal(self, number: int) -> None:
        """To all its processes but the zygote."""
        self._tell(Signal(signal=number))

    def clear(self, *, files: bool) -> None:
        """End all its processes but the zygote, and make a new child: `was_cleared` follows, or `lost`."""
        self.is_clearing = True
        self._drop_child()
        self._wait(CLEAR_S if self.has_entered else START_S, "the sandbox did not become empty")
        self._tell(Clear(number=self._forks, files=files))

    def read_output(self) -> None:
        """Take in what was printed until now."""
        while not self.is_closed:
            try:
                data = os.read(self._pipe, _PIPE_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._pipe)
                return
            if not self.has_entered:
                # A call prints after its sandbox was entered: that word is there by now, on another descriptor, and
                # without it these were words about the way in.
                self._zygote.read_now()
            self._owner.printed(data)

    def close(self) -> None:
        """End everything in it; nothing is told any more."""
        if self.is_closed:
            return
        self.is_closed = True
        self._wait(None)
        if self.how.level == "landlock":
            self._tell(Clear(number=0))  # the zygote ends its children when its stream does; this is sooner
        self._zygote.close()
        self._drop_child()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self.journal.close()
        if self.how.level == "bubblewrap":
            self._process.kill()  # and with it process 1 in there, and with that all others
        self._collect(20)

    # -- the processes

    def _spawn(self) -> tuple[subprocess.Popen[bytes], Stream, int]:
        ours, theirs = socket.socketpair()
        pipe, output = os.pipe2(os.O_CLOEXEC)
        try:
            with theirs:
                fd, how = theirs.fileno(), self.how
                facts = (str(fd), how.level, str(how.scratch), *_IMPORTS)
                process = start(how, _ZYGOTE, *facts, fds=(fd,), output=output)
        except OSError:
            ours.close()
            os.close(pipe)
            self.journal.close()
            raise
        finally:
            os.close(output)
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self.read_output)
        frames = Frames(_MAX_FRAME)
        return process, Stream(self._loop, ours, lambda data: self._zygote_said(frames, data), self._zygote_gone), pipe

    def _collect(self, tries: int) -> None:
        if self._process.poll() is None:
            if tries == 0:
                self._process.kill()
            self._loop.call_later(0.05, self._collect, tries - 1)

    def _fork(self) -> None:
        """Have the zygote make a child; what is sent to it waits in its socket until it is there."""
        self._forks += 1
        ours, theirs = socket.socketpair()
        self._passing, received = socket.socketpair()
        for each in (ours, theirs):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs, received:
            data = frame(Fork(number=self._forks))
            self._zygote.send(data, (theirs.fileno(), received.fileno(), self.journal.fd))
        number, frames = self._forks, Frames(_MAX_FRAME)
        self._child = Stream(
            self._loop, ours, lambda data: self._child_said(number, frames, data), lambda: self._child_closed(number)
        )
        self.loaded.clear()
        self._passed.clear()

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
        if self._passing is not None:
            self._passing.close()
            self._passing = None

    def _tell(self, header: ToZygote) -> None:
        self._zygote.send(frame(header))

    def _wait(self, seconds: float | None, otherwise: str = "") -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = None if seconds is None else self._loop.call_later(seconds, self._owner.lost, otherwise)

    # -- what they say

    def _is_old(self, number: int) -> bool:
        """Whether this is news of a child that does not matter any more."""
        return number != self._forks or self.is_clearing or self.is_closed

    def _child_said(self, number: int, frames: Frames, data: bytes) -> None:
        try:
            for head, _ in frames.feed(data):
                if self._is_old(number):
                    return
                self._owner.returned(from_child(head).number)
        except (msgspec.MsgspecError, ValueError):
            if not self._is_old(number):
                self._owner.broke("crashed", "the process spoke nonsense to its worker")

    def _child_closed(self, number: int) -> None:
        """Its end of the socket is gone, by its death or by its own hand: how it ended is told by the zygote."""
        if not self._is_old(number):
            self._loop.call_later(ENDED_S, self._still_unended, number)

    def _still_unended(self, number: int) -> None:
        if not self._is_old(number):
            self._owner.broke("crashed", "the process closed its connection to the worker")

    def _zygote_said(self, frames: Frames, data: bytes) -> None:
        try:
            for head, _ in frames.feed(data):
                if not self.is_closed:
                    self._take(from_zygote(head))
        except (msgspec.MsgspecError, ValueError):
            self._owner.lost("the sandbox spoke nonsense")

    def _take(self, said: FromZygote) -> None:
        match said:
            case Entered(version=version) if not self.has_entered:
                self.has_entered = True
                self._wait(CLEAR_S if self.is_clearing else None, "the sandbox did not become empty")
                self._owner.entered(version)
            case Ended(number=number, status=status):
                if not self._is_old(number):
                    self._owner.broke(*_end(status))
            case Cleared(number=number):
                if self.is_clearing and number == self._forks:
                    self._cleared()
            case Entered():
                raise ValueError("a sandbox is entered once")

    def _cleared(self) -> None:
        self._wait(None)
        self.read_output()
        self._fork()
        self.is_clearing = False
        self._owner.was_cleared()

    def _zygote_gone(self) -> None:
        if not self.is_closed:
            self.read_output()
            self._owner.lost("the sandbox ended")


def _end(status: int) -> tuple[Cause, str]:
    """What an exit status says: negative for a signal."""
    if status >= 0:
        return "exited", f"the call ended its process with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return "crashed", f"the call's process was ended by {name}"
