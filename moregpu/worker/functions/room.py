"""Where a worker runs functions: takes tasks as `Compute` does, and keeps the sandboxes that they run in.

Each session of each submitter has sandboxes of its own, and as many run at once as cores are lent. Before another
session's task begins, whatever the sessions left behind that have nothing to do now is ended.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from moregpu.errors import EngineError, MoreGPUError
from moregpu.platform.memory import forget_rooms
from moregpu.wire.messages import TaskError
from moregpu.worker.compute import ComputeOwner
from moregpu.worker.frames import Done, Place, RunTask
from moregpu.worker.functions.calls import CallTask
from moregpu.worker.functions.frames import Span
from moregpu.worker.functions.lane import Lane
from moregpu.worker.memory import Region
from moregpu.worker.sandbox.box import Box, Runtime, code_folder
from moregpu.worker.sandbox.level import Level, readable_paths
from moregpu.worker.sandbox.start import Confinement
from moregpu.worker.sandbox.usage import counted_beside, family, folder_bytes
from moregpu.workloads.function.spec import ARGUMENTS, MAX_RESULT_BYTES, PROGRAM, RESULTS, SHARED, CallPlan

TICK_S = 0.03
"""Period of the look at duty and limits while calls run: a slice is at most that long."""

WATCH_TICKS = 8
"""Memory is looked at so seldom: it costs a walk over the processes."""

IDLE_S = 60.0
"""A sandbox without work for so long is ended."""

SPARE_LANES = 2
"""Idle sandboxes beyond those that may run at once."""

PROCESSES = 256
"""Of one sandbox."""

_log = logging.getLogger(__name__)


class RoomOwner(ComputeOwner, Protocol):
    """Who is told what becomes of tasks."""

    def done(self, number: int, done: Done, raw: bytes | memoryview) -> None:
        """Its results are there, in `raw`: of any size, and the agent's own."""
        ...

    def printed(self, number: int, lines: list[str]) -> None:
        """What a task's calls printed."""
        ...


GetRuntime = Callable[[str, tuple[str, ...]], Awaitable[Runtime]]
"""The Python of that minor version with these packages; raises `MoreGPUError` where it cannot be had."""


