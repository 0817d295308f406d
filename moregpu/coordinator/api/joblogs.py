"""The door to a job's log: what happened to its tasks, and what they printed; to its owner alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from moregpu.coordinator.api.ask import Answer, Ask, Stream
from moregpu.coordinator.api.events import QUIET_S, gone_or_ended, until_gone
from moregpu.coordinator.store.protocol import JobRow, TaskRow
from moregpu.jobs import JOB_ENDED, AttemptState, JobState
from moregpu.wire.api import LogLine

LOOK_S = 0.5
"""New lines are gathered for so long: a job of many tasks is not read anew at each."""


async def logs(ask: Ask) -> Answer | Stream:
    """Lines in order of time. With `?follow=1`: server-sent events, until the job has ended and all was told."""
    if not ask.flag("follow"):
        lines = [*await lines_of(ask, ask.job), *printed_lines(ask, ask.job, 0)]
        return ask.answer([*sorted(lines, key=lambda line: line.at), *_end_lines(ask.job)])
    return Stream(parts=_followed(ask), length=None, media_type="text/event-stream")


async def lines_of(ask: Ask, job: JobRow) -> list[LogLine]:
    """What the job's rows tell."""
    tasks = await ask.services.desk.store.tasks(job.id)
    names = {worker.id: worker.name for worker in await ask.services.desk.store.workers()}
    lines = [LogLine(at=job.created_at, level="info", message=f"queued: {job.plan.summary}")]
    for task in tasks:
        lines += _task_lines(task, names)
    return sorted(lines, key=lambda line: line.at)


def printed_lines(ask: Ask, job: JobRow, start: int) -> list[LogLine]:
    """What its tasks printed, from line `start` on."""
    return [
        LogLine(at=line.at, level="info", message=line.text, worker=line.worker, task=line.task, printed=True)
        for line in ask.services.desk.printed.after(job.id, start)
    ]


def _task_lines(task: TaskRow, names: dict[str, str]) -> list[LogLine]:
    lines: list[LogLine] = []
    for attempt in task.attempts:
        name = names.get(attempt.worker, attempt.worker)
        again = "" if attempt.number == 1 else f", attempt {attempt.number}"
        lines.append(_line(task, attempt.leased_at, "info", f"task {task.number} goes to {name}{again}", name))
        if attempt.ended_at is None:
            continue
        took = "" if attempt.seconds is None else f" after {attempt.seconds:.3f} s"
        if attempt.state is AttemptState.ACCEPTED:
            how = f", {task.evidence.kind}" if task.evidence is not None else ""
            lines.append(_line(task, attempt.ended_at, "info", f"task {task.number} is done{took}{how}", name))
        elif attempt.state is AttemptState.REJECTED:
            why = attempt.error or "its result was not accepted"
            lines.append(_line(task, attempt.ended_at, "error", f"task {task.number} failed: {why}", name))
        elif attempt.state is AttemptState.LOST:
            why = attempt.error or "its worker let it go"
            lines.append(_line(task, attempt.ended_at, "warning", f"task {task.number} came back: {why}", name))
    return lines


def _line(task: TaskRow, at: float, level: Any, message: str, worker: str) -> LogLine:
    return LogLine(at=at, level=level, message=message, worker=worker, task=task.number)


def _end_lines(job: JobRow) -> list[LogLine]:
    return [] if job.ended_at is None else [_end_line(job, job.ended_at)]


def _end_line(job: JobRow, at: float) -> LogLine:
    if job.state is JobState.FAILED and job.error is not None:
        return LogLine(at=at, level="error", message=f"failed: {job.error.detail or job.error.title}")
    return LogLine(at=at, level="warning" if job.state is JobState.CANCELLED else "info", message=job.state.value)


async def _followed(ask: Ask) -> AsyncGenerator[bytes]:
    async for _ in ask.body_parts():
        pass
    services, id = ask.services, ask.job.id
    loop = asyncio.get_running_loop()
    seq = services.desk.store.last_seq()  # from before the first look on: nothing falls between it and the stream
    told: set[LogLine] = set()
    printed = 0
    changed, spoke_at = True, loop.time()
    events = services.desk.events.subscribe(ask.who, seq)
    async for event in until_gone(events, gone_or_ended(ask), quiet_s=LOOK_S, begin=True):
        if event is not None:
            changed |= event.id == id
            continue
        if changed:
            changed = False
            job = await services.desk.job(ask.who, id)
            fresh = [line for line in await lines_of(ask, job) if line not in told]
            told.update(fresh)
            lines = services.desk.printed.after(id, printed)
            fresh += printed_lines(ask, job, printed)
            printed = lines[-1].number + 1 if lines else printed
            for line in [*sorted(fresh, key=lambda line: line.at), *_end_lines(job)]:
                spoke_at = loop.time()
                yield _sent(line)
            if job.state in JOB_ENDED:
                return
        if loop.time() - spoke_at >= QUIET_S:
            spoke_at = loop.time()
            yield b": quiet\n\n"


def _sent(line: LogLine) -> bytes:
    return b"event: line\ndata: " + msgspec.json.encode(line) + b"\n\n"
