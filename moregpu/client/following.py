"""What the link says of one job: its end for who waits, its progress and parts for who watches."""

from __future__ import annotations

import os
import secrets
from concurrent.futures import Future

import msgspec

from moregpu.client.link import Link
from moregpu.client.stream import Stream
from moregpu.client.words import packed
from moregpu.errors import MoreGPUError, Unreachable
from moregpu.jobs import JobState
from moregpu.wire import link as wire
from moregpu.wire.api import JobView
from moregpu.workloads import JobSpec


class Following:
    """One `Submit` or `Follow` that is open. `first` and `ended` are told on the link's thread."""

    def __init__(self) -> None:
        self.process = os.getpid()
        """Who hears: a process that is forked meanwhile does not."""
        self.first: Future[JobView] = Future()
        """The first view that came: accepted, or ended already."""
        self.ended: Future[JobView] = Future()

    def hear(self, answer: wire.FromLink | MoreGPUError) -> None:
        """Take the next answer."""
        if isinstance(answer, MoreGPUError):
            for waiting in (self.first, self.ended):
                if not waiting.done():
                    waiting.set_exception(answer)
        elif isinstance(answer, wire.Accepted | wire.Ended):
            if isinstance(answer, wire.Ended):
                self.ended.set_result(answer.job)  # before the other: whoever wakes for it finds both, and sleeps once
            if not self.first.done():
                self.first.set_result(answer.job)


def submit(link: Link, spec: JobSpec, idempotency_key: str, *, early: bool, patience_s: float) -> Following:
    """Submit a job. With `early` its being accepted is told at once; without, only where it takes a second."""
    following = Following()
    raw = msgspec.Raw(packed(spec))
    key = idempotency_key or secrets.token_hex(16)
    link.ask(lambda id: wire.Submit(id=id, spec=raw, idempotency_key=key, early=early), following.hear, patience_s)
    return following


def follow(link: Link, job: str, patience_s: float) -> Following:
    """Follow a job to its end."""
    following = Following()
    link.ask(lambda id: wire.Follow(id=id, job=job), following.hear, patience_s)
    return following


def look(link: Link, job: str) -> Future[JobView]:
    """A job as it is now, by a connection that is open already. Who waits no longer cancels it."""
    found: Future[JobView] = Future()

    def hear(answer: wire.FromLink | MoreGPUError) -> None:
        if isinstance(answer, MoreGPUError | wire.Shown) and found.set_running_or_notify_cancel():
            if isinstance(answer, MoreGPUError):
                found.set_exception(answer)
            else:
                found.set_result(answer.job)

    id = link.ask_if_open(lambda id: wire.Show(id=id, job=job), hear)
    if id is None:
        hear(Unreachable("the connection is not open"))
    else:
        found.add_done_callback(lambda found: link.stop(id) if found.cancelled() else None)
    return found


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job was when this was said."""

    state: JobState
    done: int
    total: int
    waiting_reason: str = ""
    view: JobView | None = None  # at the beginning and at the end


def watch(link: Link, job: str) -> Stream[Seen]:
    """How far a job is, each time that changes; the last one is the end."""
    id = -1
    stream = Stream[Seen](lambda: link.stop(id))

    def hear(answer: wire.FromLink | MoreGPUError) -> None:
        match answer:
            case wire.Accepted(job=view) | wire.Ended(job=view):
                stream.put(seen_in(view))
                if isinstance(answer, wire.Ended):
                    stream.end()
            case wire.Progress():
                stream.put(Seen(state=answer.state, done=answer.grains_done, total=answer.grains))
            case MoreGPUError():
                stream.end(answer)
            case _:
                pass

    id = link.ask(lambda id: wire.Follow(id=id, job=job, progress=True), hear)
    return stream


def parts(link: Link, job: str) -> Stream[wire.Part]:
    """The tasks' accepted outputs as they come, each once."""
    id = -1
    stream = Stream[wire.Part](lambda: link.stop(id))
    told: set[str] = set()  # a connection that came back tells from the beginning

    def hear(answer: wire.FromLink | MoreGPUError) -> None:
        match answer:
            case wire.Part() if answer.task not in told:
                told.add(answer.task)
                stream.put(answer)
            case wire.Ended():
                stream.end()
            case MoreGPUError():
                stream.end(answer)
            case _:
                pass

    id = link.ask(lambda id: wire.Follow(id=id, job=job, parts=True), hear)
    return stream


def seen_in(view: JobView) -> Seen:
    """What a view says of how far a job is."""
    return Seen(
        state=view.state, done=view.grains_done, total=view.grains, waiting_reason=view.waiting_reason, view=view
    )