class FunctionRoom:
    """All functions of a worker."""

    device = "cpu"
    aside = ""

    def __init__(
        self,
        owner: RoomOwner,
        *,
        level: Level,
        runtime: GetRuntime,
        folder: Path,
        cores: int = 1,
        memory_bytes: int | None = None,
        network: bool = False,
    ):
        """Prepare it; the first task starts the first sandbox.

        Args:
            owner: is told what becomes of tasks.
            level: how functions are confined.
            runtime: gives the Python for a task.
            folder: for the sandboxes' own files, emptied here.
            cores: how many sandboxes run at once.
            memory_bytes: what all sandboxes together may take; by default half of the machine's.
            network: whether functions that ask for the network get it.
        """
        self.driver = ""
        self._owner = owner
        self._level = level
        self._runtime = runtime
        self._folder = folder
        self._width = max(1, cores)
        self._memory_bytes = memory_bytes or psutil.virtual_memory().total // 2
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._runtimes: dict[tuple[str, tuple[str, ...]], Runtime] = {}
        self._building: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, CallTask] = {}
        self._plans: dict[int, CallPlan] = {}
        self._running: dict[int, Lane] = {}
        self._lanes: list[Lane] = []
        self._duty = 1.0
        self._made = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._closed = False
        shutil.rmtree(folder, ignore_errors=True)

    # -- what the agent asks

    def give(
        self, task: RunTask, raw: bytes = b"", region: Region | None = None, residents: Sequence[Region] = ()
    ) -> None:
        """Queue a task; `region` holds its inputs, where it has one, `residents` values that many tasks read."""
        try:
            plan = msgspec.msgpack.decode(task.parameters, type=CallPlan)
            made = _call_task(task, plan, raw, region, tuple(residents))
            if plan.network and not self._network:
                raise EngineError("this worker's owner gives functions no network")
        except (msgspec.MsgspecError, MoreGPUError, LookupError) as error:
            self._fail(task.number, str(error), "engine")
            return
        self._waiting[task.number] = made
        self._plans[task.number] = plan
        needs = (plan.python, plan.requires)
        known = self._runtimes.get(needs)
        if known is not None and known.python == sys.executable:
            self._dispatch()  # the worker's own; an environment is asked for each time: it stays while it is in use
        else:
            build = self._loop.create_task(self._build(task.number, needs))
            self._building[task.number] = build
            build.add_done_callback(lambda _: self._building.pop(task.number, None))

    def stop(self, number: int) -> None:
        """Stop a task. `stopped` follows, unless it ends by itself first."""
        if self._waiting.pop(number, None) is not None:
            self._plans.pop(number, None)
            build = self._building.pop(number, None)
            if build is not None:
                build.cancel()
            self._owner.stopped(number)
        elif number in self._running:
            self._running[number].stop()

    def set_duty(self, duty: float) -> None:
        """Obey this share; 0 stops all functions where they are."""
        self._duty = duty
        for lane in self._lanes:
            lane.set_duty(duty)
        self._dispatch()

    def forget(self, regions: list[Region]) -> None:
        """Regions that are closed: nothing here holds on to them."""

    @property
    def pid(self) -> int | None:
        """Of a sandbox, while there is one."""
        return self._lanes[0].pid if self._lanes else None

    @property
    def pids(self) -> list[int]:
        """Of all processes in the sandboxes."""
        return [pid for lane in self._lanes for pid in family(lane.pid)]

    def runtimes(self) -> list[Runtime]:
        """The Pythons that sandboxes here have, or that tasks wait for a sandbox with."""
        waiting = [self._runtimes.get((plan.python, plan.requires)) for plan in self._plans.values()]
        return [*(lane.how.box.runtime for lane in self._lanes), *(each for each in waiting if each is not None)]

    @property
    def unanswered(self) -> int:
        """Tasks in hand."""
        return len(self._waiting) + len(self._running)

    def warm_up(self) -> None:
        """Nothing is started before somebody's task says for whom."""

    async def close(self) -> None:
        """End all sandboxes. Tasks in hand are not answered any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        builds = list(self._building.values())
        for build in builds:
            build.cancel()
        await asyncio.gather(*builds, return_exceptions=True)
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self._forget_rooms()
        self._running.clear()
        self._waiting.clear()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    # -- who runs where

    async def _build(self, number: int, needs: tuple[str, tuple[str, ...]]) -> None:
        try:
            self._runtimes[needs] = await self._runtime(*needs)
        except MoreGPUError as error:
            if self._waiting.pop(number, None) is not None:
                self._plans.pop(number, None)
                fault = "task" if error.code == "environment-refused" else "engine"
                self._owner.failed(number, TaskError(code=error.code, message=str(error), fault=fault))
            return
        self._dispatch()

    def _dispatch(self) -> None:
        if self._duty == 0.0 or self._closed:
            return
        for number, task in list(self._waiting.items()):
            if len(self._running) >= self._width:
                break
            plan = self._plans[number]
            runtime = self._runtimes.get((plan.python, plan.requires))
            if runtime is None:
                continue
            lane = self._lane_for(task, plan, runtime)
            if lane is None:
                break
            del self._waiting[number], self._plans[number]
            self._running[number] = lane
            self._end_left_behind(task)
            self._owner.begun(task.number)  # from here on its calls may run, whatever becomes of the sandbox
            lane.run(task)
        if self._timer is None and self._lanes:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _lane_for(self, task: CallTask, plan: CallPlan, runtime: Runtime) -> Lane | None:
        lane = next((lane for lane in self._lanes if lane.key == task.key and lane.is_free), None)
        if lane is not None:
            return lane
        idle = sorted((lane for lane in self._lanes if lane.is_free), key=lambda lane: lane.idle_since)
        while idle and len(self._lanes) >= self._width + SPARE_LANES:
            self._close_lane(idle.pop(0))
        self._made += 1
        try:
            lane = Lane(self, task.key, self._confinement(plan, runtime))
        except OSError as error:
            del self._waiting[task.number], self._plans[task.number]
            self._fail(task.number, f"no sandbox could be started: {error.strerror or error}", "engine")
            return None
        lane.set_duty(self._duty)
        self._lanes.append(lane)
        return lane

    def _end_left_behind(self, task: CallTask) -> None:
        """What other sessions left running ends before this task begins, unless they have more to do here."""
        wanted = {task.key, *(other.key for other in self._waiting.values())}
        for lane in self._lanes:
            if lane.key not in wanted:
                lane.clear()

    def _confinement(self, plan: CallPlan, runtime: Runtime) -> Confinement:
        who = self._level.who
        memory = min(self._memory_bytes, plan.memory_bytes or self._memory_bytes)
        return Confinement(
            box=Box(
                runtime=runtime,
                network=plan.network and self._network,
                gpu=plan.gpu,
                cores=min(plan.cores, self._width),
                user=who.user,
                group=who.group,
            ),
            level=self._level.isolation,
            folder=self._folder / str(self._made),
            memory_bytes=memory,
            processes=PROCESSES + counted_beside(self._level.isolation, who.user),
            file_bytes=MAX_RESULT_BYTES,
            read=readable_paths(runtime.folders + runtime.paths, code_folder() / "moregpu"),
        )

    def _close_lane(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        lane.close()
        self._forget_rooms()

    def _forget_rooms(self) -> None:
        if not self._lanes:
            forget_rooms()  # of results: there are none to come

    # -- time

    def _tick(self) -> None:
        self._timer = None
        self._ticks += 1
        now = self._loop.time()
        greedy = self._greedy() if self._ticks % WATCH_TICKS == 0 else set[Lane]()
        for lane in list(self._lanes):
            if lane.task is None and lane.is_free and now - lane.idle_since > IDLE_S:
                self._close_lane(lane)
            else:
                lane.tick(is_greedy=lane in greedy)
        if self._lanes and self._timer is None:
            period = TICK_S if self._running else 1.0
            self._timer = self._loop.call_later(period, self._tick)

    def _greedy(self) -> set[Lane]:
        """Sandboxes that take more than they may; the largest, where it is all of them together that do."""
        taken = {lane: lane.taken_bytes for lane in self._lanes}
        found = {lane for lane, size in taken.items() if size > lane.how.memory_bytes}
        if not found and sum(taken.values()) > self._memory_bytes:
            found.add(max(taken, key=lambda lane: taken[lane]))
        if self._level.isolation == "landlock":
            found |= {lane for lane in self._lanes if folder_bytes(lane.how.scratch) > lane.how.box.tmpfs_bytes}
        return found

    # -- what lanes say

    def began(self, task: CallTask) -> None:
        """Its first call is about to run."""
        lane = self._running[task.number]
        self.driver = lane.version or self.driver
        task.worked_before_s = lane.worked_s

    def progressed(self, task: CallTask, calls: int) -> None:
        """So many of its calls have their record."""
        self._owner.progressed(task.number, calls / len(task.calls))

    def ended(self, lane: Lane, task: CallTask, records: bytes | memoryview) -> None:
        """Every call has its record."""
        self._running.pop(task.number, None)
        size = len(records)
        place = Place(dtype="uint8", shape=(size,), start=0, size_bytes=size)
        seconds = max(0.0, lane.worked_s - task.worked_before_s)
        self._owner.done(task.number, Done(number=task.number, seconds=seconds, outputs={RESULTS: place}), records)

    def was_stopped(self, lane: Lane, task: CallTask) -> None:
        """It was stopped, as asked."""
        del lane
        self._running.pop(task.number, None)
        self._owner.stopped(task.number)

    def printed(self, task: CallTask, lines: list[str]) -> None:
        """What its calls printed."""
        self._owner.printed(task.number, lines)

    def lost(self, lane: Lane, task: CallTask | None, reason: str) -> None:
        """A sandbox is gone."""
        if lane in self._lanes:
            self._lanes.remove(lane)
            self._forget_rooms()
        _log.warning("a sandbox of functions is gone: %s", reason)
        if task is not None:
            self._running.pop(task.number, None)
            self._fail(task.number, reason, "engine")
        self._loop.call_soon(self._dispatch)

    def is_idle(self, lane: Lane) -> None:
        """It can take a task."""
        del lane
        if self._waiting:
            self._dispatch()

    def _fail(self, number: int, message: str, fault: str) -> None:
        error = TaskError(code=EngineError.code, message=message, fault="task" if fault == "task" else "engine")
        self._owner.failed(number, error)


def _call_task(
    task: RunTask, plan: CallPlan, raw: bytes, region: Region | None, residents: tuple[Region, ...]
) -> CallTask:
    """A task as lanes know it. Raises `LookupError` where an input is missing, `EngineError` where one is too short."""
    spans = {
        name: Span(start=place.start, size_bytes=place.size_bytes, resident=place.resident)
        for name, place in task.inputs.items()
    }
    if sum(plan.calls) != spans[ARGUMENTS].size_bytes:
        raise EngineError("the arguments are not as long as the calls say")
    return CallTask(
        number=task.number,
        key=(
            task.submitter,
            plan.session or task.program,
            plan.python,
            plan.requires,
            plan.network,
            plan.memory_bytes,
            plan.cores,
            plan.gpu,
        ),
        digest=task.program.decode(errors="replace"),
        form=plan.form,
        calls=plan.calls,
        program=spans[PROGRAM],
        arguments=spans[ARGUMENTS],
        shared={name.removeprefix(SHARED): span for name, span in spans.items() if name.startswith(SHARED)},
        raw=raw,
        region=region,
        residents=residents,
        seed=task.seed,
        time_limit_s=task.time_limit_s,
        is_alone=plan.isolate == "task",
    )
