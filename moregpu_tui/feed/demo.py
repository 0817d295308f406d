"""A pool that exists only in this process: to look around in, and the fixture of pictures, tests and benchmarks.

From one seed and a clock it makes the same history every time. It answers all calls as a coordinator would, so every
key of the console does something.
"""

from __future__ import annotations

import asyncio

import msgspec

from moregpu import ids
from moregpu.errors import Conflict, InvalidJob, NotFound
from moregpu.jobs import JobState, TaskState
from moregpu.wire.api import (
    AuditView,
    Event,
    InviteRequest,
    InviteView,
    JobView,
    PlanView,
    PoolChange,
    PoolView,
    RotateRequest,
    RotateView,
    TokenRequest,
    TokenView,
    WorkerChange,
)
from moregpu.workloads import KernelSpec
from moregpu_tui.feed.demo_play import STEP_S, Play
from moregpu_tui.feed.source import Draft, Offer
from moregpu_tui.present.units import plural
from moregpu_tui.state.events import (
    Input,
    JobRow,
    Linked,
    Preview,
    Said,
    Signatures,
    about,
    happened,
    job_of,
    log_of,
    tasks_of,
)
from moregpu_tui.state.model import Link, LogEntry, Signature

__all__ = ["STEP_S", "SimulatedPool"]


class SimulatedPool(Play):
    """A whole pool as a source."""

    kind = "demo"

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
            *self._past(),
        ]

    def _past(self) -> list[Input]:
        """Lines of what happened before anybody looked."""
        now, lines = self._wall(), list[tuple[float, str, str]]()
        joined = [worker for worker in self.workers.values() if worker.state != "pending"][:6]
        for place, worker in enumerate(joined):
            at = now - 5400.0 + 600.0 * place
            lines.append((at, "worker", f"{worker.name} joined the pool"))
            lines.append((at + 4.0, "worker", f"{worker.name} was approved"))
        for invite in [*self.invites.values()][:3]:
            lines.append((invite.created_at, "invite", f"invite {invite.id[:8]} was made for {invite.owner}"))
        return [
            Said(entry=LogEntry(at=at, level="info", source=source, about="", text=text))
            for at, source, text in sorted(lines)
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

    async def plan(self, draft: Draft) -> PlanView:
        spec = draft.spec
        if not isinstance(spec, KernelSpec):
            return self._plan_calls(draft)
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

    def _plan_calls(self, draft: Draft) -> PlanView:
        """Calls of a function: nothing is read from this machine, and nothing runs."""
        from moregpu.client.functions.script_file import read_payloads

        count = len(read_payloads(draft.payloads)) if draft.payloads[:1] in ("[", "{") else 1
        here = sum(worker.state == "online" and "function" in worker.kinds for worker in self.workers.values())
        return PlanView(
            kind="function",
            summary=f"{draft.program}, {plural(count, 'call')}",
            grains=count,
            flops=0.0,
            moved_bytes=0.0,
            task_memory_bytes=64 << 20,
            fitting_workers=here,
            estimate_s=None,
            waiting_reason="" if here else "no worker accepts functions",
        )

    async def submit(self, draft: Draft, key: str) -> JobView:
        plan = await self.plan(draft)
        name = draft.spec.name or draft.program
        view = self._new_job(name, plan.summary, plan.grains, kind=plan.kind, flops=plan.flops)
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
        return self._new_job(job.name, job.summary, job.grains, kind=job.kind, flops=1e12)

    async def purge(self, id: str) -> None:
        job = self._job(id)
        if job.ended_at is None:
            raise Conflict(f"{job.id} has not ended", "cancel it first")

    async def fetch_job(self, id: str) -> None:
        job = self._job(id)
        self.offer(JobRow(seq=self._seq, job=job_of(job, self._seq), tasks=tasks_of(job.tasks or [])))

    async def follow_log(self, id: str) -> None:
        self.offer(log_of(id, self._printed.get(id, []), begin=True))

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
        job = self._job(id)
        lines = [f"call {number}: {{'loss': {0.2 + number % 7 / 50:.4f}}}" for number in range(job.grains_done)]
        benchmark = ("a benchmark: its output was checked and dropped",)
        self.offer(Preview(job=id, lines=tuple(lines) if job.kind == "function" else benchmark))

    async def verify_ledger(self) -> None:
        self.offer(about(audit=AuditView(rows=48_213, checkpoints=189, writers=1, ok=True, head="9c41" * 16)))
