"""Jobs and workers as people see them."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from moregpu.coordinator.fitting import fits, waiting_reason
from moregpu.coordinator.fleet import Fleet, Member, lower, sees_our_leaf
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.protocol import Clock, Principal
from moregpu.coordinator.retention import kept_until
from moregpu.coordinator.session import WorkerSession
from moregpu.coordinator.store.protocol import JobRow, Store, TaskRow, WorkerRow
from moregpu.jobs import JOB_ENDED, JobState, TaskState
from moregpu.wire.api import AttemptView, DeviceView, JobView, LimitsView, PlanView, TaskView, Timing, WorkerView
from moregpu.wire.messages import Limits
from moregpu.workloads.protocol import NOMINAL_BYTES, NOMINAL_FLOPS, Plan

SCORE_KEY = "matmul.float32"
WorkerState = Literal["online", "offline", "pending", "paused", "draining", "revoked", "quarantined"]

TO_BE_RESUMED = "resume it once"
"""So the reason says of a worker that only its admin may let work again."""

TASKS_LISTED = 64
"""A list shows the workers of jobs up to so many tasks; one job's own page shows all."""


class Views:
    """Makes views from rows and from who is connected."""

    def __init__(self, store: Store, fleet: Fleet, clock: Clock, config: DeskConfig) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._config = config

    async def job(self, who: Principal, job: JobRow, *, detail: bool) -> JobView:
        """A job. Its result is there for its submitter alone: it holds keys."""
        running = job.state is JobState.RUNNING
        small = job.tasks_total <= TASKS_LISTED
        tasks = await self._store.tasks(job.id) if detail or running or small else []
        names = {row.id: row.name for row in await self._store.workers()} if detail else {}
        return JobView(
            id=job.id,
            kind=job.kind,
            name=job.spec.name,
            state=job.state,
            submitter=job.submitter,
            submitter_name=job.submitter_name,
            created_at=job.created_at,
            started_at=job.started_at,
            ended_at=job.ended_at,
            grains=job.plan.grains,
            grains_done=job.grains_done,
            tasks_total=job.tasks_total,
            tasks_done=job.tasks_done,
            checked=is_checked(job, tasks),
            evidence=job.evidence,
            # Nothing is accepted without a verified signature over its statement (`judge`).
            signed=job.state is JobState.DONE,
            workers=_workers_of(tasks),
            waiting_reason=self._waiting_reason(job, tasks),
            purged=job.purged,
            kept_until=kept_until(job),
            error=job.error,
            timing=_timing(job),
            result=job.result if job.submitter == who.id else None,
            tasks=[_task_view(task, names) for task in tasks] if detail else None,
            summary=job.plan.summary,
            failed_calls=job.failed_calls,
        )

    def plan(self, plan: Plan, job: JobRow) -> PlanView:
        """What a job would do. `job` is a row that was never kept."""
        fleet = self._fleet.workers()
        fitting = [worker for worker in fleet if fits(job, worker)]
        nominal = NOMINAL_FLOPS if plan.cost.bound_by == "flops" else NOMINAL_BYTES
        speed = sum(worker.profile.speeds.get(plan.cost.speed_key, nominal) * worker.profile.duty for worker in fitting)
        return PlanView(
            kind=plan.kind,
            summary=plan.summary,
            grains=plan.grains,
            flops=plan.cost.flops,
            moved_bytes=plan.cost.moved_bytes,
            task_memory_bytes=plan.task_memory_bytes,
            fitting_workers=len(fitting),
            estimate_s=plan.cost.amount / speed if speed > 0 else None,
            waiting_reason=waiting_reason(job, fleet),
        )

    def worker(self, row: WorkerRow) -> WorkerView:
        """A worker, connected or not."""
        member = self._fleet.get(row.id)
        limits = lower(member.hello.limits, row.limits) if member is not None else row.limits
        speeds = member.speeds if member is not None else row.speeds
        session = member.session if member is not None else None
        return WorkerView(
            id=row.id,
            name=row.name,
            owner=row.owner,
            groups=list(row.groups),
            state=_state(row, member),
            reason=_reason(row, session),
            devices=[msgspec.convert(device, DeviceView, from_attributes=True) for device in row.devices],
            kinds=list(member.kinds) if member is not None else list(row.kinds_allowed),
            isolation=member.hello.isolation if member is not None else "none",
            system=row.system,
            version=row.version,
            limits=_limits_view(limits),
            owner_limits=_limits_view(member.hello.limits if member is not None else Limits()),
            duty=dict(session.duty) if session is not None else {},
            user_load=session.user_load if session is not None else 0.0,
            speeds=dict(speeds),
            score=score(speeds),
            leases=len(session.held) if session is not None else 0,
            tasks_done=row.tasks_done,
            tasks_failed=row.tasks_failed,
            busy_s=row.busy_s,
            round_trip_s=session.round_trip_s or None if session is not None else None,
            connected_at=member.connected_at if member is not None else None,
            # The row is written when a worker comes or goes, not with each heartbeat.
            seen_at=(row.seen_at if session is None else self._on_the_wall(session.heard)) or None,
            enrolled_at=row.enrolled_at,
            tls_ends_here=member is None or sees_our_leaf(member.hello, self._config.leaves),
            consent=row.consent,
        )

    def _on_the_wall(self, monotonic: float) -> float:
        return self._clock.wall() - (self._clock.monotonic() - monotonic)

    def _waiting_reason(self, job: JobRow, tasks: list[TaskRow]) -> str:
        if job.state in JOB_ENDED:
            return ""
        leased = [task for task in tasks if task.state is TaskState.LEASED]
        if leased:
            holders = {task.worker: self._fleet.get(task.worker) for task in leased if task.worker is not None}
            return _resting([member for member in holders.values() if member is not None])
        waiting = [task for task in tasks if task.state is TaskState.WAITING]
        blocked_by = self._store.blocked_by(job)
        fleet = self._fleet.workers()
        if not fleet and not blocked_by and (idle := next(iter(self._fleet), None)) is not None:
            return _idle_reason(idle, len(self._fleet))
        said = waiting_reason(job, fleet, blocked_by=blocked_by, waiting=waiting)
        return said or self._resting_reason(job)

    def _resting_reason(self, job: JobRow) -> str:
        """What keeps every worker that fits from computing at all now, in its own words; "" when one of them does."""
        return _resting(
            [member for member in self._fleet if member.takes_work and fits(job, self._fleet.worker(member))]
        )


