"""One task's way through the worker: inputs in, compute, outputs out, a statement about exactly that.

A tiny task (all values inside messages) takes one frame to the child and one back, all on the event loop. A larger one
has a region of shared memory; its inputs are fetched and its outputs stored by threads, while others compute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from moregpu.errors import EngineError, MoreGPUError
from moregpu.jobs import Tensor
from moregpu.platform.memory import give_back
from moregpu.wire.messages import MAX_INLINE_BYTES, Assignment, LeaseRef, ResultEntry, TaskError
from moregpu.wire.statement import Described, Ran, content_digest, described, statement_of
from moregpu.worker.compute import Compute
from moregpu.worker.frames import Done, Place
from moregpu.worker.leases import Key, is_tiny, key_of
from moregpu.worker.memory import Region, RegionPool, offsets
from moregpu.worker.places import (
    inline_outputs,
    inline_part,
    input_place,
    layout,
    output_place,
    packed,
    resident_place,
    to_run,
    view_of,
)
from moregpu.worker.residents import Resident, Residents
from moregpu.worker.session import WorkerSession
from moregpu.worker.transfers import Transfers
from moregpu.workloads.function.spec import SHARED

if TYPE_CHECKING:
    from moregpu.worker.functions.room import FunctionRoom

_log = logging.getLogger(__name__)

RESIDENT_BYTES = 256 << 20

RESIDENT_SHARE = 4
"""A device's memory through this is what inputs that come again may take."""

LARGE_AT_ONCE = 3
"""Large tasks in memory at once: one fetches, one computes, one stores."""


class _Work(msgspec.Struct, kw_only=True):
    """A task under way."""

    assignment: Assignment
    ref: LeaseRef
    number: int
    compute: Compute | FunctionRoom
    is_function: bool
    inputs: dict[str, Described] = {}
    region: Region | None = None
    residents: dict[str, Resident] = {}  # inputs that are kept open
    answer: asyncio.Future[Done | TaskError | None] | None = None  # large tasks: what the child said
    raw: bytes | memoryview = b""  # outputs that came beside the answer
    driver: asyncio.Task[None] | None = None
    in_child: bool = False
    begun: bool = False
    unwanted: asyncio.Event


