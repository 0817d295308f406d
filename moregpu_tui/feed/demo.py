"""A pool that exists only in this process: to look around in, and the fixture of pictures, tests and benchmarks.

From one seed and a clock it makes the same history every time. It answers all calls as a coordinator would, so every
key of the console does something.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from moregpu import ids
from moregpu.errors import Conflict, InvalidJob, NotFound
from moregpu.jobs import Evidence, JobState, TaskState
from moregpu.wire.api import (
    AttemptView,
    AuditView,
    DeviceView,
    Event,
    InviteRequest,
    InviteView,
    JobView,
    LimitsView,
    Me,
    PlanView,
    PoolChange,
    PoolView,
    Problem,
    RotateRequest,
    RotateView,
    TaskView,
    Timing,
    TokenRequest,
    TokenView,
    WorkerChange,
    WorkerView,
)
from moregpu.workloads import JobSpec
from moregpu_tui.feed.demo_cast import JOBS, MACHINES, OWNERS
from moregpu_tui.feed.source import Files, Offer
from moregpu_tui.state.events import (
    Input,
    JobRow,
    Linked,
    Preview,
    Replaced,
    Signatures,
    WorkerRow,
    about,
    happened,
    job_of,
    tasks_of,
    worker_of,
)
from moregpu_tui.state.model import Link, Signature

STEP_S = 0.2


class SimulatedPool:
    """A whole pool: workers that come, work, step back and go; jobs that are submitted and computed."""

    kind = "demo"

    def __init__(
        self,
        count: int = 14,
        *,
        seed: int = 7,
        churn: float = 0.0,
        role: str = "admin",
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`churn`: share of the workers that change in each fifth of a second, beside the pulse of one a second."""
        self._random = random.Random(seed)  # noqa: S311 — a play, no secret
        self._wall, self._clock = wall, clock
        self._churn = churn
        self._name, self._rotating = "homelab", False
        self._keep_bytes: int | None = None
        self._seq = 100
        self._born = wall()
        self.workers: dict[str, WorkerView] = {}
        self.jobs: dict[str, JobView] = {}
        self.invites: dict[str, InviteView] = {}
        self.tokens: dict[str, TokenView] = {}
        self._work: dict[str, float] = {}  # grains a second of running jobs, as they were planned
        self._pending: list[Input] = []
        self._next_pulse = 0.0
        self._next_job = 0.0
        self.me = Me(id="k-demo", label="demo", role=role)  # pyright: ignore[reportArgumentType]
        self.offer: Offer = lambda *inputs: self._pending.extend(inputs)
        self.watched_job = ""
        for number in range(count):
            self._enrol(number)
        for number in range(min(9, count)):
            self._submit_one(number, done=number >= 6)
        self._make_access()

    # ---- the source

    async def run(self, offer: Offer) -> None:
        self.offer = offer
        offer(*self.opening())
        while True:
            await asyncio.sleep(STEP_S)
            offer(*self.step())

    async def close(self) -> None:
        """There is nothing to let go."""

    def resync(self) -> None:
        self.offer(self._replaced())

    def opening(self) -> list[Input]:
        """What a console sees first."""
        return [
            Linked(link=Link(state="live", heard_at=self._clock(), address="demo", lag_s=0.012)),
            about(me=self.me, pool=self.pool_view(), invites=[*self.invites.values()], tokens=[*self.tokens.values()]),
            self._replaced(),
        ]

    def step(self) -> list[Input]:
        """What happened in the last fifth of a second."""
        now = self._wall()
        inputs: list[Input] = [*self._pending]
        self._pending = []
        if now >= self._next_pulse:
            self._next_pulse = now + 1.0
            inputs += [self._pulse(worker, now) for worker in self.workers.values() if worker.state != "offline"]
            inputs += self._now_and_then(now)
            online = sum(worker.state == "online" for worker in self.workers.values())
            leases = sum(worker.leases for worker in self.workers.values())
            stats = {"workers": online, "leases": leases, "judging": leases // 7}
            inputs.append(happened(Event(type="pool.stats", at=now, data=stats)))
            lag_s = self._random.uniform(0.01, 0.03)
            inputs.append(Linked(link=Link(state="live", heard_at=self._clock(), address="demo", lag_s=lag_s)))
        elif self._churn:
            for worker in self._random.sample([*self.workers.values()], int(self._churn * len(self.workers))):
                if worker.state == "online":
                    inputs.append(self._pulse(worker, now))
        inputs += self._work_on(now)
        return inputs

    def pool_view(self) -> PoolView:
        """The pool."""
        states = [job.state for job in self.jobs.values()]
        return PoolView(
            id="5f" * 16,
            name=self._name,
            keep_bytes=self._keep_bytes,
            rotating=self._rotating,
            fingerprint="amber canoe delta fossil lemon orbit quartz velvet",
            version="2.0",
            addresses=["studio.lan:8787", "192.168.1.20:8787"],
            workers_online=sum(worker.state == "online" for worker in self.workers.values()),
            workers_total=len(self.workers),
            jobs_queued=states.count(JobState.QUEUED),
            jobs_running=states.count(JobState.RUNNING),
            started_at=self._born - 3 * 86400,
            storage_bytes=41 << 30,
            storage_free_bytes=212 << 30,
        )

    # ---- calls

    async def change_worker(self, id: str, change: WorkerChange) -> None:
        worker = self._worker(id)
        if worker.state == "revoked":
            raise Conflict(f"{worker.name} was revoked", "a revoked worker joins again with a new key and a new invite")
        limits = worker.limits
        state = worker.state
        match change.action:
            case "pause":
                limits, state = msgspec.structs.replace(limits, paused=True), "paused"
            case "resume":
                limits, state = msgspec.structs.replace(limits, paused=False), "online"
            case "drain":
                state = "draining"
            case "approve":
                state = "online"
            case None:
                pass
        fresh = msgspec.structs.replace(
            worker,
            name=change.name or worker.name,
            limits=msgspec.structs.replace(
                limits,
                ceiling=worker.limits.ceiling if change.ceiling is None else change.ceiling,
                schedule=worker.limits.schedule if change.schedule is None else change.schedule,
            ),
            groups=worker.groups if change.groups is None else change.groups,
            state=state if worker.state != "offline" else "offline",
            leases=0 if state == "paused" else worker.leases,
            duty=dict.fromkeys(worker.duty, 0.0) if state == "paused" else worker.duty,
        )
        names = {"pause": "worker.paused", "resume": "worker.resumed", "drain": "worker.draining"}
        self._set_worker(
            fresh, names.get(change.action or "", "worker.approved" if change.action else "worker.changed")
        )

    async def revoke_worker(self, id: str) -> None:
        worker = self._worker(id)
        self._set_worker(msgspec.structs.replace(worker, state="revoked", leases=0, duty={}), "worker.revoked")

    async def invite(self, request: InviteRequest) -> InviteView:
        now = self._wall()
        id = self._id("i")
        made = InviteView(
            id=id,
            owner=request.owner or id,
            groups=request.groups,
            kinds=request.kinds,
            uses_left=request.uses,
            expires_at=now + request.expires_s,
            created_at=now,
            auto_approve=request.uses == 1 or request.auto_approve,
            line="MGPU1-" + "".join(self._random.choice(ids.ALPHABET) for _ in range(264)),
            reach="a demo pool: nobody can join it",
        )
        self.invites[id] = msgspec.structs.replace(made, line="")
        self._event("invite.created", id, {"owner": made.owner, "uses_left": made.uses_left})
        await self.fetch_access()
        return made

    async def withdraw_invite(self, id: str) -> None:
        if self.invites.pop(id, None) is None:
            raise NotFound(f"there is no invite {id[:40]!r}")
        await self.fetch_access()

    async def create_token(self, request: TokenRequest) -> TokenView:
        id = "".join(self._random.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(8))
        line = "MGPUC1-" + "".join(self._random.choice(ids.ALPHABET) for _ in range(180))
        made = TokenView(id=id, label=request.label, role=request.role, created_at=self._wall(), line=line)
        self.tokens[id] = msgspec.structs.replace(made, line="")
        await self.fetch_access()
        return made

    async def revoke_token(self, id: str) -> None:
        if self.tokens.pop(id, None) is None:
            raise NotFound(f"there is no token {id[:40]!r}")
        await self.fetch_access()

    async def fetch_access(self) -> None:
        self.offer(about(invites=[*self.invites.values()], tokens=[*self.tokens.values()]))

    async def change_pool(self, change: PoolChange) -> None:
        self._name = change.name or self._name
        self._keep_bytes = change.keep_bytes if change.keep_bytes is not None else self._keep_bytes
        self.offer(about(pool=self.pool_view()))

    async def rotate(self, request: RotateRequest) -> RotateView:
        self._rotating = request.action == "begin"
        self.offer(about(pool=self.pool_view()))
        return RotateView(rotating=self._rotating, session_key="5f" * 32)

    async def plan(self, spec: JobSpec) -> PlanView:
        size = spec.size if spec.size is not None else 1024
        if size > 1_000_000 and spec.operation == "matmul":
            raise InvalidJob(f"a product of size {size:,} is more than 10¹² elements", "choose a smaller size")
        product = spec.operation == "matmul"
        flops = 2.0 * size**3 if product else 8.0 * size
        grains = max(1, min(4096, (size // 128) ** 2 if product else size // 65536))
        online = sum(worker.state == "online" for worker in self.workers.values())
        return PlanView(
            kind="kernel",
            summary=f"{spec.operation} {size} × {size} × {size}, {spec.dtype}" if product
            else f"{spec.operation} of {size:,}, {spec.dtype}",
            grains=grains,
            flops=flops,
            moved_bytes=12.0 * size**2 if product else 8.0 * size,
            task_memory_bytes=min(64 << 20, 12 * size * 128 if product else 8 * size),
            fitting_workers=online,
            estimate_s=flops / (online * 9e11) if online else None,
            waiting_reason="" if online else "no worker is here",
        )  # fmt: skip

    async def submit(self, spec: JobSpec, files: Files, key: str) -> JobView:
        plan = await self.plan(spec)
        view = self._new_job(spec.name, plan.summary, plan.grains, flops=plan.flops)
        self.offer(JobRow(seq=self._seq, job=job_of(view, self._seq), tasks=()))
        return view

    async def cancel(self, id: str) -> None:
        job = self._job(id)
        if job.state in (JobState.QUEUED, JobState.RUNNING):
            self._set_job(
                msgspec.structs.replace(job, state=JobState.CANCELLED, ended_at=self._wall()), "job.cancelled"
            )

    async def retry(self, id: str) -> JobView:
        job = self._job(id)
        return self._new_job(job.name, job.summary, job.grains, flops=1e12)

    async def purge(self, id: str) -> None:
        job = self._job(id)
        if job.ended_at is None:
            raise Conflict(f"{job.id} has not ended", "cancel it first")

    async def fetch_job(self, id: str) -> None:
        job = self._job(id)
        self.offer(JobRow(seq=self._seq, job=job_of(job, self._seq), tasks=tasks_of(job.tasks or [])))

    async def fetch_signatures(self, id: str) -> None:
        tasks = [task for task in self._job(id).tasks or [] if task.state == TaskState.DONE]
        signatures = tuple(
            Signature(
                task=task.id,
                attempt=1,
                worker=task.worker or "",
                worker_name=task.attempts[-1].worker_name,
                verified=True,
                ledger_row=4200 + number,
            )
            for number, task in enumerate(tasks)
        )
        self.offer(Signatures(job=id, signatures=signatures))

    async def fetch_preview(self, id: str) -> None:
        self.offer(Preview(job=id, lines=("a benchmark: its output was checked and dropped",)))

    async def verify_ledger(self) -> None:
        self.offer(about(audit=AuditView(rows=48_213, checkpoints=189, writers=1, ok=True, head="9c41" * 16)))

    # ---- the play

    def _replaced(self) -> Replaced:
        return Replaced(
            seq=self._seq,
            workers=tuple(worker_of(worker, self._seq) for worker in self.workers.values()),
            jobs=tuple(job_of(job, self._seq) for job in self.jobs.values()),
        )

    def _enrol(self, number: int) -> None:
        machine = MACHINES[number % len(MACHINES)]
        owner = OWNERS[number % len(OWNERS)]
        chance = self._random.random
        now = self._wall()
        state = "online"
        if number >= 10 and number % 9 == 1:
            state = "offline"
        elif number == 12:
            state = "pending"
        elif number % 23 == 9:
            state = "paused"
        elif number % 31 == 8:
            state = "draining"
        id = self._id("w")
        name = f"{owner}-{machine.host}" if number < len(MACHINES) else f"{owner}-{machine.host}-{number:03d}"
        trip = math.exp(self._random.gauss(math.log(machine.trip_s), 0.45))
        self.workers[id] = WorkerView(
            id=id,
            name=name,
            owner=owner,
            groups=["gpu"] if machine.kind == "gpu" else ["cpu"],
            state=state,  # pyright: ignore[reportArgumentType]
            devices=[
                DeviceView(
                    id=f"{machine.kind}0",
                    kind=machine.kind,  # pyright: ignore[reportArgumentType]
                    name=machine.device,
                    engine="wgpu" if machine.kind == "gpu" else "numpy",
                    driver=machine.driver,
                    memory_bytes=machine.memory_bytes,
                    cores=machine.cores,
                )
            ],
            kinds=["kernel"],
            isolation="bubblewrap",
            system=machine.system,
            version="2.0",
            limits=LimitsView(ceiling=0.85, schedule="always", paused=state == "paused"),
            owner_limits=LimitsView(schedule="mon-fri 19:00-07:00; sat,sun" if number % 4 == 3 else "always"),
            duty={f"{machine.kind}0": 0.0 if state != "online" else 0.3 + 0.5 * chance()},
            user_load=0.4 * chance(),
            speeds={"matmul.float32": machine.flops, "relu.float32": machine.flops / 40},
            score=max(0, min(100, round(25 * math.log10(machine.flops / 1e9)))),
            leases=self._random.randint(1, 4) if state == "online" and chance() < 0.75 else 0,
            tasks_done=self._random.randint(200, 9000),
            tasks_failed=self._random.choice([0, 0, 0, 0, 1, 2, 5]),
            busy_s=self._random.uniform(2e3, 9e5),
            round_trip_s=trip if state != "offline" else None,
            connected_at=now - self._random.uniform(600, 2e5) if state != "offline" else None,
            seen_at=now if state != "offline" else now - self._random.uniform(300, 90_000),
            enrolled_at=now - self._random.uniform(2e5, 9e6),
        )

    def _pulse(self, worker: WorkerView, now: float) -> Input:
        """A worker's second: its owner's load wanders, its duty follows."""
        chance = self._random
        load = min(0.98, max(0.0, worker.user_load + chance.gauss(0.0, 0.06)))
        reason = worker.reason
        if worker.state == "online":
            if reason and chance.random() < 0.08:
                reason = ""
            elif not reason and chance.random() < 0.012:
                reason = chance.choice(["you are using this machine", "leaving room for your programs"])
        working = worker.state in ("online", "draining")
        duty = max(0.0, min(worker.limits.ceiling, 0.85 - load if not reason else 0.2 - 0.1 * load)) if working else 0.0
        leases = worker.leases if working else 0
        if working and chance.random() < 0.25:
            leases = 0 if not self._work or chance.random() < 0.15 else chance.randint(1, 4)
        trip = worker.round_trip_s and max(0.0008, worker.round_trip_s * math.exp(chance.gauss(0.0, 0.05)))
        fresh = msgspec.structs.replace(
            worker,
            user_load=load,
            reason=reason,
            duty=dict.fromkeys(worker.duty, duty if leases else 0.0),
            leases=leases,
            round_trip_s=trip,
            seen_at=now,
        )
        self.workers[worker.id] = fresh
        data = {
            "duty": fresh.duty,
            "user_load": load,
            "reason": reason,
            "round_trip_s": trip,
            "leases": leases,
        }
        return happened(Event(type="worker.live", id=worker.id, at=now, data=data))

    def _now_and_then(self, now: float) -> list[Input]:
        chance = self._random
        inputs: list[Input] = []
        if chance.random() < 0.03:
            worker = chance.choice([*self.workers.values()])
            if worker.state == "online":
                self._set_worker(msgspec.structs.replace(worker, state="offline", leases=0), "worker.offline")
            elif worker.state == "offline":
                self._set_worker(
                    msgspec.structs.replace(
                        worker, state="online", connected_at=now, seen_at=now, round_trip_s=worker.round_trip_s or 0.02
                    ),
                    "worker.online",
                )
        active = sum(job.ended_at is None for job in self.jobs.values())
        if now >= self._next_job and active < 8:
            self._next_job = now + chance.uniform(4.0, 14.0)
            self._submit_one(chance.choice((0, 1, 2, 3, 5, 6, 7, 8)), done=False)
        inputs += self._pending
        self._pending = []
        return inputs

    def _work_on(self, now: float) -> list[Input]:
        """Running jobs finish grains; a waiting job starts when there is room."""
        inputs: list[Input] = []
        waiting = [job for job in self.jobs.values() if job.state is JobState.QUEUED and not job.waiting_reason]
        running = [job for job in self.jobs.values() if job.state is JobState.RUNNING]
        if waiting and len(running) < 5:
            self._set_job(msgspec.structs.replace(waiting[0], state=JobState.RUNNING, started_at=now), "job.running")
        for job in running:
            self._advance(job, now)
        inputs += self._pending
        self._pending = []
        return inputs

    def _advance(self, job: JobView, now: float) -> None:
        grown = self._work[job.id] * STEP_S * self._random.uniform(0.4, 1.6)
        grains = min(job.grains, int((now - (job.started_at or now)) * self._work[job.id] + grown))
        if grains <= job.grains_done:
            return
        hands = [worker for worker in self.workers.values() if worker.leases]
        if not hands:
            return
        worker = self._random.choice(hands)
        first = job.grains_done
        task = TaskView(
            id=self._id("t"),
            number=len(job.tasks or []),
            state=TaskState.DONE,
            grains=(first, grains),
            worker=worker.id,
            evidence=Evidence(kind="freivalds", vectors=3, rows=256, worst_ratio=self._random.uniform(0.001, 0.02)),
            attempts=[
                AttemptView(
                    number=1,
                    worker=worker.id,
                    worker_name=worker.name,
                    state="accepted",  # pyright: ignore[reportArgumentType]
                    leased_at=now - 1.1,
                    ended_at=now,
                    seconds=self._random.uniform(0.3, 1.3),
                )
            ],
        )
        names = {*job.workers, worker.id}
        evidence = {**job.evidence, "freivalds": job.evidence.get("freivalds", 0) + 1}
        job = msgspec.structs.replace(
            job,
            grains_done=grains,
            tasks=[*(job.tasks or []), task],
            tasks_done=job.tasks_done + 1,
            tasks_total=job.tasks_total + 1,
            workers=sorted(names),
            evidence=evidence,
        )
        self.jobs[job.id] = job
        data = {"submitter": job.submitter, "worker": worker.id, "tasks": [task.number], "grains": job.grains,
                "grains_done": grains}  # fmt: skip
        self._event("task.done", job.id, data)
        if job.id == self.watched_job:
            self._pending.append(JobRow(seq=self._seq, job=job_of(job, self._seq), tasks=tasks_of(job.tasks)))
        if grains >= job.grains:
            self._end(job, now)

    def _end(self, job: JobView, now: float) -> None:
        started = job.started_at or now
        timing = Timing(queued_s=started - job.created_at, running_s=now - started, checking_s=0.11, combining_s=0.04)
        ended = msgspec.structs.replace(
            job, state=JobState.DONE, ended_at=now, checked=True, signed=True, timing=timing
        )
        self._work.pop(job.id, None)
        self._set_job(ended, "job.done")

    def _submit_one(self, number: int, *, done: bool) -> None:
        name, summary, grains, seconds = JOBS[number % len(JOBS)]
        job = self._new_job(name, summary, grains, flops=0.0, seconds=seconds)
        now = self._wall()
        if done:
            started = now - self._random.uniform(60, 4000)
            job = msgspec.structs.replace(
                job, started_at=started, grains_done=grains, created_at=started - 0.4, evidence={"freivalds": grains}
            )
            if number % 4 == 3:
                error = Problem(type="about:moregpu/engine-error", title="", status=500,
                                detail="device lost, four attempts", hint="look at the worker's driver")  # fmt: skip
                job = msgspec.structs.replace(job, state=JobState.FAILED, ended_at=started + seconds, error=error)
                self._work.pop(job.id, None)
                self.jobs[job.id] = job
            else:
                self._end(job, started + seconds)
        elif "H100" in name:
            self.jobs[job.id] = msgspec.structs.replace(job, waiting_reason='no worker has a device called "H100"')

    def _new_job(self, name: str, summary: str, grains: int, *, flops: float, seconds: float = 0.0) -> JobView:
        now = self._wall()
        id = ids.job_id(now, self._random.randbytes(10))
        job = JobView(
            id=id,
            kind="kernel",
            name=name,
            state=JobState.QUEUED,
            submitter=self._random.choice(["k-anna", "k-ben", "k-demo"]),
            created_at=now,
            grains=grains,
            summary=summary,
            tasks=[],
        )
        self._work[id] = grains / (seconds or max(4.0, min(60.0, flops / 4e12)))
        self._set_job(job, "job.queued")
        return job

    def _make_access(self) -> None:
        now = self._wall()
        for number, (owner, uses, left) in enumerate((("dora", 1, 2400.0), ("lab", 12, 70_000.0), ("ben", 0, 900.0))):
            id = self._id("i")
            self.invites[id] = InviteView(
                id=id, owner=owner, groups=["gpu"] if number == 1 else [], kinds=[], uses_left=uses,
                expires_at=now + left, created_at=now - 600 * number, auto_approve=uses == 1,
            )  # fmt: skip
        for id, label, role in (("q7hw2mzp", "this console", "admin"), ("b3kd81ta", "notebook", "submitter"),
                                ("m20xv5ce", "wall display", "viewer")):  # fmt: skip
            self.tokens[id] = TokenView(
                id=id, label=label, role=role,  # pyright: ignore[reportArgumentType]
                created_at=now - 9e5, used_at=now - self._random.uniform(0, 4000),
            )  # fmt: skip

    def _set_worker(self, worker: WorkerView, event: str) -> None:
        self.workers[worker.id] = worker
        data = {
            "name": worker.name,
            "owner": worker.owner,
            "approved": worker.state != "pending",
            "revoked": worker.state == "revoked",
            "paused": worker.limits.paused,
            "draining": worker.state == "draining",
        }
        self._event(event, worker.id, data)
        self._pending.append(WorkerRow(seq=self._seq, worker=worker_of(worker, self._seq)))

    def _set_job(self, job: JobView, event: str) -> None:
        self.jobs[job.id] = job
        data = {"submitter": job.submitter, "kind": job.kind, "name": job.name or job.summary, "state": str(job.state),
                "grains": job.grains, "grains_done": job.grains_done}  # fmt: skip
        self._event(event, job.id, data)
        self._pending.append(JobRow(seq=self._seq, job=job_of(job, self._seq)))

    def _event(self, kind: str, id: str, data: dict[str, Any]) -> None:
        self._seq += 1
        self._pending.append(happened(Event(type=kind, id=id, at=self._wall(), seq=self._seq, data=data)))

    def _id(self, prefix: str) -> str:
        return ids.named(prefix, self._random.randbytes(16))

    def _worker(self, id: str) -> WorkerView:
        if id not in self.workers:
            raise NotFound(f"there is no worker {id[:40]!r}")
        return self.workers[id]

    def _job(self, id: str) -> JobView:
        if id not in self.jobs:
            raise NotFound(f"there is no job {id[:40]!r}")
        return self.jobs[id]
