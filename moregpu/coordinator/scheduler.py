"""Who gets what next: pure. The store brings ready work, the fleet says who asks; `choose` answers with picks.

Submitters take turns, the one that was served longest ago first; inside one submitter, priority and age decide;
inside a job, tasks that came back go before fresh grains. A fresh task is cut to the smaller of a second and half of
the worker's share of what is left, so that a small job uses every fitting worker and the tail is short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from moregpu.coordinator.store.protocol import (
    Candidate,
    Candidates,
    Choice,
    FleetWorker,
    JobRow,
    TaskRow,
)
from moregpu.wire.messages import Device
from moregpu.workloads import JobSpec, workload
from moregpu.workloads.protocol import (
    NOMINAL_BYTES,
    NOMINAL_FLOPS,
    Cost,
    Plan,
    TaskSpec,
    WorkerProfile,
)

TASK_S = 1.0
"""Aim for one task on the worker that gets it."""

QUEUED_S = 0.05
"""Measured task time that a worker holds beyond what a round trip hides."""

MAX_SLOTS = 64

GIB = 1 << 30


class Cut(Protocol):
    """Cuts a fresh task: `Workload.cut` of the plan's kind."""

    def __call__(self, spec: JobSpec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> TaskSpec:
        """Cut from grain `cursor` on, at least one grain, about `budget_s` on `worker`."""
        ...


def cut_by_workload(spec: JobSpec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> TaskSpec:
    """Let the plan's own kind cut."""
    return workload(plan.kind).cut(spec, plan, cursor, worker, budget_s)


# ---- choosing --------------------------------------------------------------------------------------------------------


def choose(
    candidates: Candidates,
    worker: FleetWorker,
    slots: int,
    now: float,
    *,
    fleet: Sequence[FleetWorker] = (),
    cut: Cut = cut_by_workload,
) -> list[Choice]:
    """Pick at most `slots` tasks for `worker`, one for each submitter in turn.

    A worker that has work in hand (`held_s`) takes more only as long as that ends before all workers together could be
    done with what is ready: what it would only queue, another one starts sooner.

    `fleet`: every connected worker that takes work; a task is not offered to a worker that failed it while another one
    there fits and has not. Without it, `worker.peers` stands in.
    """
    turns = [_draw(candidates.of(submitter), worker, fleet, cut) for submitter in candidates.submitters()]
    horizon = _Horizon(candidates, worker)
    in_hand_s = worker.held_s
    picks: list[Choice] = []
    while turns:
        for turn in list(turns):
            if len(picks) >= slots or (in_hand_s > 0.0 and not horizon.is_beyond(in_hand_s)):
                return picks
            pick = next(turn, None)
            if pick is None:
                turns.remove(turn)
                continue
            choice, seconds = pick
            picks.append(choice)
            in_hand_s += max(seconds, 1e-9)
    return picks


def _draw(
    jobs: Iterator[Candidate], worker: FleetWorker, fleet: Sequence[FleetWorker], cut: Cut
) -> Iterator[tuple[Choice, float]]:
    """One submitter's tasks that this worker may take, best first, with their seconds there."""
    for candidate in jobs:
        job = candidate.job
        device = device_for(job, worker)
        if device is None:
            continue
        for task in candidate.waiting:
            if may_take(job, task, worker, fleet):
                yield Choice(job=job.id, task=task.id, device=device.id), worker.profile.seconds(task.spec.cost)
        yield from _fresh(job, worker, device, cut)


def _fresh(job: JobRow, worker: FleetWorker, device: Device, cut: Cut) -> Iterator[tuple[Choice, float]]:
    """Cut from the cursor on, no more than this worker's share of what is left: others may be about to ask."""
    share_s = _share_s(job.plan, job.plan.grains - job.cursor, worker)
    cursor, taken_s = job.cursor, 0.0
    while cursor < job.plan.grains and (taken_s == 0.0 or taken_s < share_s):
        budget_s = min(task_budget_s(job, job.plan.grains - cursor, worker), share_s - taken_s)
        spec = cut(job.spec, job.plan, cursor, worker.profile, budget_s)
        cursor = spec.grains[1]
        seconds = worker.profile.seconds(spec.cost)
        taken_s += max(seconds, 1e-9)
        yield Choice(job=job.id, cut=spec, device=device.id), seconds


class _Horizon:
    """When all workers together could be done with what is ready for this one; summed only as far as is asked."""

    def __init__(self, candidates: Candidates, worker: FleetWorker):
        self._seconds = 0.0
        self._parts = (
            _share_s(candidate.job.plan, candidate.uncut, worker)
            + sum(task.spec.cost.amount for task in candidate.waiting) / _total_speed(candidate.job.plan.cost, worker)
            for submitter in candidates.submitters()
            for candidate in candidates.of(submitter)
            if fits(candidate.job, worker)
        )

    def is_beyond(self, seconds: float) -> bool:
        """Whether it lies further off than `seconds`."""
        while not self._seconds > seconds:
            part = next(self._parts, None)
            if part is None:
                return False
            self._seconds += part
        return True


def task_budget_s(job: JobRow, grains_left: int, worker: FleetWorker) -> float:
    """Seconds for the next task: about one, half of the worker's share of what is left, half of a time limit."""
    limit = job.spec.time_limit_s
    budget_s = min(TASK_S, 0.5 * _share_s(job.plan, grains_left, worker))
    return budget_s if limit is None else min(budget_s, 0.5 * limit)


def _share_s(plan: Plan, grains_left: int, worker: FleetWorker) -> float:
    """Seconds that what is left takes when every worker does its share of it: the same for each of them."""
    return plan.grain_amount * grains_left / _total_speed(plan.cost, worker)


def _total_speed(cost: Cost, worker: FleetWorker) -> float:
    """Speed × duty of all workers at this kind of work; where nobody measured it, as many as this one."""
    nominal = NOMINAL_FLOPS if cost.bound_by == "flops" else NOMINAL_BYTES
    own = worker.profile.speeds.get(cost.speed_key, nominal) * max(worker.profile.duty, 0.05)
    return max(worker.total_speed.get(cost.speed_key, own * max(1, worker.peers)), own)


def may_take(job: JobRow, task: TaskRow, worker: FleetWorker, fleet: Sequence[FleetWorker] = ()) -> bool:
    """Whether a waiting task may go to `worker`: not where it failed before, while another one fits."""
    if worker.id not in task.failed_on:
        return True
    if not fleet:
        return worker.peers <= len(task.failed_on)
    return not any(other.id not in task.failed_on and fits(job, other) for other in fleet)


def is_hopeless(job: JobRow, task: TaskRow, also: str, fleet: Sequence[FleetWorker]) -> bool:
    """Whether every fitting worker that is here failed the task once (`also`: the one that fails it now).

    Then it fails for good instead of going round: `Failed(final=True)`. A pool of a single fitting worker may try
    again there, up to the job's `retries`.
    """
    fitting = {worker.id for worker in fleet if fits(job, worker)}
    return len(fitting) > 1 and fitting <= {*task.failed_on, also}


# ---- fitting ---------------------------------------------------------------------------------------------------------


def fits(job: JobRow, worker: FleetWorker) -> bool:
    """Whether `worker` can run the job's tasks at all."""
    return device_for(job, worker) is not None


def device_for(job: JobRow, worker: FleetWorker) -> Device | None:
    """The worker's device for the job: one that fits, a GPU before a CPU; None when nothing there fits."""
    if any(misfit for misfit in (_misfit_kind, _misfit_group, _misfit_memory, _misfit_time) if misfit(job, worker)):
        return None
    devices = _devices(job, worker)
    return min(devices, key=lambda device: device.kind != "gpu", default=None)


def _devices(job: JobRow, worker: FleetWorker) -> list[Device]:
    needs = job.plan.needs
    wanted = (needs.device or "").casefold()
    return [
        device
        for device in worker.devices
        if needs.engine in ("auto", device.kind)
        and (not wanted or wanted == device.id.casefold() or wanted in device.name.casefold())
    ]


def _memory_needed(job: JobRow) -> int:
    return max(job.plan.task_memory_bytes, job.plan.needs.memory_bytes, job.spec.memory_bytes or 0)


def _misfit_kind(job: JobRow, worker: FleetWorker) -> bool:
    return job.plan.needs.kind not in worker.kinds


def _misfit_group(job: JobRow, worker: FleetWorker) -> bool:
    return job.plan.needs.group is not None and job.plan.needs.group not in worker.groups


def _misfit_engine(job: JobRow, worker: FleetWorker) -> bool:
    return not any(job.plan.needs.engine in ("auto", device.kind) for device in worker.devices)


def _misfit_device(job: JobRow, worker: FleetWorker) -> bool:
    return not _devices(job, worker)


def _misfit_memory(job: JobRow, worker: FleetWorker) -> bool:
    return _memory_needed(job) > worker.profile.memory_budget_bytes


def _misfit_time(job: JobRow, worker: FleetWorker) -> bool:
    limit = job.spec.time_limit_s
    return limit is not None and not worker.profile.seconds(_grain_cost(job.plan)) <= limit


def _grain_cost(plan: Plan) -> Cost:
    grains = max(1, plan.grains)
    cost = plan.cost
    return Cost(
        flops=cost.flops / grains,
        moved_bytes=cost.moved_bytes / grains,
        speed_key=cost.speed_key,
        bound_by=cost.bound_by,
    )


# ---- saying why a job waits ------------------------------------------------------------------------------------------


def waiting_reason(
    job: JobRow,
    fleet: Sequence[FleetWorker],
    *,
    blocked_by: Sequence[str] = (),
    waiting: Sequence[TaskRow] = (),
) -> str:
    """Why a job has not started or does not go on, in one short sentence; "" when nothing is in its way.

    `fleet`: connected workers that take work. `blocked_by`: jobs of its `after` that are not done. `waiting`: its tasks
    that came back. The reason named is the last hurdle that nobody takes, for those who took the ones before.
    """
    if blocked_by:
        others = f" and {len(blocked_by) - 1} more" if len(blocked_by) > 1 else ""
        return f"waits for {blocked_by[0]}{others} to be done"
    if not fleet:
        return "no worker is connected"
    left = list(fleet)
    for misfit, reason in _HURDLES:
        fitting = [worker for worker in left if not misfit(job, worker)]
        if not fitting:
            return reason(job, left)
        left = fitting
    if waiting and job.cursor >= job.plan.grains:
        failed = waiting[0].failed_on
        if failed and all(worker.id in failed for worker in left):
            return "every fitting worker failed a task of it once; it waits for another one, or is tried again"
    return ""


def _kind_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no worker accepts {job.plan.needs.kind} jobs"


def _group_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no connected worker is in the group {job.plan.needs.group!r}"


def _engine_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no worker here offers a {job.plan.needs.engine.upper()}"


def _device_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no worker here has a device called {job.plan.needs.device!r}"


def _memory_reason(job: JobRow, workers: Sequence[FleetWorker]) -> str:
    largest = max(worker.profile.memory_budget_bytes for worker in workers)
    return (
        f"a task needs {_memory_needed(job) / GIB:.1f} GiB of memory; "
        f"the largest fitting worker offers {largest / GIB:.1f} GiB"
    )


def _time_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no worker here can finish a task within {job.spec.time_limit_s:g} s"


_HURDLES: tuple[tuple[Callable[[JobRow, FleetWorker], bool], Callable[[JobRow, Sequence[FleetWorker]], str]], ...] = (
    (_misfit_kind, _kind_reason),
    (_misfit_group, _group_reason),
    (_misfit_engine, _engine_reason),
    (_misfit_device, _device_reason),
    (_misfit_memory, _memory_reason),
    (_misfit_time, _time_reason),
)


# ---- how much a worker holds -----------------------------------------------------------------------------------------


def slots_for(task_seconds: float, round_trip_s: float) -> int:
    """Leases a worker should hold: about 50 ms of measured task time plus two round trips, 1 to 64.

    One runs, the others wait for it there, so that the worker never waits for us.
    """
    if not task_seconds > 0:
        return MAX_SLOTS if task_seconds == 0 else 1
    wanted = (QUEUED_S + 2 * max(0.0, round_trip_s)) / task_seconds
    if not wanted > 1:
        return 1
    return math.ceil(wanted) if wanted < MAX_SLOTS else MAX_SLOTS
