"""A job as its submitter holds it: wait for it, watch it, open its result, read its evidence and signatures."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any

import msgspec

from moregpu.client.doors import Doors, path_of
from moregpu.client.link import Link, NoLink
from moregpu.client.waiting import Waiting
from moregpu.errors import (
    Forbidden,
    JobCancelled,
    JobFailed,
    MoreGPUError,
    NotFound,
    ResultGone,
    StillRunning,
    from_code,
)
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.wire.api import JobView, Signed

if TYPE_CHECKING:
    from asyncio import Future as AsyncFuture

    from moregpu.blobs.transfer import BlobHTTP
    from moregpu.client.following import Following, Seen
    from moregpu.client.stream import Stream
    from moregpu.wire.link import Part as WirePart

WAIT_S = 20.0
"""Seconds of one waiting request, where HTTP alone gets through."""

RESTART_PATIENCE_S = 600.0
"""How long a wait outlives a coordinator that does not answer. The job goes on meanwhile: accepted is accepted."""

LOOK_S = 2.0
"""How long a look at a job may take, before the wait for its end goes on without it."""

_NOT_BY_LINK = (Forbidden, NotFound, NoLink)
"""What says that HTTP alone is to be had, or that this job is another's: to be seen, not to be followed."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is."""

    state: JobState
    done: int  # grains
    total: int
    waiting_reason: str = ""  # why nothing happens, in words; "" when something does

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.done / self.total if self.total else float(self.state in JOB_ENDED)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One task's output, accepted: `array` belongs at `place` of the output `name`.

    `place` is slices over that output seen as one axis, or as rows × last axis:
    `output.reshape(-1, output.shape[-1])[part.place] = part.array.reshape(…)` as `fill` does it.
    """

    task: str
    name: str
    place: tuple[slice, ...]
    array: Any

    def fill(self, output: Any) -> None:
        """Write this part into an array of the whole output's shape."""
        flat = output.reshape(-1) if len(self.place) == 1 else output.reshape(-1, output.shape[-1])
        shape = tuple(place.stop - place.start for place in self.place)
        flat[self.place] = self.array.reshape(shape)


