"""One sandbox as the agent holds it: a zygote, at most one child, at most one task at a time.

A lane belongs to one session of one submitter. What its child does to itself (raises, exits, crashes, runs out of time
or memory) ends that call, with a record that the agent makes; the calls behind it go on in the next child.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from moregpu.encoding.failures import Cause, Failure, packed
from moregpu.encoding.records import Status, record
from moregpu.worker.functions.calls import CallTask, Records
from moregpu.worker.functions.frames import (
    Call,
    Clear,
    Cleared,
    Ended,
    Enter,
    Entered,
    Fork,
    Frames,
    FromZygote,
    Load,
    Refused,
    Signal,
    ToChild,
    ToZygote,
    frame,
    from_child,
    from_zygote,
)
from moregpu.worker.functions.journal import JournalReader
from moregpu.worker.functions.printed import Printed
from moregpu.worker.functions.streams import Stream
from moregpu.worker.memory import pass_region
from moregpu.worker.sandbox.box import Box, Isolation
from moregpu.worker.sandbox.start import start
from moregpu.worker.throttle.duty import DutyMeter

_log = logging.getLogger(__name__)

CLEAR_S = 0.3
"""A sandbox that is not empty by then is ended as a whole."""

START_S = 30.0
"""A zygote that has not confined itself and imported what it was told to by then is given up."""

MAX_DIED_IDLE = 3
"""Children in a row that end without having been given anything."""

ENDED_S = 1.0
"""A child whose stream has ended is heard of by its end, too, unless it closed the stream itself: so long is waited."""

_PIPE_BYTES = 1 << 16
_MAX_FRAME = 1 << 16  # what a child says is short: its results do not come this way


class LaneOwner(Protocol):
    """The room."""

    def began(self, task: CallTask) -> None:
        """Its first call is about to run."""
        ...

    def ended(self, lane: Lane, task: CallTask, records: bytes | memoryview) -> None:
        """Every call has its record."""
        ...

    def was_stopped(self, lane: Lane, task: CallTask) -> None:
        """It was stopped, as asked, and nothing of it runs any more."""
        ...

    def printed(self, task: CallTask, lines: list[str]) -> None:
        """What its calls printed."""
        ...

    def lost(self, lane: Lane, task: CallTask | None, reason: str) -> None:
        """The sandbox is gone; `task` had not begun to run in it or could not go on."""
        ...

    def is_idle(self, lane: Lane) -> None:
        """It can take a task."""
        ...


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """How a lane is started, and what its processes may take."""

    box: Box
    level: Isolation
    folder: Path
    memory_bytes: int
    processes: int
    file_bytes: int
    read: list[str]
    imports: list[str]


class Lane:
    """One sandbox, from its start to its end. Everything runs on the event loop."""

    def __init__(self, owner: LaneOwner, key: object, how: Confinement, number: int):
        """Start it. Raises `OSError` where that is not possible."""
        self.key = key
        self.task: CallTask | None = None
        self.version = ""
        self.idle_since = 0.0
        self.is_dirty = False
        """Whether a task ran here since everything in it was last ended."""
        self._owner = owner
        self._how = how
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._meter = DutyMeter()
        self._mark = self._started_at = self._loop.time()
        self._call_since_s = 0.0  # of work: when the call that runs now began
        self._calls_seen = 0
        self._is_paused = self._is_stopped = False
        self._rest: asyncio.TimerHandle | None = None
        self._waiting_clear: asyncio.TimerHandle | None = None
        self._then: Callable[[], None] | None = None  # what follows when it is clear
        self._entered = self._gone = False
        self._forks = self._died_idle = 0
        self._child: Stream | None = None
        self._passing: socket.socket | None = None
        self._loaded: set[str] = set()
        self._journal = JournalReader()
        self._records = Records()
        self._printed = Printed(self._loop.time)
        self._process, self._zygote, self._pipe = self._spawn()
        box = how.box
        self._tell(
            Enter(
                level=how.level, user=box.user, group=box.group, memory_bytes=how.memory_bytes,
                processes=how.processes, file_bytes=how.file_bytes, network=box.network, read=how.read,
                scratch=str(how.folder / "scratch"), imports=how.imports,
            )
        )  # fmt: skip
        self._fork()

    # -- what the room asks

    @property
    def pid(self) -> int:
        """Of the process that the sandbox hangs on."""
        return self._process.pid

    @property
    def memory_bytes(self) -> int:
        """What all its processes together may take."""
        return self._how.memory_bytes

    @property
    def scratch(self) -> Path:
        """Its folder to write in, where it has no root of its own."""
        return self._how.folder / "scratch"

    @property
    def scratch_bytes(self) -> int:
        """What that folder may take."""
        return self._how.box.tmpfs_bytes

    @property
    def is_free(self) -> bool:
        """Whether it can take a task now."""
        return self.task is None and self._then is None and not self._gone

    def run(self, task: CallTask) -> None:
        """Run a task's calls."""
        self.task = task
        self.is_dirty = True
        self._records = Records()
        self._printed.begin()
        now = self._loop.time()
        self._meter.rested(now - self._mark)
        self._mark = now
        if self._is_paused or self._meter.rest_s > 0.0:
            self._rest_now()
        self._send_calls()
        if self._entered:
            self._owner.began(task)

    def stop(self) -> None:
        """End the task that runs, and whatever it started."""
        task = self.task
        if task is None:
            return

        def stopped() -> None:
            self.task = None
            self._owner.was_stopped(self, task)

        self._clear(stopped, files=False)

    def clear(self) -> None:
        """Between two sessions: end what is left behind, and empty the folders."""
        if self.is_free and self.is_dirty:
            self._clear(lambda: None, files=True)

    def set_duty(self, duty: float) -> None:
        """Obey this share; 0 pauses at once."""
        self._meter.duty = duty
        was_paused, self._is_paused = self._is_paused, duty == 0.0
        if self._is_paused and self.task is not None:
            self._rest_now()
        elif was_paused and not self._is_paused:
            self._go_on()

    def tick(self, limit_memory: bool) -> None:
        """Several times a second while a task runs: rest for the duty, and look at the limits."""
        now = self._loop.time()
        if not self._entered and now - self._started_at > START_S:
            self._end("the sandbox did not start in time")
            return
        task = self.task
        if task is None or self._then is not None:
            return
        self._count(now)
        if not self._is_stopped and self._meter.rest_s > 0.0:
            self._rest_now()
        calls = self._journal.calls
        if calls != self._calls_seen:
            self._calls_seen, self._call_since_s = calls, self._meter.worked_s
        limit_s = task.time_limit_s
        if limit_s is not None and self._entered and not self._meter.worked_s - self._call_since_s <= limit_s:
            self._end_call("timeout", f"the call took longer than its time limit of {limit_s:g} s")
        elif limit_memory:
            limit = f"{self._how.memory_bytes >> 20} MiB"
            self._end_call("memory", f"the processes took more than {limit}, or than there is for all that run here")

    def close(self) -> None:
        """End everything in it. Its task is not answered any more."""
        if self._gone:
            return
        self._gone = True
        for timer in (self._rest, self._waiting_clear):
            if timer is not None:
                timer.cancel()
        if self._how.level == "landlock":
            self._tell(Clear(number=0))  # the zygote ends its children when its stream does; this is sooner
        self._zygote.close()
        self._drop_child()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._journal.close()
        if self._how.level == "bubblewrap":
            self._process.kill()  # and with it process 1 in there, and with that all others
        self._collect(20)

    # -- its processes

    def _spawn(self) -> tuple[subprocess.Popen[bytes], Stream, int]:
        ours, theirs = socket.socketpair()
        pipe, output = os.pipe2(os.O_CLOEXEC)
        try:
            with theirs:
                how = self._how
                fd = theirs.fileno()
                process = start(
                    how.box, how.level, how.folder, "moregpu.worker.functions.zygote", str(fd), fds=(fd,), output=output
                )
        except OSError:
            ours.close()
            os.close(pipe)
            self._journal.close()
            raise
        finally:
            os.close(output)
        os.set_blocking(pipe, False)
        self._loop.add_reader(pipe, self._read_pipe)
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
            self._zygote.send(data, (theirs.fileno(), received.fileno(), self._journal.fd))
        number, frames = self._forks, Frames(_MAX_FRAME)
        self._child = Stream(
            self._loop, ours, lambda data: self._child_said(number, frames, data), lambda: self._child_closed(number)
        )
        self._loaded.clear()

    def _drop_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
        if self._passing is not None:
            self._passing.close()
            self._passing = None

    # -- calls

    def _send_calls(self) -> None:
        """Send the calls of the task that have no record yet."""
        task, child, passing = self.task, self._child, self._passing
        if task is None or child is None or passing is None:
            return
        self._journal.clear()
        self._calls_seen, self._call_since_s = 0, self._meter.worked_s
        region = task.region
        try:
            if region is not None:
                pass_region(passing, region)
        except OSError:
            return  # it has just ended, and is heard of soon
        number = None if region is None else region.number
        raw = b"" if region is not None else task.raw
        if task.digest not in self._loaded:
            self._say(Load(digest=task.digest, form=task.form, where=task.program, region=number), raw)
            self._loaded.add(task.digest)
        done = self._records.calls
        sent = Call(
            number=task.number, digest=task.digest, seed=task.seed + done,
            calls=list(task.calls[done:]), where=task.arguments_from(done), shared=task.shared, region=number,
        )  # fmt: skip
        self._say(sent, raw)

    def _child_said(self, number: int, frames: Frames, data: bytes) -> None:
        if number != self._forks or self._then is not None:
            return
        try:
            for head, _ in frames.feed(data):
                said = from_child(head)
                if self.task is not None and said.number == self.task.number:
                    self._finish(self.task)
        except (msgspec.MsgspecError, ValueError):
            self._end_call("crashed", "the process spoke nonsense to its worker")

    def _finish(self, task: CallTask) -> None:
        calls, taken = self._journal.take(len(task.calls) - self._records.calls)
        if calls != len(task.calls) - self._records.calls:
            self._end_call("crashed", "the process spoke nonsense to its worker")
            return
        self._records.add(calls, taken)
        self._count(self._loop.time())
        self._read_pipe()
        self._done(task)

    def _done(self, task: CallTask) -> None:
        self._died_idle = 0
        lines = self._printed.end()
        if lines:
            self._owner.printed(task, lines)
        self._go_on()
        self.task = None
        self.idle_since = self._loop.time()
        if task.is_alone:
            self._clear(lambda: None, files=True)
        self._owner.ended(self, task, self._records.joined())
        if self.is_free:
            self._owner.is_idle(self)

    # -- what goes wrong in there

    def _child_closed(self, number: int) -> None:
        """Its end of the socket is gone, by its death or by its own hand: how it ended is told by the zygote."""
        if number == self._forks and self._then is None and not self._gone:
            self._loop.call_later(ENDED_S, self._still_unended, number)

    def _still_unended(self, number: int) -> None:
        if number == self._forks and self._then is None and not self._gone:
            self._end_call("crashed", "the process closed its connection to the worker")

    def _child_ended(self, number: int, status: int) -> None:
        if number != self._forks or self._then is not None:
            return
        if status >= 0:
            self._end_call("exited", f"the call ended its process with exit status {status}")
        else:
            self._end_call("crashed", f"the call's process was ended by {_signal_name(-status)}")

    def _end_call(self, cause: Cause, text: str) -> None:
        """End the call that runs with a failure, and everything that runs with it; the calls behind it go on."""
        task = self.task
        if task is None:  # nobody's call: a process that was left behind, or one that cannot even begin
            self._died_idle += 1
            if self._died_idle > MAX_DIED_IDLE:
                self._end(f"its processes end by themselves: {text}")
            else:
                self._clear(lambda: None, files=False)
            return
        left = len(task.calls) - self._records.calls
        self._records.add(*self._journal.take(left))
        if self._records.calls < len(task.calls):
            made = record(Status.FAILURE, packed(Failure(cause=cause, text=text)))
            self._records.add(1, b"".join(made))

        def go_on() -> None:
            self._count(self._loop.time())
            if self._records.calls == len(task.calls):
                self._done(task)
            else:
                self._send_calls()

        self._clear(go_on, files=False)

    def _clear(self, then: Callable[[], None], *, files: bool) -> None:
        """End all processes but the zygote, make a new child, and go on."""
        self._then = then
        self._drop_child()
        if self._waiting_clear is not None:
            self._waiting_clear.cancel()
        self._waiting_clear = self._loop.call_later(
            CLEAR_S if self._entered else START_S, self._end, "the sandbox did not become empty"
        )
        self._tell(Clear(number=self._forks, files=files))

    def _cleared(self, number: int) -> None:
        then = self._then
        if number != self._forks or then is None:
            return
        if self._waiting_clear is not None:
            self._waiting_clear.cancel()
            self._waiting_clear = None
        self._read_pipe()
        self.is_dirty = False
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._is_stopped = False
        self._fork()
        self._then = None
        then()
        if self.task is not None and self._is_paused:
            self._rest_now()
        if self.is_free:
            self.idle_since = self._loop.time()
            self._owner.is_idle(self)

    def _end(self, reason: str) -> None:
        """Give the whole sandbox up."""
        if self._gone:
            return
        task, then, self._then = self.task, self._then, None
        self.close()
        self.task = None
        if task is not None and then is not None and self._records.calls == len(task.calls):
            self._owner.ended(self, task, self._records.joined())
            task = None
        self._owner.lost(self, task, reason)

    # -- what the zygote says

    def _zygote_said(self, frames: Frames, data: bytes) -> None:
        try:
            for head, _ in frames.feed(data):
                self._take(from_zygote(head))
        except (msgspec.MsgspecError, ValueError):
            self._end("the sandbox spoke nonsense")

    def _take(self, said: FromZygote) -> None:
        match said:
            case Entered(version=version):
                self.version, self._entered = version, True
                if self.task is not None:
                    self._call_since_s = self._meter.worked_s
                    self._owner.began(self.task)
            case Refused(reason=reason):
                self._end(f"the sandbox could not be entered: {reason}")
            case Ended(number=number, status=status):
                self._child_ended(number, status)
            case Cleared(number=number):
                self._cleared(number)

    def _zygote_gone(self) -> None:
        if not self._gone:
            self._read_pipe()
            said = self._printed.end() or self._first_words
            self._end("the sandbox ended" + (f": {said[-1]}" if said else ""))

    _first_words: list[str] = []

    # -- the throttle

    def _count(self, now: float) -> None:
        if self._is_stopped or not self._entered:
            self._meter.rested(now - self._mark)
        else:
            self._meter.worked(now - self._mark)
        self._mark = now

    @property
    def worked_s(self) -> float:
        """Seconds of work so far, rests left out."""
        return self._meter.worked_s

    def _rest_now(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if not self._is_stopped:
            self._count(self._loop.time())
            self._is_stopped = True
            self._tell(Signal(signal=signal.SIGSTOP))
        if not self._is_paused:
            self._rest = self._loop.call_later(self._meter.owed_s, self._go_on)

    def _go_on(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self._is_stopped and not (self._is_paused and self.task is not None):
            self._count(self._loop.time())
            self._is_stopped = False
            self._tell(Signal(signal=signal.SIGCONT))

    # -- output

    def _read_pipe(self) -> None:
        if self._gone:
            return
        while True:
            try:
                data = os.read(self._pipe, _PIPE_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._pipe)
                return
            lines = self._printed.take(data)
            if self.task is not None and lines:
                self._owner.printed(self.task, lines)
            elif lines and not self._entered:
                self._first_words = lines

    # -- sending

    def _tell(self, header: ToZygote) -> None:
        self._zygote.send(frame(header))

    def _say(self, header: ToChild, raw: bytes) -> None:
        if self._child is not None:
            self._child.send(frame(header, raw))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