class Work:
    """All tasks under way: tells the session what becomes of them."""

    def __init__(
        self,
        session: WorkerSession,
        computes: Mapping[str, Compute],
        transfers: Transfers,
        wake: Callable[[], None],
        kept: Callable[[ResultEntry], None],
        now: Callable[[], float],
        ran: Callable[[Assignment, float], None] = lambda _assignment, _seconds: None,
        aside: Callable[[str, str, list[LeaseRef]], None] = lambda _device, _reason, _waiting: None,
        back: Callable[[str], None] = lambda _device: None,
        resident_bytes: int = RESIDENT_BYTES,
        unload_s: float = 600.0,
    ):
        """Prepare it.

        Args:
            session: is told what becomes of tasks.
            computes: the devices, the best first.
            transfers: fetch and store large values.
            wake: called when something is to be sent.
            kept: called with each result.
            now: the clock.
            ran: called with each task that was computed and its seconds.
            aside: called with a device that takes no more tasks, why, and its tasks that have not begun.
            back: called with a device that takes tasks again.
            resident_bytes: what inputs that come again may take, kept open.
            unload_s: they go when no large task has been there for so long.
        """
        self._session = session
        self.rooms: dict[str, FunctionRoom] = {}
        """Kinds of jobs that run in a room of their own rather than on a device."""
        self._computes = computes
        self._transfers = transfers
        self._wake = wake
        self._tell_kept = kept
        self._now = now
        self._ran = ran
        self._aside = aside
        self._back = back
        self._by_key: dict[Key, _Work] = {}
        self._by_number: dict[int, _Work] = {}
        self._next = 1
        self._regions = RegionPool()
        self._residents = Residents(resident_bytes, self._regions)
        self._shared = Residents(resident_bytes, self._regions)  # functions' scattered values: never kernels' memory
        self._unload_s = unload_s
        self._unloading: asyncio.TimerHandle | None = None
        self._room = asyncio.Semaphore(LARGE_AT_ONCE)
        self.tasks_done = 0
        self.tasks_failed = 0
        self.busy_s = 0.0

    @property
    def running(self) -> int:
        """Tasks under way."""
        return len(self._by_key)

    def run(self, assignment: Assignment) -> None:
        """Start on a task; what becomes of it is told to the session."""
        ref = LeaseRef(task=assignment.task, attempt=assignment.attempt, token=assignment.token)
        room = self.rooms.get(assignment.kind)
        work = _Work(
            assignment=assignment,
            ref=ref,
            number=self._next,
            compute=room or self._compute_for(assignment.device),
            is_function=room is not None,
            unwanted=asyncio.Event(),
        )
        self._next += 1
        self._by_key[key_of(ref)] = work
        self._by_number[work.number] = work
        if is_tiny(assignment):
            self._run_tiny(work)
        else:
            work.driver = asyncio.get_running_loop().create_task(self._run_large(work), name=f"task {ref.task}")

    def _compute_for(self, device: str) -> Compute:
        """The device that was asked for; where it is not there (or not any more), the first one that works."""
        asked = self._computes.get(device)
        if asked is not None and not asked.aside:
            return asked
        working = (compute for compute in self._computes.values() if not compute.aside)
        return next(working, next(iter(self._computes.values())))

    def stop(self, ref: LeaseRef) -> None:
        """Nobody wants it any more."""
        work = self._by_key.pop(key_of(ref), None)
        if work is None:
            return
        work.unwanted.set()
        if work.in_child:
            work.compute.stop(work.number)

    async def close(self) -> None:
        """Let everything go."""
        drivers = [work.driver for work in self._by_number.values() if work.driver is not None]
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)
        self._by_key.clear()
        self._by_number.clear()
        if self._unloading is not None:
            self._unloading.cancel()
        self._residents.clear()
        self._shared.clear()
        self._regions.clear()

    # -- tiny tasks

    def _run_tiny(self, work: _Work) -> None:
        assignment = work.assignment
        places: dict[str, Place] = {}
        parts: list[bytes] = []
        start = 0
        try:
            for name, tensor in assignment.inputs.items():
                part = inline_part(tensor)
                places[name] = input_place(tensor, start)
                parts.append(part)
                start += len(part)
        except MoreGPUError as error:
            self._fail(work, TaskError(code=error.code, message=str(error), fault="task"))
            return
        work.in_child = True
        work.compute.give(to_run(assignment, work.number, places, packed(assignment.outputs), None), b"".join(parts))
        # While the child computes: the digests that the statement needs.
        for (name, tensor), part in zip(assignment.inputs.items(), parts, strict=True):
            content = content_digest(assignment.digest_key, tensor.dtype, tensor.part_shape, part)
            work.inputs[name] = described(tensor, content)

    def _done_tiny(self, work: _Work, done: Done, raw: bytes | memoryview) -> None:
        if len(raw) > MAX_INLINE_BYTES:  # what went in was tiny, what came out is not
            work.driver = asyncio.get_running_loop().create_task(self._store_rest(work, done, raw))
            return
        self._finish(work, done.seconds, *inline_outputs(work.assignment, done, raw))

    async def _store_rest(self, work: _Work, done: Done, raw: bytes | memoryview) -> None:
        self._session.computed(work.ref)
        try:
            stored = await self._transfers.store(work.assignment, done.outputs, view_of(raw), work.unwanted)
        except MoreGPUError as error:
            self._fail(work, TaskError(code=error.code, message=str(error), fault="worker"))
        else:
            if not work.unwanted.is_set():
                self._finish(work, done.seconds, *stored)
        finally:
            self._forget(work)

    # -- large tasks

    async def _run_large(self, work: _Work) -> None:
        async with self._room:
            if work.unwanted.is_set():
                self._forget(work)
                return
            region: Region | None = None
            try:
                work.compute.warm_up()  # while inputs are fetched
                await self._hold(work)
                names, sizes = layout(work.assignment, work.residents)
                starts, size = offsets(sizes)
                # A region that was used before holds what it held: a stranger's process gets one that never was.
                region = work.region = self._regions.fresh(size) if work.is_function else self._regions.take(size)
                await self._through(work, region, dict(zip(names, starts, strict=True)))
            except MoreGPUError as error:
                self._fail(work, TaskError(code=error.code, message=str(error), fault="worker"))
            except OSError as error:
                self._fail(work, TaskError(code=EngineError.code, message=str(error), fault="worker"))
            finally:
                self._forget(work)
                self._let_go(work)
                if region is None:
                    pass
                elif work.is_function:
                    region.close()  # a stranger's process may hold on to it: nobody else's values ever lie there
                else:
                    work.compute.forget(self._regions.give(region))

    async def _hold(self, work: _Work) -> None:
        """Find the inputs that are kept open, and open those that from now on are to be."""
        residents = self._shared if work.is_function else self._residents
        for name, tensor in work.assignment.inputs.items():
            if work.is_function and not name.startswith(SHARED):
                continue
            closed: list[Region] = []
            resident = residents.take(tensor, closed)
            self._children_forget(closed)
            if resident is None:
                continue
            if not resident.opened:
                try:
                    await self._transfers.open_whole(resident, work.unwanted)
                    if work.is_function:
                        resident.region.seal()  # a stranger's process must not change what the next one reads
                except BaseException:
                    residents.drop(resident)
                    raise
            work.residents[name] = resident

    def _let_go(self, work: _Work) -> None:
        for resident in work.residents.values():
            self._residents.give_back(resident)
        if self._unloading is not None:
            self._unloading.cancel()
        self._unloading = asyncio.get_running_loop().call_later(self._unload_s, self._unload)

    def _unload(self) -> None:
        self._unloading = None
        self._shared.clear()
        self._children_forget([*self._residents.clear(), *self._regions.clear()])
        give_back()

    def _children_forget(self, closed: list[Region]) -> None:
        for compute in self._computes.values():
            compute.forget(closed)

    async def _through(self, work: _Work, region: Region, starts: Mapping[tuple[str, str], int]) -> None:
        assignment = work.assignment
        places = {
            name: input_place(tensor, starts["in", name])
            for name, tensor in assignment.inputs.items()
            if name not in work.residents
        }
        outputs = {name: output_place(planned, starts["out", name]) for name, planned in assignment.outputs.items()}
        work.inputs = await self._transfers.fetch(assignment, region, places, work.unwanted)
        if work.unwanted.is_set():
            return
        work.answer = asyncio.get_running_loop().create_future()
        work.in_child = True
        # While the child computes: the digests that the statement needs.
        describing = asyncio.ensure_future(self._transfers.describe(assignment, work.residents))
        for name, resident in work.residents.items():
            places[name] = resident_place(assignment.inputs[name], resident)
        kept_open = [resident.region for resident in work.residents.values()]
        work.compute.give(to_run(assignment, work.number, places, outputs, region), region=region, residents=kept_open)
        try:
            answer = await asyncio.shield(work.answer)
        except asyncio.CancelledError:
            await work.compute.close()  # the region must not be reused while the child writes to it
            raise
        finally:
            contents = await describing
        if answer is None or work.unwanted.is_set():
            return
        if isinstance(answer, TaskError):
            self._fail(work, answer)
            return
        work.inputs |= contents
        self._session.computed(work.ref)
        if work.is_function:
            self._done_tiny(work, answer, work.raw)
            if work.driver is not None and work.driver is not asyncio.current_task():
                await work.driver
            return
        stored = await self._transfers.store(assignment, outputs, region.view, work.unwanted)
        if not work.unwanted.is_set():
            self._finish(work, answer.seconds, *stored)

    # -- what the child says (`ComputeOwner`)

    def begun(self, number: int) -> None:
        """The child works on it now."""
        work = self._by_number.get(number)
        if work is not None:
            work.begun = True
            if self._session.begun(work.ref, self._now()):
                self._wake()

    def progressed(self, number: int, share: float) -> None:
        """Share of it that is done."""
        work = self._by_number.get(number)
        if work is not None:
            self._session.progressed(work.ref, share, self._now())
            self._wake()

    def printed(self, number: int, lines: list[str]) -> None:
        """What a function printed."""
        work = self._by_number.get(number)
        if work is not None:
            self._session.printed(work.ref, lines)
            self._wake()

    def done(self, number: int, done: Done, raw: bytes | memoryview) -> None:
        """Its outputs are there."""
        if number in self._by_number:
            self._by_number[number].raw = raw
        work = self._answered(number, done)
        if work is not None:
            self._done_tiny(work, done, raw)

    def failed(self, number: int, error: TaskError) -> None:
        """It could not be computed."""
        work = self._answered(number, error)
        if work is not None:
            self._fail(work, error)

    def stopped(self, number: int) -> None:
        """It was stopped, as asked."""
        work = self._answered(number, None)
        if work is not None:
            self._forget(work)

    def put_aside(self, device: str, reason: str) -> None:
        """A device takes no more tasks; what it had begun fails right after this."""
        of_it = [work for work in self._by_number.values() if work.compute.device == device]
        self._aside(device, reason, [work.ref for work in of_it if not work.begun])

    def taken_back(self, device: str) -> None:
        """A device that was put aside takes tasks again."""
        self._back(device)

    def _answered(self, number: int, answer: Done | TaskError | None) -> _Work | None:
        """Pass the answer on to a large task's driver; a tiny task is returned, for the caller to end."""
        work = self._by_number.get(number)
        if work is None:
            return None
        work.in_child = False
        if work.answer is None:
            return work
        if not work.answer.done():
            work.answer.set_result(answer)
        return None

    # -- the end

    def _finish(self, work: _Work, seconds: float, outputs: dict[str, Tensor], contents: dict[str, Described]) -> None:
        compute = work.compute
        duty = self._session.duty.get(compute.device, 1.0)
        statement = statement_of(
            work.assignment,
            pool=self._session.identity.pool,
            worker=self._session.keys.worker_id,
            inputs=work.inputs,
            outputs=contents,
            ran=Ran(device=compute.device, driver=compute.driver, duty=duty, seconds=seconds),
        )
        self._forget(work)
        self.tasks_done += 1
        self.busy_s += seconds
        self._ran(work.assignment, seconds)
        self._kept(self._session.finished(work.ref, statement, outputs, self._now()))

    def _fail(self, work: _Work, error: TaskError) -> None:
        self._forget(work)
        self.tasks_failed += 1
        _log.warning("task %s failed: %s", work.ref.task, error.message)
        self._kept(self._session.failed(work.ref, error, self._now()))

    def _kept(self, entry: ResultEntry | None) -> None:
        if entry is not None:
            self._tell_kept(entry)
            self._wake()

    def _forget(self, work: _Work) -> None:
        self._by_number.pop(work.number, None)
        if self._by_key.get(key_of(work.ref)) is work:
            del self._by_key[key_of(work.ref)]