class JobHandle:
    """One job; `await handle` is its result. `pool.job(id)` gives one for a job submitted earlier, or elsewhere."""

    def __init__(
        self,
        doors: Doors,
        link: Callable[[], Link],
        blobs: Callable[[], BlobHTTP],
        view: JobView,
        following: Following | None = None,
    ):
        self._doors = doors
        self._link = link
        self._blobs = blobs
        self._view = view
        self._following = following
        self._waiting = Waiting(view.id)

    def __repr__(self) -> str:
        return f"JobHandle({self.id}, {self._view.summary or self._view.kind}, {self._view.state})"

    @property
    def id(self) -> str:
        """The job's name, `j-…`."""
        return self._view.id

    @property
    def view(self) -> JobView:
        """What was known last; asks nobody."""
        return self._view

    def status(self) -> JobView:
        """The job as it is now, with its tasks and attempts."""
        return self._look(0.0, patience_s=RESTART_PATIENCE_S)

    def progress(self) -> Progress:
        """How far it is now."""
        return _progress(self.status())

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._view.state in JOB_ENDED or self.status().state in JOB_ENDED

    def wait(self, timeout_s: float | None = None) -> JobView:
        """Wait for the end, through restarts of the coordinator; raises `StillRunning` when the time runs out."""
        if self._view.state in JOB_ENDED:
            return self._view
        until = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._view = self._ended_by(self._follow(timeout_s), until)
        except FutureTimeout:
            raise self._still_running() from None
        except _NOT_BY_LINK:
            self._following = None
            return self._wait_by_http(until)
        except MoreGPUError:
            self._following = None  # the next wait tries again
            raise
        return self._view

    async def ended(self) -> JobView:
        """`wait` for a coroutine; no thread stands still meanwhile."""
        import asyncio  # not for everybody who imports the SDK

        if self._view.state not in JOB_ENDED:
            try:
                following = self._heard_here() or await asyncio.to_thread(self._follow)
                ended = asyncio.wrap_future(following.ended)
                ended.add_done_callback(_seen)
                while not (await asyncio.wait({ended}, timeout=self._waiting.pause_s))[0]:
                    with contextlib.suppress(MoreGPUError, TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            self._view = await asyncio.wrap_future(self._look_by_link())
                    self._waiting.saw(self._view)
                self._view = ended.result()
            except _NOT_BY_LINK:
                self._following = None
                await asyncio.to_thread(self._wait_by_http, None)
            except MoreGPUError:
                self._following = None
                raise
        return self._view

    def watch(self) -> Watch:
        """Progress each time it changes, by `for` or `async for`; the last one is the end."""
        from moregpu.client.following import watch

        if self._view.state in JOB_ENDED:
            return Watch(self, None)
        try:
            return Watch(self, watch(self._link(), self.id))
        except _NOT_BY_LINK:
            return Watch(self, None)

    def parts(self) -> Parts:
        """Each task's output as soon as it is accepted, by `for` or `async for`; each comes once."""
        from moregpu.client.following import parts

        return Parts(parts(self._link(), self.id), self._blobs)

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait, then open the outputs: one array, a dict of several, or None where a benchmark dropped them.

        Raises `JobFailed`, `JobCancelled`, `ResultGone`, `StillRunning`.
        """
        return self._opened(self.wait(timeout_s))

    def __await__(self) -> Generator[Any, None, Any]:
        async def result() -> Any:
            import asyncio  # not for everybody who imports the SDK

            view = await self.ended()
            return await asyncio.to_thread(self._opened, view)

        return result().__await__()

    def outputs(self) -> dict[str, Any] | None:
        """Wait; the outputs as tensors that stay on the pool, ready to be inputs of the next job."""
        return self._outputs(self.wait())

    def evidence(self) -> dict[str, int]:
        """How the tasks' outputs were checked: kind of evidence → tasks."""
        return dict(self.wait().evidence)

    def statements(self) -> list[Signed]:
        """Who signed what: one signed statement for each accepted task (`moregpu.client.signatures` verifies them)."""
        return self._doors.call("GET", path_of("jobs", self.id, "statements"), list[Signed])

    def cancel(self) -> JobView:
        """End the job. One that ended already stays as it is."""
        self._view = self._doors.call("DELETE", path_of("jobs", self.id), JobView)
        return self._view

    def purge(self) -> JobView:
        """Forget an ended job's outputs and keys, now; record, evidence and signatures stay. Raises `Conflict`."""
        self._view = self._doors.call("DELETE", path_of("jobs", self.id), JobView, query={"purge": 1})
        return self._view

    def _follow(self, timeout_s: float | None = None) -> Following:
        """What waits for the end; opened once."""
        from moregpu.client.following import follow

        following = self._heard_here()
        if following is None:
            patience_s = RESTART_PATIENCE_S if timeout_s is None else min(timeout_s, RESTART_PATIENCE_S)
            self._following = following = follow(self._link(), self.id, patience_s)
        return following

    def _heard_here(self) -> Following | None:
        """What waits for the end already; in a process that was forked meanwhile it hears of nothing."""
        following = self._following
        return following if following is not None and following.process == os.getpid() else None

    def _ended_by(self, following: Following, until: float | None) -> JobView:
        """Wait, with a look now and then at why. Raises `FutureTimeout` when the time is up."""
        while True:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            pause_s = self._waiting.pause_s
            if left_s is not None and left_s <= pause_s:
                return following.ended.result(left_s)
            try:
                return following.ended.result(pause_s)
            except FutureTimeout:
                found = self._look_by_link()
                look_s = LOOK_S if until is None else max(0.0, min(LOOK_S, until - time.monotonic()))
                with contextlib.suppress(MoreGPUError, FutureTimeout):
                    self._view = found.result(look_s)
                found.cancel()
                self._waiting.saw(self._view)

    def _look_by_link(self) -> Future[JobView]:
        from moregpu.client.following import look

        return look(self._link(), self.id)

    def looks(self, until: float | None = None) -> Iterator[JobView]:
        """The job each time that it is looked at, to its end or until then, where the link is not to be had.

        A viewer's token, a proxy without WebSockets: requests that the coordinator holds.
        """
        while self._view.state not in JOB_ENDED:
            left_s = WAIT_S if until is None else until - time.monotonic()
            if left_s <= 0:
                return
            patience_s = RESTART_PATIENCE_S if until is None else min(RESTART_PATIENCE_S, left_s)
            self._look(min(left_s, WAIT_S, self._waiting.pause_s), patience_s=patience_s)
            self._waiting.seldomer()
            yield self._view

    def _wait_by_http(self, until: float | None) -> JobView:
        for view in self.looks(until):
            self._waiting.saw(view)
        if self._view.state not in JOB_ENDED:
            raise self._still_running()
        return self._view

    def _still_running(self) -> StillRunning:
        reason = self._view.waiting_reason
        return StillRunning(
            f"{self.id} is {self._view.state}{': ' + reason if reason else ''}",
            "the job goes on; wait again, or cancel it",
        )

    def _look(self, wait_s: float, patience_s: float) -> JobView:
        """Ask; with `wait_s` the coordinator answers when the job ends or the time is up."""
        self._view = self._doors.call(
            "GET",
            path_of("jobs", self.id),
            JobView,
            query={"wait": f"{wait_s:.3f}"} if wait_s > 0 else None,
            timeout_s=wait_s + 30.0,
            patience_s=patience_s,
        )
        return self._view

    def saw(self, seen: Seen) -> Progress:
        """Take what a watch told."""
        if seen.view is not None:
            self._view = seen.view
        return Progress(state=seen.state, done=seen.done, total=seen.total, waiting_reason=seen.waiting_reason)

    def _opened(self, view: JobView) -> Any:
        outputs = self._outputs(view)
        if outputs is None:
            return None
        from moregpu.client.arrays import receive  # NumPy loads here

        arrays = {name: receive(tensor, self._blobs()) for name, tensor in outputs.items()}
        return next(iter(arrays.values())) if len(arrays) == 1 else arrays

    def _outputs(self, view: JobView) -> dict[str, Any] | None:
        """The manifest's tensors, or None for a benchmark's; raises unless the job is done and its outputs kept."""
        raise_unless_done(view)
        if view.result is None:  # an answer without outputs: ask for the whole
            view = self.status()
        if view.result is None or not (view.result.outputs or view.result.dropped):
            raise ResultGone(f"the outputs of {self.id} are no longer kept", "submit it again, with a longer keep_s")
        return None if view.result.dropped else view.result.outputs


class Watch:
    """A job's progress as it changes: iterate with `for` or `async for`."""

    def __init__(self, handle: JobHandle, stream: Stream[Seen] | None):
        self._handle = handle
        self._stream = stream

    def __iter__(self) -> Iterator[Progress]:
        if self._stream is None:
            yield from self._without_link()
            return
        before: Progress | None = None
        try:
            for seen in self._stream:
                now = self._handle.saw(seen)
                if now != before:
                    yield now
                before = now
        except _NOT_BY_LINK:
            yield from self._without_link()
        finally:
            self._stream.close()

    async def __aiter__(self) -> AsyncIterator[Progress]:
        import asyncio  # not for everybody who imports the SDK

        stream = self._stream
        try:
            if stream is not None:
                before: Progress | None = None
                async for seen in stream:
                    now = self._handle.saw(seen)
                    if now != before:
                        yield now
                    before = now
                return
        except _NOT_BY_LINK:
            pass
        finally:
            if stream is not None:
                stream.close()
        slow = self._without_link()
        while (one := await asyncio.to_thread(next, slow, None)) is not None:
            yield one

    def _without_link(self) -> Iterator[Progress]:
        """What looks that become seldom see of it, and the end at once."""
        before = _progress(self._handle.view)
        yield before
        for view in self._handle.looks():
            now = _progress(view)
            if now != before:
                yield now
            before = now


class Parts:
    """A job's parts as they come: iterate with `for` or `async for`."""

    def __init__(self, stream: Stream[WirePart], blobs: Callable[[], BlobHTTP]):
        self._stream = stream
        self._blobs = blobs

    def __iter__(self) -> Iterator[Part]:
        try:
            for part in self._stream:
                yield from self._opened(part)
        finally:
            self._stream.close()

    async def __aiter__(self) -> AsyncIterator[Part]:
        import asyncio  # not for everybody who imports the SDK

        try:
            async for part in self._stream:
                for opened in await asyncio.to_thread(self._opened, part):
                    yield opened
        finally:
            self._stream.close()

    def _opened(self, part: WirePart) -> list[Part]:
        """Its outputs as arrays; none where the job ended meanwhile and only its result is kept."""
        from moregpu.client.arrays import receive

        found: list[Part] = []
        for name, tensor in part.outputs.items():
            try:
                array = receive(tensor, self._blobs())
            except NotFound:
                continue
            place = tuple(slice(start, stop) for start, stop in part.places[name])
            found.append(Part(task=part.task, name=name, place=place, array=array))
        return found


def raise_unless_done(view: JobView) -> None:
    """Raise what an ended job ended with: `JobFailed` (or a kind of it), `JobCancelled`."""
    if view.state is JobState.FAILED:
        problem = view.error
        code = problem.type.rpartition("/")[2] if problem else ""
        text = f"{view.id} failed: {problem.detail or problem.title}" if problem else ""
        error = from_code(code, text, problem.hint if problem else "")
        raise error if isinstance(error, JobFailed) else JobFailed(error.detail if problem else "", error.hint)
    if view.state is JobState.CANCELLED:
        raise JobCancelled(f"{view.id} was cancelled")


def _seen(ended: AsyncFuture[JobView]) -> None:
    """Somebody who is cancelled while waiting hears no end: asyncio would say that nobody looked at how it failed."""
    if not ended.cancelled():
        ended.exception()


def _progress(view: JobView) -> Progress:
    return Progress(state=view.state, done=view.grains_done, total=view.grains, waiting_reason=view.waiting_reason)
