"""An asyncio event loop on virtual time, with processes that freeze and die: production's code, one seed, no waiting.

Every callback belongs to the process whose context it was made in. A process that dies between two callbacks leaves no
trace of what it had in hand, as after `kill -9`: no `finally`, no last commit. When nothing is ready, time jumps to the
next timer; when there is neither, the history is stuck, and that is a finding.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from moregpu.errors import MoreGPUError

BIRTH = 1000.0
EPOCH = 1_800_000_000.0


class Stuck(AssertionError):
    """Everything waits for something that will never come."""


class Process:
    """One running program. What it does is done by callbacks that inherit its context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0
        self.steps = 0
        """Callbacks that it ran."""
        self.dies_at: int | None = None
        """It is killed before it runs this step …"""
        self.when_killed: Callable[[], None] = lambda: None
        """… which calls this."""
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call something as this process, now."""
        return self.context.run(function, *args)


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)
_serial = itertools.count()


class _Task(asyncio.Task[Any]):
    """Sets of tasks have one order, whatever the addresses in memory are."""

    def __init__(self, coro: Any, *, context: contextvars.Context | None = None, **options: Any) -> None:
        self.serial = next(_serial)
        self.process = PROCESS.get() if context is None else context.get(PROCESS)
        super().__init__(coro, context=context, **options)
        self.get_loop().tasks.add(self)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


class _Handle:
    """A callback that is due. Lighter than asyncio's, of which it has what tasks, futures and timeouts ask for."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "process", "when_due")

    def __init__(self, callback: Any, args: Any, context: Any, when_due: float = 0.0) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context
        self.process = self.context.get(PROCESS)
        self.is_cancelled = False
        self.when_due = when_due

    def cancel(self) -> None:
        self.is_cancelled = True
        self.callback = self.args = None

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_due


class SimulatedLoop(asyncio.BaseEventLoop):
    """Virtual time; no threads, no sockets, no files."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BIRTH
        self.handled = 0
        """Callbacks that ran."""
        self.faults: list[str] = []
        """Exceptions that nobody caught."""
        self._ready: list[_Handle] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._order = itertools.count()
        self._stopping = False
        self._buried: list[Any] = []
        self.tasks: weakref.WeakSet[_Task] = weakref.WeakSet()
        """This world's alone: asyncio's set also holds those of earlier histories that nobody collected yet."""
        self.get_debug = False.__bool__  # type: ignore[method-assign]  # asked for at every callback and task
        self.set_task_factory(lambda loop, coro, **options: _Task(coro, loop=loop, **options))
        self.set_exception_handler(self._fault)

    # -- time

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = _Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        when = self.now + delay
        handle = _Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _run_once(self) -> None:
        timers = self._timers
        if not self._ready:
            while timers and timers[0][2].is_cancelled:
                heapq.heappop(timers)
            if not timers:
                raise Stuck("no timer is set and nothing is ready")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(timers)[2])
        ready, self._ready = self._ready, []
        for handle in ready:
            if handle.is_cancelled:
                continue
            process = handle.process
            if process is not None and not self._may_run(process, handle):
                continue
            self.handled += 1
            try:
                handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio's handles
                self.call_exception_handler({"message": f"Exception in {handle.callback}", "exception": error})

    def _may_run(self, process: Process, handle: _Handle) -> bool:
        if not process.alive:
            self._buried.append(handle)
            return False
        if process.frozen_until > self.now:
            heapq.heappush(self._timers, (process.frozen_until, next(self._order), handle))
            return False
        process.steps += 1
        if process.dies_at is not None and process.steps >= process.dies_at:
            process.dies_at = None
            process.when_killed()
            self._buried.append(handle)
            return process.alive
        return True

    # -- processes

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a process."""
        return self.create_task(work, context=process.context)

    def kill(self, process: Process) -> None:
        """End a process: nothing of it runs any more, not even what would clean up."""
        process.alive = False
        # Kept, or their `finally` would run when they are collected.
        self._buried += [task for task in self.tasks if task.process is process and not task.done()]

    def abandon(self) -> None:
        """The history is over: let everything go. What unfinished coroutines say when they are collected is no news."""
        unraisable, sys.unraisablehook = sys.unraisablehook, lambda _: None
        self.set_exception_handler(lambda loop, context: None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _ in range(3):  # a `finally` may start another task
                    for task in [task for task in self.tasks if not task.done()]:
                        task._log_destroy_pending = False  # type: ignore[attr-defined]
                        with suppress(RuntimeError):
                            task.get_coro().close()  # type: ignore[union-attr]
                self._ready.clear()
                self._timers.clear()
                self._buried.clear()
        finally:
            sys.unraisablehook = unraisable
        self.close()

    # -- the rest of a loop

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, MoreGPUError) and isinstance(context.get("future"), asyncio.Future):
            return  # whoever would have been told is gone
        self.faults.append(f"{context.get('message')}: {error!r}")

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise AssertionError("the simulation has no threads: give the part an `offload` that runs inline")


class SimulatedClock:
    """One machine's clock: monotonic follows the loop, wall may be off and jump."""

    def __init__(self, loop: SimulatedLoop, ahead_s: float = 0.0) -> None:
        self.loop = loop
        self.ahead_s = ahead_s

    def monotonic(self) -> float:
        return self.loop.now

    def wall(self) -> float:
        return EPOCH + self.loop.now + self.ahead_s


class Entropy:
    """Seeded bytes for keys, tokens and jitter."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_

    def __call__(self, size: int) -> bytes:
        return self.random.randbytes(size)
