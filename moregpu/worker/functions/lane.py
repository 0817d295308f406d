"""One sandbox and the task that runs in it: calls are sent, watched, kept to the throttle, and answered.

A lane belongs to one session of one submitter. What its child does to itself (raises, exits, crashes, runs out of time
or memory) ends that call, with a record that the agent makes; the calls behind it go on in the next child.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from moregpu.encoding.failures import Cause, Failure, packed
from moregpu.encoding.records import Status, record
from moregpu.worker.functions.calls import CallTask, Records
from moregpu.worker.functions.cell import Cell
from moregpu.worker.functions.frames import Call, Load
from moregpu.worker.functions.printed import TaskLines
from moregpu.worker.sandbox.start import Confinement
from moregpu.worker.sandbox.usage import resident_bytes
from moregpu.worker.throttle.duty import DutyMeter

MAX_DIED_IDLE = 3
"""Children in a row that end without having been given anything."""

FREEZE_S = 0.2
"""A sandbox that has no task for so long is stopped: what its functions left running takes nothing of the machine."""


class LaneOwner(Protocol):
    """The room."""

    def began(self, task: CallTask) -> None:
        """Its first call is about to run."""
        ...

    def progressed(self, task: CallTask, calls: int) -> None:
        """So many of its calls have their record."""
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


class Lane:
    """One sandbox, from its start to its end. Everything runs on the event loop."""

    def __init__(self, owner: LaneOwner, key: object, how: Confinement):
        """Start it. Raises `OSError` where that is not possible."""
        self.key = key
        self.how = how
        self.task: CallTask | None = None
        self.version = ""
        self.is_dirty = False
        """Whether a task ran here since everything in it was last ended."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.idle_since = self._loop.time()
        self._printed = TaskLines(self._loop.time)
        self._first_words: list[str] = []
        self._records = Records()
        self._meter = DutyMeter()
        self._mark = self._loop.time()  # until when work and rest are counted
        self._call_since_s = 0.0  # of work: when the call that runs now began
        self._calls_seen = 0
        self._is_paused = self._is_stopped = False
        self._rest: asyncio.TimerHandle | None = None
        self._then: Callable[[], None] | None = None  # what follows when it is clear
        self._died_idle = 0
        self._cell = Cell(self, how)

    # -- what the room asks

    @property
    def pid(self) -> int:
        """Of the process that the sandbox hangs on."""
        return self._cell.pid

    @property
    def taken_bytes(self) -> int:
        """Memory that its processes hold, less what they were given to look at."""
        if self._cell.is_closed:
            return 0
        own, shared = resident_bytes(self.pid)
        return own + max(0, shared - self._cell.lent_bytes)

    @property
    def is_free(self) -> bool:
        """Whether it can take a task now."""
        return self.task is None and self._then is None and not self._cell.is_closed

    @property
    def worked_s(self) -> float:
        """Seconds of work so far, rests left out."""
        return self._meter.worked_s

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
        else:
            self._go_on()
        self._send_calls(task)
        if self._cell.has_entered:
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
        if self._is_paused:
            self._rest_now()
        elif was_paused and self.task is not None:
            self._go_on()

    def tick(self, *, is_greedy: bool) -> None:
        """Several times a second: rest for the duty, and look at the limits. `is_greedy`: it takes too much memory."""
        now = self._loop.time()
        task = self.task
        if self._then is not None:
            return
        if task is None:
            if is_greedy:
                self.clear()
            elif self.is_dirty and not self._is_stopped and now - self.idle_since > FREEZE_S:
                self._stop()
            return
        self._count(now)
        if not self._is_stopped and self._meter.rest_s > 0.0:
            self._rest_now()
        calls = self._cell.journal.calls
        if self._calls_seen < calls <= len(task.calls) - self._records.calls:  # the child's word: it may count at will
            self._calls_seen, self._call_since_s = calls, self._meter.worked_s
            self._owner.progressed(task, self._records.calls + calls)
        limit_s = task.time_limit_s
        if limit_s is not None and self._cell.has_entered and not self._meter.worked_s - self._call_since_s <= limit_s:
            self.broke("timeout", f"the call took longer than its time limit of {limit_s:g} s")
        elif is_greedy:
            limit = f"{self.how.memory_bytes >> 20} MiB"
            self.broke("memory", f"the processes took more than {limit}, or than there is for all that run here")

    def close(self) -> None:
        """End everything in it. Its task is not answered any more."""
        self._cancel_rest()
        self._cell.close()

    # -- calls

    def _send_calls(self, task: CallTask) -> None:
        """Send the calls of the task that have no record yet."""
        self._cell.journal.clear()
        self._calls_seen, self._call_since_s = 0, self._meter.worked_s
        region = task.region
        for each in task.residents if region is None else (region, *task.residents):
            self._cell.pass_region(each)
        number = None if region is None else region.number
        raw = b"" if region is not None else task.raw
        if task.digest not in self._cell.loaded:
            self._cell.loaded.add(task.digest)
            self._cell.send(Load(digest=task.digest, form=task.form, where=task.program, region=number), raw)
        done = self._records.calls
        call = Call(
            number=task.number, digest=task.digest, seed=task.seed + done, calls=list(task.calls[done:]),
            where=task.arguments_from(done), shared=task.shared, region=number,
        )  # fmt: skip
        self._cell.send(call, raw)

    def returned(self, number: int) -> None:
        """The child says that a task's calls have their records."""
        task = self.task
        if task is None or number != task.number:
            return
        left = len(task.calls) - self._records.calls
        calls, taken = self._cell.journal.take(left)
        if calls != left:
            self.broke("crashed", "the process spoke nonsense to its worker")
            return
        self._records.add(calls, taken)
        self._count(self._loop.time())
        self._cell.read_output()
        self._done(task)

    def _done(self, task: CallTask) -> None:
        self._died_idle = 0
        lines = self._printed.end()
        if lines:
            self._owner.printed(task, lines)
        self.task = None
        self.idle_since = self._loop.time()
        if not self._is_paused:
            self._go_on()
        if task.is_alone:
            self._clear(lambda: None, files=True)
        self._owner.ended(self, task, self._records.joined())
        if self.is_free:
            self._owner.is_idle(self)

    # -- what goes wrong in there

    def broke(self, cause: Cause, text: str) -> None:
        """End the call that runs with a failure, and everything that runs with it; the calls behind it go on."""
        task = self.task
        if task is None:  # nobody's call: a process that was left behind, or one that cannot even begin
            self._died_idle += 1
            if self._died_idle > MAX_DIED_IDLE:
                self.lost(f"its processes end by themselves: {text}")
            else:
                self._clear(lambda: None, files=False)
            return
        self._records.add(*self._cell.journal.take(len(task.calls) - self._records.calls))
        if self._records.calls < len(task.calls):
            made = record(Status.FAILURE, packed(Failure(cause=cause, text=text)))
            self._records.add(1, b"".join(made))

        def go_on() -> None:
            if self._records.calls == len(task.calls):
                self._done(task)
            else:
                self._send_calls(task)

        self._clear(go_on, files=False)

    def _clear(self, then: Callable[[], None], *, files: bool) -> None:
        self._then = then
        self._cell.clear(files=files)

    def was_cleared(self) -> None:
        """Nothing that ran before runs any more, and there is a new child."""
        then, self._then = self._then, None
        self.is_dirty = False
        self._count(self._loop.time())
        self._cancel_rest()
        self._is_stopped = False
        if then is not None:
            then()
        if self.task is not None:
            self.is_dirty = True
            if self._is_paused:
                self._rest_now()
        elif self.is_free:
            self.idle_since = self._loop.time()
            self._owner.is_idle(self)

    def lost(self, reason: str) -> None:
        """Give the whole sandbox up."""
        task, self.task = self.task, None
        said = self._printed.end() or self._first_words
        told = reason if self._cell.has_entered or not said else f"{reason}: {said[-1]}"
        self.close()
        self._then = None
        if task is not None and self._records.calls == len(task.calls):
            self._owner.ended(self, task, self._records.joined())
            task = None
        self._owner.lost(self, task, told)

    # -- what the cell says beside that

    def entered(self, version: str) -> None:
        """It is confined; the child begins."""
        self.version = version
        self._mark = self._loop.time()
        if self.task is not None:
            self._call_since_s = self._meter.worked_s
            self._owner.began(self.task)

    def printed(self, data: bytes) -> None:
        """What any of its processes printed."""
        lines = self._printed.take(data)
        if not self._cell.has_entered:
            self._first_words += lines
        elif self.task is not None and lines:
            self._owner.printed(self.task, lines)

    # -- the throttle

    def _count(self, now: float) -> None:
        if self._is_stopped or not self._cell.has_entered:
            self._meter.rested(now - self._mark)
        else:
            self._meter.worked(now - self._mark)
        self._mark = now

    def _rest_now(self) -> None:
        """Stop its processes: for as long as rest is owed, or until the pause is over."""
        self._cancel_rest()
        self._stop()
        if not self._is_paused:
            self._rest = self._loop.call_later(self._meter.owed_s, self._go_on)

    def _stop(self) -> None:
        if not self._is_stopped:
            if self.task is not None:
                self._count(self._loop.time())
            self._is_stopped = True
            self._cell.signal(signal.SIGSTOP)

    def _go_on(self) -> None:
        self._cancel_rest()
        if self._is_stopped:
            if self.task is not None:
                self._count(self._loop.time())
            self._is_stopped = False
            self._cell.signal(signal.SIGCONT)

    def _cancel_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