def _idle_reason(first: Member, count: int) -> str:
    """Why none of the workers that are connected takes work, with the first one's state and reason."""
    reason = _reason(first.row, first.session)
    state = f"{first.row.name} is {_state(first.row, first)}{f' ({reason})' if reason else ''}"
    return f"no worker takes work: {state}{f', and {count - 1} more do not' if count > 1 else ''}"


def _resting(members: list[Member]) -> str:
    """What keeps all of these workers from computing, in the first one's words; "" when one of them computes."""
    if not members or not all(member.session.resting for member in members):
        return ""
    first = members[0]
    others = f" (and {len(members) - 1} more rest)" if len(members) > 1 else ""
    return f"{first.row.name} gives nothing now: {first.session.reason or 'it rests'}{others}"


def is_checked(job: JobRow, tasks: list[TaskRow]) -> bool:
    """Every task's result was found right, by its evidence; a job without tasks had nothing to check."""
    if job.state is not JobState.DONE:
        return False
    sure = sum(job.evidence.get(kind, 0) for kind in ("recomputed", "freivalds", "agreed", "audited"))
    if sure == job.tasks_done:
        return True
    if any(job.evidence.get(kind, 0) for kind in ("unchecked", "suspect")):
        return False
    done = [task for task in tasks if task.state is TaskState.DONE]
    return len(done) == job.tasks_done and all(task.evidence is not None and task.evidence.checked for task in done)


def score(speeds: dict[str, float]) -> int:
    """0–100: `25·log10(GFLOP/s of float32 matmul)`, clamped."""
    gflops = speeds.get(SCORE_KEY, 0.0) / 1e9
    return max(0, min(100, round(25.0 * math.log10(gflops)))) if gflops > 0.0 else 0


def _state(row: WorkerRow, member: Member | None) -> WorkerState:
    if row.revoked:
        return "revoked"
    if row.trust.quarantined:
        return "quarantined"
    if member is None:
        return "offline"
    if not row.approved:
        return "pending"
    if row.draining:
        return "draining"
    return "paused" if row.paused or member.session.paused else "online"


def _reason(row: WorkerRow, session: WorkerSession | None) -> str:
    trust = row.trust
    if trust.quarantined:
        return f"{trust.wrong} of its results were proven wrong; {TO_BE_RESUMED} its machine is mended"
    if row.paused and row.paused_for:
        return f"{row.paused_for}; {TO_BE_RESUMED} that is mended"
    if session is not None and session.on_trial:
        return "being measured"
    if session is not None and session.reason:
        return session.reason
    return f"on probation: {trust.probation_left} more results are checked in full" if trust.probation_left else ""


def _limits_view(limits: Limits) -> LimitsView:
    return msgspec.convert(limits, LimitsView, from_attributes=True)


def _workers_of(tasks: list[TaskRow]) -> list[str]:
    seen: dict[str, None] = {}
    for task in tasks:
        if task.state is TaskState.DONE and task.worker is not None:
            seen[task.worker] = None
    return list(seen)


def _timing(job: JobRow) -> Timing:
    started = job.started_at
    running_s = 0.0
    if started is not None and job.ended_at is not None:
        running_s = max(0.0, job.ended_at - started - job.combining_s)
    return Timing(
        queued_s=max(0.0, started - job.created_at) if started is not None else 0.0,
        running_s=running_s,
        checking_s=job.checking_s,
        combining_s=job.combining_s,
    )


def _task_view(task: TaskRow, names: dict[str, str]) -> TaskView:
    return TaskView(
        id=task.id,
        number=task.number,
        state=task.state,
        grains=task.spec.grains,
        worker=task.worker,
        evidence=task.evidence,
        attempts=[
            AttemptView(
                number=attempt.number,
                worker=attempt.worker,
                worker_name=names.get(attempt.worker, ""),
                state=attempt.state,
                leased_at=attempt.leased_at,
                ended_at=attempt.ended_at,
                seconds=attempt.seconds,
                error=attempt.error,
            )
            for attempt in task.attempts
        ],
    )
