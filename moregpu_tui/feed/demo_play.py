"""The play behind the demo pool: machines that come, work, step back and go; jobs that are computed. Seeded."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from moregpu import ids
from moregpu.errors import NotFound
from moregpu.jobs import Evidence, JobState, TaskState
from moregpu.wire.api import (
    AttemptView,
    DeviceView,
    Event,
    InviteView,
    JobView,
    LimitsView,
    LogLine,
    Me,
    Problem,
    TaskView,
    Timing,
    TokenView,
    WorkerView,
)
from moregpu_tui.feed.demo_cast import JOBS, MACHINES, OWNERS, PRINTED, SCRIPT
from moregpu_tui.feed.source import Offer
from moregpu_tui.state.events import (
    Input,
    JobRow,
    Replaced,
    WorkerRow,
    happened,
    job_of,
    log_of,
    tasks_of,
    worker_of,
)

STEP_S = 0.2
KEPT_LINES = 500


class Play:
    """What is there, and what happens to it."""

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
        self._printed: dict[str, list[LogLine]] = {}  # job → its own log
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
        self._new_job(*SCRIPT[:3], kind="function", seconds=SCRIPT[3])
        self._make_access()

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
            kinds=["kernel"] if machine.kind == "gpu" else ["kernel", "function"],
            consent={} if number % 3 else {"function": ["k-anna", "k-demo"]},
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
                reason = chance.choice(["its owner is using it", "leaving room for its owner's programs"])
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
            evidence=Evidence(kind="unchecked")
            if job.kind == "function"
            else Evidence(kind="freivalds", vectors=3, rows=256, worst_ratio=self._random.uniform(0.001, 0.02)),
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
        kind = "unchecked" if job.kind == "function" else "freivalds"
        evidence = {**job.evidence, kind: job.evidence.get(kind, 0) + 1}
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
        self._print(job, task, worker.name, now)
        self._event("task.done", job.id, data)
        if job.id == self.watched_job:
            self._pending.append(JobRow(seq=self._seq, job=job_of(job, self._seq), tasks=tasks_of(job.tasks)))
        if grains >= job.grains:
            self._end(job, now)

    def _print(self, job: JobView, task: TaskView, worker: str, now: float) -> None:
        """A line of the job's own log for its step; and what a function prints while it works."""
        lines: list[LogLine] = []
        if job.kind == "function":
            loss = self._random.uniform(0.4, 0.9)
            said = {"rate": 10 ** self._random.uniform(-4, -1), "layers": self._random.randint(1, 4),
                    "source": "scans.parquet", "first": loss, "second": 0.7 * loss, "third": 0.6 * loss}  # fmt: skip
            texts = [text.format(**said) for text in PRINTED]
            lines = [LogLine(at=now, level="info", message=text, worker=worker, task=task.number, printed=True)
                     for text in texts]  # fmt: skip
            live = {"submitter": job.submitter, "worker": task.worker, "task": task.number, "lines": texts}
            self._pending.append(happened(Event(type="log", id=job.id, at=now, data=live)))
        step = f"task {task.number} is done, {task.evidence.kind if task.evidence else 'unchecked'}"
        lines.append(LogLine(at=now, level="info", message=step, worker=worker, task=task.number))
        self._log(job.id, lines)

    def _log(self, job: str, lines: list[LogLine]) -> None:
        known = self._printed.setdefault(job, [])
        known += lines
        del known[:-KEPT_LINES]
        if job == self.watched_job:
            self._pending.append(log_of(job, lines))

    def _end(self, job: JobView, now: float) -> None:
        started = job.started_at or now
        timing = Timing(queued_s=started - job.created_at, running_s=now - started, checking_s=0.11, combining_s=0.04)
        ended = msgspec.structs.replace(
            job, state=JobState.DONE, ended_at=now, checked=job.kind != "function", signed=True, timing=timing
        )
        self._work.pop(job.id, None)
        self._set_job(ended, "job.done")

    def _submit_one(self, number: int, *, done: bool) -> None:
        name, summary, grains, seconds = JOBS[number % len(JOBS)]
        job = self._new_job(name, summary, grains, seconds=seconds)
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

    def _new_job(
        self, name: str, summary: str, grains: int, *, kind: str = "kernel", flops: float = 0.0, seconds: float = 0.0
    ) -> JobView:
        now = self._wall()
        id = ids.job_id(now, self._random.randbytes(10))
        job = JobView(
            id=id,
            kind=kind,
            name=name,
            state=JobState.QUEUED,
            submitter=self._random.choice(["k-anna", "k-ben", "k-demo"]),
            created_at=now,
            grains=grains,
            summary=summary,
            tasks=[],
        )
        self._work[id] = grains / (seconds or max(4.0, min(60.0, flops / 4e12)))
        self._printed[id] = [LogLine(at=now, level="info", message=f"queued: {summary}")]
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
                groups=["lab"] if role == "submitter" else [],
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
