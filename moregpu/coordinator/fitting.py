"""Which worker could run a job at all, and why a job waits: pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence

from moregpu.coordinator.store.protocol import FleetWorker, JobRow, TaskRow
from moregpu.wire.messages import EVERYBODY, OF_GROUP, Device
from moregpu.workloads.protocol import Cost, Plan

GIB = 1 << 30

FitClass = tuple[object, ...]


def fits(job: JobRow, worker: FleetWorker) -> bool:
    """Whether `worker` can run the job's tasks at all."""
    return device_for(job, worker) is not None


def device_for(job: JobRow, worker: FleetWorker) -> Device | None:
    """The worker's device for the job: one that fits, a GPU before a CPU; None when nothing there fits."""
    return next(iter(devices_for(job, worker)), None)


def devices_for(job: JobRow, worker: FleetWorker) -> list[Device]:
    """The worker's devices that share the job's tasks: all GPUs that fit, else its CPU; empty when nothing fits."""
    if not _is_let_in(job, worker) or _misfit_memory(job, worker) or _misfit_time(job, worker):
        return []
    devices = _devices(job, worker)
    return [device for device in devices if device.kind == "gpu"] or devices[:1]


def _is_let_in(job: JobRow, worker: FleetWorker) -> bool:
    return not (_misfit_kind(job, worker) or _misfit_consent(job, worker) or _misfit_group(job, worker))


def lanes(devices: Iterable[Device]) -> int:
    """How many tasks a worker computes side by side: one for each GPU, or one on its CPU."""
    return max(1, sum(1 for device in devices if device.kind == "gpu"))


def could_fit(job: JobRow, worker: FleetWorker) -> bool:
    """Whether some job of this one's class may fit: `fits`, but for an eighth of the speed that a time limit asks."""
    if not _is_let_in(job, worker) or _misfit_memory(job, worker) or not _devices(job, worker):
        return False
    return _task_limit_s(job) is None or _speed(job, worker) >= _speed_class(job)


def fit_class(job: JobRow) -> FitClass:
    """Jobs of one class could fit the same workers: ten thousand that are alike are looked at once.

    All that `could_fit` asks a job is in here.
    """
    needs, cost = job.plan.needs, job.plan.cost
    timing = () if _task_limit_s(job) is None else (_speed_class(job), cost.bound_by, cost.speed_key)
    whose = (job.submitter, job.submitter_name, job.submitter_groups) if needs.own_code else ()
    hardware = (needs.engine, needs.device, needs.cores, needs.vram_bytes)
    return (needs.kind, needs.group, hardware, memory_needed(job), *timing, *whose)


def _speed(job: JobRow, worker: FleetWorker) -> float:
    """Amount a second that the worker does of the job's work."""
    cost = job.plan.cost
    return 1.0 / worker.profile.seconds(
        Cost(flops=1.0, moved_bytes=1.0, speed_key=cost.speed_key, bound_by=cost.bound_by)
    )


def _speed_class(job: JobRow) -> int:
    """The speed that a job's time limit asks for a grain, in steps of an eighth, rounded down."""
    asked = int(min(job.plan.grain_amount / (job.spec.time_limit_s or 1.0), 1e30))
    step = 1 << max(0, asked.bit_length() - 4)
    return asked // step * step


