"""Who gets what next: pure. The store brings ready work, the fleet says who asks; `choose` answers with picks.

Submitters take turns (`fairness`); inside one, priority and age decide, moved by the seconds that are saved where a
worker has the data already; inside a job, tasks that came back go before fresh grains. A fresh task is cut to the
smaller of a second and half of the worker's share of what is left, so that a small job uses every fitting worker and
the tail is short; but to no less than what a task is worth that has to be sent, checked and kept.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from moregpu.coordinator.fairness import moved_on, rank_s
from moregpu.coordinator.fitting import could_fit, device_for, devices_for, fits, lanes, task_in_time, waiting_reason
from moregpu.coordinator.store.protocol import (
    Candidate,
    Candidates,
    Choice,
    Fits,
    FleetWorker,
    JobRow,
    TaskRow,
)
from moregpu.jobs import Blob, Tensor
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

__all__ = [
    "Cut",
    "choose",
    "device_for",
    "fits",
    "is_hopeless",
    "may_take",
    "slots_for",
    "waiting_reason",
]

TASK_S = 1.0
"""Aim for one task on the worker that gets it."""

LEAST_TASK_S = 0.1
"""A task takes the coordinator 10 to 20 ms where its arrays travel as blobs, and its way as long again: of the halves
of halves of a short job most were dearer than what they computed. In eleven tasks a product of 1024 took 379 ms on two
workers and a sum of 4 million elements 619, in two or three 215 and 383; what they compute takes 30 and 10."""

LEFT_OVER = 0.125
"""Of that: what would be left of a job, or of a worker's share, goes with the task before it where it is less."""

QUEUED_S = 0.05
"""Measured task time that a worker holds beyond what a round trip hides."""

MAX_SLOTS = 64

ROUNDED = 1.0 + 2.0**-20
"""A share of half the grains is that many, whatever the last bit of a quotient says."""

LINK_BYTES_S = 100e6
"""Bytes a second that a worker fetches, to say what data that it has already saves: gigabit Ethernet, nearly."""

HIDDEN_S = 0.001
"""Work that one way to a worker hides: tasks so small queue there, or each would wait for the one before to travel."""

LOOK_AHEAD = 16
"""Jobs of one submitter among which the nearest is looked for."""


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
    """Pick at most `slots` tasks for `worker`; who was served least for their share goes next, task by task.

    A worker that has work in hand (`held_s`, beyond `HIDDEN_S`) takes more only as long as that ends before all workers
    together could be done with what is ready: what it would only queue, another one starts sooner.

    `fleet`: every connected worker that takes work; a task is not offered to a worker that failed it while another one
    there fits and has not. Without it, `worker.peers` stands in.
    """
    takes = _taker(worker)
    # (account, order, submitter, share, tasks): the lowest account goes next, of equal ones the longest unserved.
    turns: list[tuple[float, int, str, float, Iterator[tuple[Choice, float]]]] = []
    on = Counter(worker.held_on)
    for order, submitter in enumerate(candidates.submitters()):
        at, share = candidates.turn(submitter)
        turns.append((at, order, submitter, share, _draw(candidates.of(submitter, takes), worker, on, fleet, cut)))
    order = len(turns)
    heapq.heapify(turns)
    horizon = _Horizon(candidates, worker)
    in_hand_s, side_by_side = worker.held_s, lanes(worker.devices)
    picks: list[Choice] = []
    while turns and len(picks) < slots and not (in_hand_s > HIDDEN_S and not horizon.is_beyond(in_hand_s)):
        at, _, submitter, share, tasks = turns[0]
        pick = next(tasks, None)
        if pick is None:
            heapq.heappop(turns)
            continue
        choice, seconds = pick
        picks.append(choice)
        on[choice.device] += 1
        in_hand_s += max(seconds, 1e-9) / side_by_side
        order += 1
        heapq.heapreplace(turns, (moved_on(at, seconds, share), order, submitter, share, tasks))
    return picks


def _taker(worker: FleetWorker) -> Fits:
    """Whether the worker could take a job, asked once for all that are alike."""
    return lambda job, barred: worker.owner not in barred and could_fit(job, worker)


