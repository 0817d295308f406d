"""One device's queue: its compute child is started, fed, watched and replaced, and its end is blamed on a task.

Everything here runs on the event loop; a tiny task costs one write and one read of a socket pair. Tasks are answered in
the order they were given, so the first unanswered one is what a crash or a hang is blamed on; the others are given to
the next child as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec

from moregpu.errors import EngineError
from moregpu.wire.messages import TaskError
from moregpu.worker.child_process import ChildProcess, spawn
from moregpu.worker.frames import Beat, Done, Failed, FromChild, Ready, RunTask, Stopped, StopTask, Unfit
from moregpu.worker.memory import Region
from moregpu.worker.starvation import Starvation

_log = logging.getLogger(__name__)

WATCH_S = 0.25
"""Period of the look at whether the child still lives, while it has a task or starts."""

IDLE_WATCH_S = 5.0
"""The same while it waits for one: then there is nothing but to unload it."""

STOP_S = 1.0
"""A child that has not stopped a task by then is replaced."""

START_S = 60.0
"""A child that has not loaded its engine by then is replaced (a cold disk takes seconds)."""

MAX_RESTART_S = 30.0

STRIKES = 2
"""Children in a row that crash or do not start, without a task done between: then a GPU is put aside."""

SLEPT_S = 2.0
"""A look that is later by so much shows that this machine, or this process, was asleep: nobody else was slow."""

MAX_AGAIN_S = 3600.0
"""Longest wait before a GPU that was put aside is tried again: an updated driver is found within it."""


class ComputeOwner(Protocol):
    """Who is told what becomes of tasks. Each task ends by exactly one of `done`, `failed`, `stopped`."""

    def begun(self, number: int) -> None:
        """The child works on it now."""
        ...

    def progressed(self, number: int, share: float) -> None:
        """Share of it that is done."""
        ...

    def done(self, number: int, done: Done, raw: bytes) -> None:
        """Its outputs are there: in `raw`, or in its region."""
        ...

    def failed(self, number: int, error: TaskError) -> None:
        """It could not be computed."""
        ...

    def stopped(self, number: int) -> None:
        """It was stopped, or taken from the queue, as asked."""
        ...

    def put_aside(self, device: str, reason: str) -> None:
        """The device takes no more tasks; called before what it had in hand fails."""
        ...

    def taken_back(self, device: str) -> None:
        """A device that was put aside opens and computes again: it takes tasks."""
        ...


class Patience:
    """How long to leave a device alone that was put aside: twice as long each time it does not last that long."""

    def __init__(self, first_s: float):
        self._first_s = first_s
        self._waited_s = 0.0
        self._back_at: float | None = None

    def put_aside(self, now: float) -> float:
        """Seconds until it is to be tried again."""
        lasted_s = 0.0 if self._back_at is None else now - self._back_at
        self._back_at = None
        has_lasted = self._waited_s == 0.0 or lasted_s > self._waited_s
        self._waited_s = self._first_s if has_lasted else min(2.0 * self._waited_s, MAX_AGAIN_S)
        return self._waited_s

    def taken_back(self, now: float) -> None:
        """It works again, for now."""
        self._back_at = now


class _Given(msgspec.Struct, kw_only=True):
    """A task that the child has not answered."""

    task: RunTask
    raw: bytes
    regions: list[Region]
    begun: bool = False
    stop_asked_at: float | None = None


class Compute:
    """One device. The child is started by the first task, and unloaded after `unload_s` without one.

    While nothing is to be computed there is no child: an engine that waits for work takes 40 MB and more.
    """

    def __init__(
        self,
        owner: ComputeOwner,
        *,
        device: str,
        cores: int,
        memory_bytes: int = 1 << 30,
        adapter: str = "",
        hang_s: float = 120.0,
        unload_s: float = 600.0,
        again_s: float = 60.0,
    ):
        """Prepare it. With `adapter` it is that graphics adapter, and can be put aside; else it is the CPU.

        A device put aside is tried again after `again_s`. When it does not open, or does not last for as long as it
        was waited for, the next wait is twice as long.
        """
        self.device = device
        self.aside = ""
        """Why it takes no more tasks; empty as long as it does."""
        self.driver = ""
        """What the child said it computes with; empty until it was ready once."""
        self.replaced = 0
        """Children that crashed, hung or did not stop."""
        self._owner = owner
        self._cores = cores
        self._memory_bytes = memory_bytes
        self._adapter = adapter
        self._strikes = 0
        self._patience = Patience(again_s)
        self._again: asyncio.TimerHandle | None = None
        self._hang_s = hang_s
        self._unload_s = unload_s
        self._duty = 1.0
        self._given: dict[int, _Given] = {}
        self._child: ChildProcess | None = None
        self._loop = asyncio.get_running_loop()
        self._starts_failed = 0
        self._start_at: float | None = None  # a restart waits until then
        self._starvation: Starvation | None = None  # of a child that has been silent for a while
        self._idle_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0  # when the timer is due
        self._closed = False
        self._is_trial = False

    # -- what the agent asks

    def warm_up(self) -> None:
        """Start the child before it is needed: a task is on its way."""
        self._is_trial = False
        if self._child is None and self._start_at is None and not self._closed and not self.aside:
            self._start()

    def try_out(self) -> None:
        """See whether a graphics adapter opens: its child ends as soon as it has, unless a task has come meanwhile.

        Once is enough: what fails later is found by the task that it fails. The CPU is always there.
        """
        if self._adapter and not self.driver and self._child is None:
            self.warm_up()
            self._is_trial = True

    def give(
        self, task: RunTask, raw: bytes = b"", region: Region | None = None, residents: Sequence[Region] = ()
    ) -> None:
        """Queue a task; `region` is its shared memory, where it has one, `residents` hold tensors that it reads."""
        if self.aside:
            self._owner.failed(task.number, self._blame(f"{self.device} is put aside: {self.aside}"))
            return
        given = _Given(task=task, raw=raw, regions=[*residents] if region is None else [region, *residents])
        self._given[task.number] = given
        self.warm_up()
        if self._child is not None:
            self._child.give(task, raw, given.regions)
            self._begin_next()
            now = self._loop.time()
            if self._look_at - now > WATCH_S:
                self._look_no_more()
                self._look_again(now)

    def stop(self, number: int) -> None:
        """Stop a task. `stopped` follows, unless it ends by itself first."""
        given = self._given.get(number)
        if given is None or given.stop_asked_at is not None:
            return
        given.stop_asked_at = self._loop.time()
        if self._child is None:
            del self._given[number]
            self._owner.stopped(number)
        else:
            self._child.wake()
            self._child.send(StopTask(number=number))

    def set_duty(self, duty: float) -> None:
        """Obey this share between slices; 0 pauses."""
        self._duty = duty
        if self._child is not None:
            self._child.set_duty(duty)

    def forget(self, regions: list[Region]) -> None:
        """Tell the child that these regions are closed."""
        if self._child is not None and regions:
            self._child.forget([region.number for region in regions])

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return None if self._child is None else self._child.process.pid

    @property
    def unanswered(self) -> int:
        """Tasks the child has in hand."""
        return len(self._given)

    async def close(self) -> None:
        """End the child. Tasks in hand are not answered any more."""
        self._closed = True
        for timer in (self._timer, self._again):
            if timer is not None:
                timer.cancel()
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    # -- the child's life

    def _start(self) -> None:
        self._start_at, self._is_trial = None, False
        adapter = (self._adapter,) if self._adapter else ()
        facts = (self.device, self._memory_bytes, *adapter)
        # Graphics drivers print as they please.
        spawned = spawn("moregpu.worker.child", facts, cores=self._cores, is_quiet=bool(self._adapter))
        self._child = ChildProcess(self, spawned, self._loop)
        self._child.set_duty(self._duty)
        for given in self._given.values():
            self._child.give(given.task, given.raw, given.regions)
        if self._timer is None:
            self._look_again(self._loop.time())

    def _look_again(self, now: float) -> None:
        wait_s = WATCH_S
        if self._child is not None and self._child.ready and not self._given:
            wait_s = min(max(WATCH_S, self._idle_since + self._unload_s - now), IDLE_WATCH_S)
        self._look_at = now + wait_s
        self._timer = self._loop.call_at(self._look_at, self._watch)

    def _look_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        """Look whether the child lives: a timer, since a task of its own would be one more thing to end."""
        now = self._loop.time()
        if now - self._look_at > SLEPT_S:
            self._awoken(now)
        self._look_again(now)
        if self._child is None:
            if self._start_at is not None and now >= self._start_at:
                self._start()
            return
        reason = self._trouble(self._child, now)
        if reason:
            self._replace(reason)
        elif not self._given and now - self._idle_since > self._unload_s:
            self._unload(self._child)

    def _unload(self, child: ChildProcess) -> None:
        self._child = None
        self._look_no_more()
        child.kill()

    def _awoken(self, now: float) -> None:
        """Count no silence from before this moment: the child slept, too, or could not be heard."""
        if self._child is not None:
            self._child.woken_at = now
            if not self._child.ready:
                self._child.started_at = now
        for given in self._given.values():
            if given.stop_asked_at is not None:
                given.stop_asked_at = now

    def _trouble(self, child: ChildProcess, now: float) -> str:
        if not child.ready:
            return "the compute process did not start in time" if now - child.started_at > START_S else ""
        if child.frozen or not self._given:
            return ""
        if not self._silent_s(child, now) <= self._hang_s:
            self._strikes = STRIKES  # a driver that hangs would do so again, for as long
            return f"the compute process gave no sign of life for {self._hang_s:g} s and was replaced"
        for given in self._given.values():
            if given.stop_asked_at is not None and now - given.stop_asked_at > STOP_S:
                return "the compute process did not stop in time and was replaced"
        return ""

    def _silent_s(self, child: ChildProcess, now: float) -> float:
        """Seconds without a sign of life, less those in which others had the cores: who is starved does not hang.

        Whether it is starved is looked at only when half of the patience is gone.
        """
        silent_s = now - max(child.heard_at, child.woken_at)
        if silent_s <= self._hang_s / 2.0:
            self._starvation = None
            return silent_s
        if self._starvation is None:
            self._starvation = Starvation(child.process.pid, now)
        return silent_s - self._starvation.look(now)

    def child_gone(self, child: ChildProcess) -> None:
        """The child closed its socket: it crashed, or was killed."""
        if child is self._child and not self._closed:
            self._replace(f"the compute process ended in the middle of the task ({child.verdict()})")

    def _replace(self, reason: str) -> None:
        child, self._child = self._child, None
        assert child is not None  # noqa: S101 — only called while there is one
        child.kill()
        self.replaced += 1
        _log.warning("%s: %s", self.device, reason)
        self._strikes += 1
        if self._adapter and (self.aside or self._strikes >= STRIKES):
            self._put_aside(reason)
            return
        self._starts_failed = 0 if child.ready else self._starts_failed + 1
        # What was to be stopped has stopped; what ran is blamed; the rest is given to the next child.
        for number in [n for n, given in self._given.items() if given.stop_asked_at is not None]:
            del self._given[number]
            self._owner.stopped(number)
        head = next(iter(self._given.values()), None)
        if head is not None and (head.begun or not child.ready):
            del self._given[head.task.number]
            self._owner.failed(head.task.number, self._blame(reason))
        for given in self._given.values():
            given.begun = False
        if not self._given:
            return
        if self._starts_failed == 0:
            self._start()
        else:
            self._start_at = self._loop.time() + min(0.5 * 2.0 ** (self._starts_failed - 1), MAX_RESTART_S)

    def _put_aside(self, reason: str) -> None:
        """Take no more tasks for a while. What is in hand fails, with the device to blame, so that others get it."""
        is_news, self.aside = not self.aside, reason
        self._start_at = None
        self._look_no_more()
        wait_s = self._patience.put_aside(self._loop.time())
        self._again = self._loop.call_later(wait_s, self._try_again)
        _log.warning("%s is put aside, and tried again in %.0f s: %s", self.device, wait_s, reason)
        if not is_news:
            return
        self._owner.put_aside(self.device, reason)
        left, self._given = self._given, {}
        for number, given in left.items():
            if given.stop_asked_at is not None:
                self._owner.stopped(number)
            else:
                self._owner.failed(number, self._blame(reason))

    def _try_again(self) -> None:
        """Start a child without a task: it opens the device and computes a little of everything before it is ready."""
        self._again = None
        if not self._closed:
            self._start()

    def _take_back(self) -> None:
        self.aside, self._strikes = "", STRIKES - 1  # the next crash is one too many
        self._patience.taken_back(self._loop.time())
        _log.warning("%s works again", self.device)
        self._owner.taken_back(self.device)

    @staticmethod
    def _blame(reason: str) -> TaskError:
        return TaskError(code=EngineError.code, message=reason, fault="engine")

    # -- what the child says

    def heard(self, child: ChildProcess, header: FromChild, raw: bytes) -> None:
        """Take one frame of the child."""
        if child is not self._child:
            return
        match header:
            case Ready(driver=driver):
                self.driver, self._starts_failed = driver, 0
                if self.aside:
                    self._take_back()
                if self._is_trial:
                    self._unload(child)
                else:
                    self._begin_next()
            case Beat(number=number, share=share):
                if share is not None and number in self._given:
                    self._owner.progressed(number, min(max(share, 0.0), 1.0))
            case Unfit(reason=reason):
                self._child = None
                child.kill()
                self._put_aside(reason)
            case Done(number=number):
                self._strikes = 0
                if self._given.pop(number, None) is not None:
                    self._owner.done(number, header, raw)
                self._begin_next()
            case Failed(number=number):
                if self._given.pop(number, None) is not None:
                    error = TaskError(code=header.code, message=header.message, fault=header.fault)
                    self._owner.failed(number, error)
                self._begin_next()
            case Stopped(number=number):
                if self._given.pop(number, None) is not None:
                    self._owner.stopped(number)
                self._begin_next()

    def _begin_next(self) -> None:
        if self._child is None or not self._child.ready:
            return
        head = next(iter(self._given.values()), None)
        if head is None:
            self._idle_since = self._loop.time()
        elif not head.begun:
            self._child.woken_at = self._loop.time()
            head.begun = True
            self._owner.begun(head.task.number)
