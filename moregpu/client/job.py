"""A job as its submitter holds it: wait for it, watch it, open its result, read its evidence and signatures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from moregpu.client.doors import Doors, path_of
from moregpu.errors import JobCancelled, JobFailed, ResultGone, StillRunning
from moregpu.jobs import JOB_ENDED, JobState
from moregpu.wire.api import JobView, Signed

if TYPE_CHECKING:
    from moregpu.blobs.transfer import BlobHTTP

WAIT_S = 20.0
"""Seconds of one waiting request."""

RESTART_PATIENCE_S = 600.0
"""How long a wait outlives a coordinator that does not answer. The job goes on meanwhile: accepted is accepted."""

_LOOK_S = (0.02, 0.5)


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


class JobHandle:
    """One job. `pool.job(id)` gives a handle for a job submitted earlier, or elsewhere."""

    def __init__(self, doors: Doors, blobs: Callable[[], BlobHTTP], view: JobView):
        self._doors = doors
        self._blobs = blobs
        self._view = view

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
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self._view.state not in JOB_ENDED:
            left = WAIT_S if until is None else until - time.monotonic()
            if left <= 0:
                reason = self._view.waiting_reason
                raise StillRunning(
                    f"{self.id} is {self._view.state}{': ' + reason if reason else ''}",
                    "the job goes on; wait again, or cancel it",
                )
            self._look(min(left, WAIT_S), patience_s=min(RESTART_PATIENCE_S, left if until else RESTART_PATIENCE_S))
        return self._view

    def watch(self) -> Iterator[Progress]:
        """Progress each time it changes; the last one is the end."""
        before: Progress | None = None
        pause_s, longest_s = _LOOK_S
        while True:
            now = _progress(self._view)
            if now != before:
                yield now
                before, pause_s = now, _LOOK_S[0]
            if now.state in JOB_ENDED:
                return
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, longest_s)
            self._look(0.0, patience_s=RESTART_PATIENCE_S)

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait, then open the outputs: one array, a dict of several, or None where a benchmark dropped them.

        Raises `JobFailed`, `JobCancelled`, `ResultGone`, `StillRunning`.
        """
        view = self.wait(timeout_s)
        outputs = self._outputs(view)
        if outputs is None:
            return None
        from moregpu.client.arrays import receive  # NumPy loads here

        arrays = {name: receive(tensor, self._blobs()) for name, tensor in outputs.items()}
        return next(iter(arrays.values())) if len(arrays) == 1 else arrays

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

    def _outputs(self, view: JobView) -> dict[str, Any] | None:
        """The manifest's tensors, or None for a benchmark's; raises unless the job is done and its outputs kept."""
        if view.state is JobState.FAILED:
            problem = view.error
            raise JobFailed(
                f"{self.id} failed: {problem.detail or problem.title}" if problem else "",
                problem.hint if problem else "",
            )
        if view.state is JobState.CANCELLED:
            raise JobCancelled(f"{self.id} was cancelled")
        if view.result is None:  # an answer without outputs: ask for the whole
            view = self.status()
        if view.result is None or not (view.result.outputs or view.result.dropped):
            raise ResultGone(f"the outputs of {self.id} are no longer kept", "submit it again, with a longer keep_s")
        return None if view.result.dropped else view.result.outputs


def _progress(view: JobView) -> Progress:
    return Progress(state=view.state, done=view.grains_done, total=view.grains, waiting_reason=view.waiting_reason)