def _draw(
    jobs: Iterator[Candidate], worker: FleetWorker, on: Counter[str], fleet: Sequence[FleetWorker], cut: Cut
) -> Iterator[tuple[Choice, float]]:
    """One submitter's tasks that this worker may take, best first, with their seconds there.

    `on` counts what each of its devices has: the one with the least gets the next.
    """
    before: JobRow | None = None
    devices: Sequence[Device] = ()
    for candidate in _nearest_first(jobs, worker):
        job = candidate.job
        if before is None or not _asks_the_same(job, before):
            devices = devices_for(job, worker)
        before = job
        if not devices:
            continue
        for task in _nearest(candidate.waiting, worker):
            if may_take(job, task, worker, fleet):
                device = _idlest(devices, on)
                yield Choice(job=job.id, task=task.id, device=device), worker.profile.seconds(task.spec.cost)
        yield from _fresh(job, worker, devices, on, cut)


def _asks_the_same(job: JobRow, before: JobRow) -> bool:
    """Whether two jobs of one submitter fit the same devices: told at a glance, for rows of jobs that are alike."""
    one, other = job.spec, before.spec
    return (
        job.plan is before.plan
        and one.memory_bytes == other.memory_bytes
        and one.time_limit_s == other.time_limit_s
        and job.submitter_name == before.submitter_name
        and job.submitter_groups == before.submitter_groups
    )


def _idlest(devices: Sequence[Device], on: Counter[str]) -> str:
    return devices[0].id if len(devices) == 1 else min(devices, key=lambda device: on[device.id]).id


def _nearest_first(jobs: Iterator[Candidate], worker: FleetWorker) -> Iterator[Candidate]:
    """Jobs by their rank, each earlier by the seconds that are saved because the worker has its data already.

    What is near overtakes only what is younger than that, so nothing waits for ever on account of being far.
    """
    if not worker.hot:
        yield from jobs
        return
    window = list(islice(jobs, LOOK_AHEAD))
    while window:
        best = min(window, key=lambda each: _standing_s(each.job, worker))
        window.remove(best)
        yield best
        window += islice(jobs, 1)


def _standing_s(job: JobRow, worker: FleetWorker) -> float:
    saved_s = _hot_bytes(job.spec.inputs.values(), worker) / LINK_BYTES_S
    return rank_s(job.created_at, job.spec.priority) - saved_s


def _nearest(waiting: Sequence[TaskRow], worker: FleetWorker) -> Sequence[TaskRow]:
    """Tasks that came back, those first whose data the worker has."""
    if not worker.hot or len(waiting) < 2:
        return waiting
    return sorted(waiting, key=lambda task: -_hot_bytes(task.spec.inputs.values(), worker))


def _hot_bytes(tensors: Iterable[Tensor], worker: FleetWorker) -> int:
    return sum(
        tensor.part_bytes for tensor in tensors if isinstance(tensor.data, Blob) and tensor.data.digest in worker.hot
    )


def _fresh(
    job: JobRow, worker: FleetWorker, devices: Sequence[Device], on: Counter[str], cut: Cut
) -> Iterator[tuple[Choice, float]]:
    """Cut from the cursor on, no more than this worker's share of what is left: others may be about to ask."""
    if job.plan.grains - job.cursor == 1:  # nothing to share, whatever it costs
        spec = cut(job.spec, job.plan, job.cursor, worker.profile, TASK_S)
        yield Choice(job=job.id, cut=spec, device=_idlest(devices, on)), worker.profile.seconds(spec.cost)
        return
    share_s = _share_s(job.plan, job.plan.grains - job.cursor, worker)
    least_s = _least_task_s(job.plan, worker)
    cursor, taken_s = job.cursor, 0.0
    while cursor < job.plan.grains and (taken_s == 0.0 or taken_s + LEFT_OVER * least_s < share_s):
        budget_s = task_budget_s(job, job.plan.grains - cursor, worker)
        if taken_s > 0.0:
            budget_s = min(budget_s, share_s - taken_s)
        spec = cut(job.spec, job.plan, cursor, worker.profile, budget_s)
        cursor = spec.grains[1]
        seconds = worker.profile.seconds(spec.cost)
        taken_s += max(seconds, 1e-9)
        yield Choice(job=job.id, cut=spec, device=_idlest(devices, on)), seconds


