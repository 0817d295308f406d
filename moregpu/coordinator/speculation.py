"""Which late task is run a second time, and by whom: pure.

At the end of a job a single slow machine holds up everything. When nothing of the job is left to hand out and a worker
has nothing to do, it tries a task that is out for more than twice the job's median; the first good result wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from moregpu.coordinator.fitting import device_for, task_in_time
from moregpu.coordinator.store.protocol import FleetWorker, JobRow, TaskRow
from moregpu.jobs import TaskState
from moregpu.wire.messages import Device

TIMES_MEDIAN = 2.0

LEAST_S = 0.25
"""Nothing is late before: what takes less is over before a second attempt has begun."""


class Out(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is out to one worker, and for how long."""

    job: JobRow
    task: TaskRow
    worker: str
    elapsed_s: float


def median_s(tasks: Sequence[TaskRow]) -> float | None:
    """What a task of a job takes, by our clock; None before any is done."""
    seconds = [
        attempt.seconds
        for task in tasks
        if task.state is TaskState.DONE
        for attempt in task.attempts
        if attempt.token == task.token and attempt.seconds is not None
    ]
    return median(seconds) if seconds else None


def is_late(elapsed_s: float, usual_s: float | None) -> bool:
    """Whether a task has taken so long that somebody else should try, too."""
    return usual_s is not None and elapsed_s > max(LEAST_S, TIMES_MEDIAN * usual_s)


def rescue(out: Sequence[Out], usual_s: Mapping[str, float | None], worker: FleetWorker) -> tuple[Out, Device] | None:
    """What an idle worker should try a second time, and on which of its devices: the one that is out longest.

    Nothing that it has itself, that two have, that it failed, or that would take it longer than it has taken already.
    """
    for each in sorted(out, key=lambda each: (-each.elapsed_s, each.task.id)):
        task = each.task
        if each.worker == worker.id or task.spec.once or task.rival is not None or worker.id in task.failed_on:
            continue
        if not is_late(each.elapsed_s, usual_s.get(each.job.id)):
            continue
        device = device_for(each.job, worker)
        if device is None or not task_in_time(each.job, task, worker):
            continue
        if worker.profile.seconds(task.spec.cost) <= each.elapsed_s:
            return each, device
    return None
