"""Calls that went into one job together: what is sent, and what the link says of it."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from moregpu.client.functions.call import Call
from moregpu.client.functions.printed import show
from moregpu.client.waiting import Waiting
from moregpu.encoding import Malformed
from moregpu.encoding.failures import RemoteError
from moregpu.encoding.records import read_records
from moregpu.errors import JobCancelled, JobFailed, MoreGPUError, Unreachable, from_code
from moregpu.jobs import Blob, JobState, Tensor
from moregpu.wire import link as wire
from moregpu.wire.api import JobView
from moregpu.workloads.function.spec import ARGUMENTS, PROGRAM, RESULTS, FunctionSpec

log = logging.getLogger("moregpu.client")

_WHOLE = "the job's own result"


class Sender(Protocol):
    """What a batch needs of the pool that it goes to."""

    def fetch(self, blob: Blob, then: Callable[[memoryview | MoreGPUError], None]) -> None:
        """Download a blob on a thread, then call `then` there."""
        ...

    def cancel_job(self, job: str, idempotency_key: str = "") -> None:
        """End a job, by its id or the key that it was submitted under."""
        ...

    def again(self, calls: Sequence[Call]) -> None:
        """Send calls once more."""
        ...

    def here(self, calls: Sequence[Call]) -> None:
        """Make calls on this machine."""
        ...

    def closed(self, batch: Batch) -> None:
        """Nothing more comes of a batch."""
        ...


class Batch:
    """One job of calls."""

    def __init__(self, sender: Sender, calls: list[Call]):
        self.calls = calls
        self.job = ""
        self.idempotency_key = secrets.token_hex(16)
        self._sender = sender
        self._lock = threading.Lock()
        self._covered = [False] * len(calls)
        self._left = len(calls)
        self._tasks: set[str] = set()
        self._fetching = 0
        self._ended: JobView | None = None
        self._cancel_soon = False
        self._waiting = Waiting(calls[0].program.name)
        for call in calls:
            call.future.withdraw = self._withdrawn

    @property
    def is_settled(self) -> bool:
        """Whether every call has what it will have; the last word on the job may still be on its way."""
        return self._left == 0

    @property
    def is_unwanted(self) -> bool:
        """Whether every call was cancelled."""
        return all(call.future.cancelled() for call in self.calls)

    @property
    def wants_parts(self) -> bool:
        """Whether results are wanted before the last one is there."""
        return len(self.calls) > 1

    def spec(self, session: str, program: Tensor, arguments: Tensor, shared: dict[str, Tensor]) -> FunctionSpec:
        """The job."""
        first = self.calls[0]
        return first.options.spec(
            function=first.program.name,
            form=first.program.form,
            calls=tuple(call.size for call in self.calls),
            inputs={PROGRAM: program, ARGUMENTS: arguments, **shared},
            session=session,
        )

    def hear(self, answer: wire.FromLink | MoreGPUError) -> None:
        """Take the link's next answer; on its thread."""
        match answer:
            case MoreGPUError():
                self.fail(answer)
            case wire.Accepted(job=view):
                self._named(view.id)
                if view.waiting_reason:
                    self._waits(view.waiting_reason)
            case wire.Part():
                self._part(answer)
            case wire.Printed():
                show(self.calls[0].program.name, answer)
            case wire.Ended(job=view):
                self.ended(view)
            case _:
                pass

    def ended(self, view: JobView) -> None:
        """The job ended."""
        self._named(view.id)
        with self._lock:
            self._ended = view
            if self._fetching:
                return
        self._conclude(view)

    def fail(self, error: BaseException) -> None:
        """End by an error whatever has no result."""
        if isinstance(error, Unreachable) and self.calls[0].options.local == "ok":
            self._run_here(error.detail)
            return
        for index in self._take_uncovered():
            self.calls[index].fail(error)
        self._sender.closed(self)

    def _waits(self, reason: str) -> None:
        """Nobody can take the job now."""
        if self.calls[0].options.local == "ok":
            self._sender.cancel_job(self.job)
            self._run_here(reason)
        else:
            self._waiting.because(reason)

    def _run_here(self, reason: str) -> None:
        """Call what has no result on this machine, as `local="ok"` allows, and say so."""
        log.warning("%s runs here: %s", self.calls[0].program.name, reason)
        left = [self.calls[index] for index in self._take_uncovered()]
        self._sender.here(left)
        self._sender.closed(self)

    # -- results

    def _named(self, job: str) -> None:
        if self.job:
            return
        self.job = job
        for call in self.calls:
            call.future.job = job
        if self._cancel_soon:
            self._sender.cancel_job(job)

    def _part(self, part: wire.Part) -> None:
        if part.task in self._tasks:
            return  # a connection that came back tells from the beginning
        self._tasks.add(part.task)
        tensor = part.outputs.get(RESULTS)
        if tensor is not None:
            where = f"on worker {part.worker}, attempt {part.attempt}" if part.worker else ""
            self._read(tensor, range(*part.grains), where)

    def _read(self, tensor: Tensor, indices: range, where: str) -> None:
        if not isinstance(tensor.data, Blob):
            self._deliver(tensor.data, indices, where)
            return
        with self._lock:
            self._fetching += 1
        self._sender.fetch(tensor.data, lambda data: self._fetched(data, indices, where))

    def _fetched(self, data: memoryview | MoreGPUError, indices: range, where: str) -> None:
        if not isinstance(data, MoreGPUError):
            self._deliver(data, indices, where)
        with self._lock:
            self._fetching -= 1
            ended = self._ended if not self._fetching else None
        if ended is not None:
            self._conclude(ended, data if isinstance(data, MoreGPUError) else None)

    def _deliver(self, data: bytes | memoryview, indices: range, where: str) -> None:
        """Give calls their records: those of `indices` alone, since no worker answers for calls it was not given."""
        again: list[Call] = []
        try:
            for index, (status, content) in zip(indices, read_records(data), strict=False):
                if not self._is_first(index):
                    continue
                call = self.calls[index]
                if not call.settle(status, content, where):
                    again.append(call)
        except Malformed as error:
            log.warning("results of %s cannot be read: %s", self.job, error)
        if again:
            self._sender.again(again)

    def _is_first(self, index: int) -> bool:
        """Whether a record is of a call that has none yet: parts and the whole come on several threads."""
        with self._lock:
            if index >= len(self.calls) or self._covered[index]:
                return False
            self._covered[index] = True
            self._left -= 1
            return True

    def _conclude(self, view: JobView, trouble: MoreGPUError | None = None) -> None:
        left = [index for index, covered in enumerate(self._covered) if not covered]
        done = view.result if view.state is JobState.DONE and trouble is None else None
        if left and done is not None and _WHOLE not in self._tasks:
            self._read_rest(done.outputs, view)
            return
        self.fail(trouble or _error_of(view))

    def _read_rest(self, outputs: dict[str, Tensor], view: JobView) -> None:
        """Read the job's own result, once, for what came in no part."""
        self._tasks.add(_WHOLE)
        where = f"on worker {view.workers[0]}" if len(view.workers) == 1 else ""
        with self._lock:
            self._fetching += 1
        starts = sorted(int(name.partition("/")[2] or 0) for name in outputs if name.partition("/")[0] == RESULTS)
        stops = dict(zip(starts, [*starts[1:], len(self.calls)], strict=True))
        for name, tensor in outputs.items():
            part, _, first = name.partition("/")
            if part == RESULTS:
                self._read(tensor, range(int(first or 0), stops[int(first or 0)]), where)
        with self._lock:
            self._fetching -= 1
            still = self._fetching
        if not still:
            self._conclude(view)

    # -- cancelling

    def _withdrawn(self) -> None:
        """One of its futures was cancelled: when nobody wants any of it, the job ends."""
        if not all(call.future.done() for call in self.calls):
            return
        self._cancel_soon = not self.job  # it may not be there yet
        self._sender.cancel_job(self.job, self.idempotency_key)

    def cancel(self) -> None:
        """Cancel every call that has no result."""
        for call in self.calls:
            call.future.cancel()

    def _take_uncovered(self) -> list[int]:
        with self._lock:
            left = [index for index, covered in enumerate(self._covered) if not covered]
            for index in left:
                self._covered[index] = True
            self._left = 0
        return left


def _error_of(view: JobView) -> BaseException:
    if view.state is JobState.CANCELLED:
        return JobCancelled(f"{view.id} was cancelled")
    if view.error is not None:
        return from_code(view.error.type.rpartition("/")[2], view.error.detail or view.error.title, view.error.hint)
    if view.state is JobState.FAILED:
        return JobFailed(f"{view.id} failed")
    return RemoteError(f"{view.id} ended without a result for this call", cause="crashed")