class _Horizon:
    """When all workers together could be done with what is ready for this one; summed only as far as is asked."""

    def __init__(self, candidates: Candidates, worker: FleetWorker):
        self._seconds = 0.0
        self._parts = (
            _share_s(candidate.job.plan, candidate.uncut, worker)
            + sum(task.spec.cost.amount for task in candidate.waiting) / _total_speed(candidate.job.plan.cost, worker)
            for submitter in candidates.submitters()
            for candidate in candidates.of(submitter, _taker(worker))
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
    """Seconds for the next task: about one, half of the worker's share of what is left, half of a time limit.

    No less than a task is worth, and all that is left where the rest would be worth none.
    """
    limit = job.spec.time_limit_s
    share_s, least_s = _share_s(job.plan, grains_left, worker), _least_task_s(job.plan, worker)
    budget_s = min(TASK_S, max(0.5 * share_s, least_s))
    left_s = share_s * _total_speed(job.plan.cost, worker) / _own_speed(job.plan.cost, worker)
    if left_s < budget_s + LEFT_OVER * least_s:
        budget_s = left_s
    return ROUNDED * (budget_s if limit is None else min(budget_s, 0.5 * limit))


def _least_task_s(plan: Plan, worker: FleetWorker) -> float:
    """Seconds that a task should take at least: no more than each worker's share of the whole job."""
    return min(LEAST_TASK_S, _share_s(plan, plan.grains, worker))


def _share_s(plan: Plan, grains_left: int, worker: FleetWorker) -> float:
    """Seconds that what is left takes when every worker does its share of it: the same for each of them."""
    return plan.grain_amount * grains_left / _total_speed(plan.cost, worker)


def _total_speed(cost: Cost, worker: FleetWorker) -> float:
    """Speed × duty of all workers at this kind of work; where nobody measured it, as many as this one."""
    own = _own_speed(cost, worker)
    return max(worker.total_speed.get(cost.speed_key, own * max(1, worker.peers)), own)


def _own_speed(cost: Cost, worker: FleetWorker) -> float:
    nominal = NOMINAL_FLOPS if cost.bound_by == "flops" else NOMINAL_BYTES
    return worker.profile.speeds.get(cost.speed_key, nominal) * max(worker.profile.duty, 0.05)


def may_take(job: JobRow, task: TaskRow, worker: FleetWorker, fleet: Sequence[FleetWorker] = ()) -> bool:
    """Whether a waiting task may go to `worker`.

    Not where it failed before, while another one fits; not to an owner whose word about it is there already; not where
    it cannot end within its time limit.
    """
    if not _is_open_to(job, task, worker):
        return False
    if worker.id not in task.failed_on:
        return True
    if not fleet:
        return worker.peers <= len(task.failed_on)
    return not any(
        other.id not in task.failed_on and fits(job, other) and _is_open_to(job, task, other) for other in fleet
    )


def _is_open_to(job: JobRow, task: TaskRow, worker: FleetWorker) -> bool:
    """Whether the owner of `worker` has no word about the task there already, and it can end there in time."""
    voted = any(vote.owner == worker.owner or vote.worker == worker.id for vote in task.votes)
    return not voted and task_in_time(job, task, worker)


def is_hopeless(job: JobRow, task: TaskRow, also: str, fleet: Sequence[FleetWorker]) -> bool:
    """Whether every fitting worker that is here failed the task once (`also`: the one that fails it now).

    Then it fails for good instead of going round: `Failed(final=True)`. A pool of a single fitting worker may try
    again there, up to the job's `retries`.
    """
    fitting = {worker.id for worker in fleet if fits(job, worker)}
    return len(fitting) > 1 and fitting <= {*task.failed_on, also}


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