def memory_needed(job: JobRow) -> int:
    """What one task needs, in steps of an eighth or less, so that there are few classes of jobs."""
    needed = max(job.plan.task_memory_bytes, job.plan.needs.memory_bytes, job.spec.memory_bytes or 0)
    step = 1 << max(0, needed.bit_length() - 4)
    return -(-needed // step) * step


def task_in_time(job: JobRow, task: TaskRow, worker: FleetWorker) -> bool:
    """Whether the worker, by its measured speed, can finish a task that was cut for somebody else within its limit."""
    limit = _task_limit_s(job)
    return limit is None or worker.profile.seconds(task.spec.cost) <= limit


def _task_limit_s(job: JobRow) -> float | None:
    """Seconds for one task, where one can be foreseen."""
    return None if job.plan.needs.own_code else job.spec.time_limit_s


def _devices(job: JobRow, worker: FleetWorker) -> list[Device]:
    needs = job.plan.needs
    wanted = (needs.device or "").casefold()
    return [
        device
        for device in worker.devices
        if needs.engine in ("auto", device.kind)
        and (not wanted or wanted == device.id.casefold() or wanted in device.name.casefold())
        and (device.kind == "gpu" or device.cores >= needs.cores)
        and (device.kind == "cpu" or device.memory_bytes >= needs.vram_bytes)
    ]


def _misfit_kind(job: JobRow, worker: FleetWorker) -> bool:
    return job.plan.needs.kind not in worker.kinds


def _misfit_consent(job: JobRow, worker: FleetWorker) -> bool:
    """Whether the worker's owner lets this submitter's jobs of the kind not in."""
    whose = worker.consent.get(job.plan.needs.kind)
    return whose is not None and EVERYBODY not in whose and _names(job).isdisjoint(whose)


def _names(job: JobRow) -> set[str]:
    """What a job's submitter is called in a consent. A label that reads like a group is nobody's name."""
    groups = {OF_GROUP + group for group in job.submitter_groups}
    label = job.submitter_name
    return groups | {job.submitter} | ({label} if label and not label.startswith(OF_GROUP) else set())


def _misfit_group(job: JobRow, worker: FleetWorker) -> bool:
    return job.plan.needs.group is not None and job.plan.needs.group not in worker.groups


def _misfit_engine(job: JobRow, worker: FleetWorker) -> bool:
    return not any(job.plan.needs.engine in ("auto", device.kind) for device in worker.devices)


def _misfit_device(job: JobRow, worker: FleetWorker) -> bool:
    return not _devices(job, worker)


def _misfit_memory(job: JobRow, worker: FleetWorker) -> bool:
    return memory_needed(job) > worker.profile.memory_budget_bytes


def _misfit_time(job: JobRow, worker: FleetWorker) -> bool:
    limit = _task_limit_s(job)
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
        return _stuck_reason(job, waiting[0], left)
    return ""


def _stuck_reason(job: JobRow, task: TaskRow, fitting: Sequence[FleetWorker]) -> str:
    """Why a task that came back is not leased again."""
    voters = {vote.owner for vote in task.votes}
    others = [worker for worker in fitting if worker.owner not in voters]
    if not others:
        return f"a result must be made again by a worker of another owner than {', '.join(sorted(voters))}"
    if not any(task_in_time(job, task, worker) for worker in others):
        return f"no worker here can finish task {task.number} within {job.spec.time_limit_s:g} s"
    if task.failed_on and all(worker.id in task.failed_on for worker in others):
        return "every fitting worker failed a task of it once; it waits for another one, or is tried again"
    return ""


def _kind_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no worker accepts {job.plan.needs.kind}s{_let_in(job, job.plan.needs.kind + 's')}"


def _let_in(job: JobRow, whom: str) -> str:
    """What an owner does about it, where it is the owner's to say."""
    return f"; `moregpu join --allow {shlex.quote(whom)}` on one lets them in" if job.plan.needs.own_code else ""


def _consent_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    groups = f" ({', '.join(OF_GROUP + group for group in job.submitter_groups)})" if job.submitter_groups else ""
    kind, name = job.plan.needs.kind, job.submitter_name or job.submitter
    return f"no worker accepts {kind}s from {name}{groups}{_let_in(job, f'{kind}s={name}')}"


def _group_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no connected worker is in the group {job.plan.needs.group!r}"


def _engine_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no worker here offers a {job.plan.needs.engine.upper()}"


def _device_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    needs = job.plan.needs
    if needs.cores or needs.vram_bytes:
        asked = [f"{needs.cores} cores"] if needs.cores else []
        asked += [f"{needs.vram_bytes / GIB:.1f} GiB of its own"] if needs.vram_bytes else []
        asked += [f"the name {needs.device!r}"] if needs.device else []
        return f"no worker here has a device with {', '.join(asked)}"
    return f"no worker here has a device called {job.plan.needs.device!r}"


def _memory_reason(job: JobRow, workers: Sequence[FleetWorker]) -> str:
    largest = max(worker.profile.memory_budget_bytes for worker in workers)
    return (
        f"a task needs {memory_needed(job) / GIB:.1f} GiB of memory; "
        f"the largest fitting worker offers {largest / GIB:.1f} GiB"
    )


def _time_reason(job: JobRow, _: Sequence[FleetWorker]) -> str:
    return f"no worker here can finish a task within {job.spec.time_limit_s:g} s"


_HURDLES: tuple[tuple[Callable[[JobRow, FleetWorker], bool], Callable[[JobRow, Sequence[FleetWorker]], str]], ...] = (
    (_misfit_kind, _kind_reason),
    (_misfit_consent, _consent_reason),
    (_misfit_group, _group_reason),
    (_misfit_engine, _engine_reason),
    (_misfit_device, _device_reason),
    (_misfit_memory, _memory_reason),
    (_misfit_time, _time_reason),
)
