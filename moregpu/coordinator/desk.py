"""The engine room as one object: `PoolDesk` is the `Desk` that the HTTP doors call, made of the parts in this folder.

intake    what a submitter sends becomes a planned, durable job
dispatch  leases for workers with free slots
hub       workers' connections; `session` decides, `enrol` lets in, `presence` knows who came and went
proving   trials of new workers
judge     is a result signed, over the right thing, and right; `results`: what follows from it
finish    a job's outputs from its tasks' outputs
fleet     who is connected, how fast; `views`: the same for people
events    the one stream of what happens
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.attendance import Attendance, needs_attendance
from moregpu.coordinator.canaries import Canaries
from moregpu.coordinator.cases import Ruling
from moregpu.coordinator.chores import Chores
from moregpu.coordinator.dispatch import Dispatch
from moregpu.coordinator.enrol import Doorman
from moregpu.coordinator.events import Feed
from moregpu.coordinator.finish import Finisher
from moregpu.coordinator.fleet import Fleet, Member
from moregpu.coordinator.hub import Hub
from moregpu.coordinator.intake import Intake
from moregpu.coordinator.judge import Judge
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.opening import StoredTensor
from moregpu.coordinator.presence import Presence
from moregpu.coordinator.printed import JobLines
from moregpu.coordinator.protocol import BlobRight, Clock, EventFeed, Offload, OpenTensor, Principal, WorkerSocket
from moregpu.coordinator.proving import Proving
from moregpu.coordinator.quotas import Quotas, bytes_left
from moregpu.coordinator.results import Results
from moregpu.coordinator.roster import Roster
from moregpu.coordinator.scheduler import is_hopeless
from moregpu.coordinator.store.protocol import JobRow, Store, TaskRow, Undone
from moregpu.coordinator.uploads import Uploads
from moregpu.coordinator.views import Views
from moregpu.errors import NotFound
from moregpu.jobs import JOB_ENDED, JobState, Tensor
from moregpu.wire.api import Event, JobChange, JobView, PlanView, WorkerChange, WorkerView
from moregpu.wire.identity import PoolKeys
from moregpu.workloads import JobSpec

ENDS = frozenset(f"job.{state.value}" for state in JOB_ENDED)


class PoolDesk:
    """The engine room of one coordinator. `store` must be open; call `start` before use and `stop` at the end."""

    def __init__(
        self,
        store: Store,
        keys: PoolKeys,
        blobs: BlobFiles,
        clock: Clock,
        offload: Offload,
        entropy: Callable[[int], bytes] = os.urandom,
        config: DeskConfig | None = None,
    ) -> None:
        config = config or DeskConfig()
        self.store: Store = store
        self.pool_id: bytes = keys.pool_id
        self.pool_name: str = config.pool_name
        self.quotas: Quotas = config.quotas
        """Of each submitter; may be exchanged while the pool runs."""
        self._config = config
        self._clock = clock
        self._blobs = blobs
        self._chores = Chores()
        self._fleet = Fleet()
        self._feed = Feed(store, clock, self._snapshot)
        self.events: EventFeed = self._feed
        self._dispatch = Dispatch(store, self._fleet, clock)
        self._finisher = Finisher(store, blobs, clock, offload, entropy)
        self._uploads = Uploads(store, blobs, offload)
        self._judge = Judge(store, blobs, self._uploads, keys.pool_id, clock, offload, entropy, self._is_hopeless)
        self._intake = Intake(
            store,
            blobs,
            self._fleet,
            clock,
            offload,
            entropy,
            self._dispatch.wake,
            self._combine_soon,
            lambda: self.quotas,
        )
        self._proving = Proving(store, self._fleet, self._judge, self._uploads, clock, entropy, config)
        self._canaries = Canaries(self._fleet, self._chores, clock, config.canary_s, self._proving.canary)
        self._results = Results(
            store, self._fleet, self._judge, self._proving, self._finisher, self._chores, clock, self._dispatch.look
        )
        self._presence = Presence(store, self._fleet, clock, config, self._chores, self._dispatch.wake)
        self._hub = Hub(
            store,
            keys,
            self._fleet,
            Doorman(store, clock, config),
            self._presence,
            self._results,
            self._proving,
            self._feed,
            self._chores,
            clock,
            entropy,
            config,
            self._dispatch.wake,
        )
        self.printed: JobLines = self._hub.printed
        """What functions printed."""
        self.attendance: Attendance = Attendance(self._chores, store, self._cancel_job)
        """Who follows the jobs that end with their submitter."""
        self._views = Views(store, self._fleet, clock, config)
        self._roster = Roster(store, self._fleet, self._views, self._presence, self._hub, self._dispatch.wake)
        self._unsubscribe: list[Callable[[], None]] = []

    # -- life

    async def start(self) -> None:
        """Recover what a crash left (jobs to combine; leases got their full time when the store opened), and begin."""
        self._unsubscribe = [self.store.subscribe(self._committed), self.store.watch_undone(self._undone)]
        await self._chores.start()
        self._chores.spawn(self._dispatch.run(), forever=True)
        self._chores.spawn(self._hub.watch(), forever=True)
        if self._config.measure:
            self._chores.spawn(self._canaries.run(), forever=True)
        self._chores.spawn(self._finisher.retry(self._combine_soon), forever=True)
        for job in await self.store.ready_jobs():
            self._combine_soon(job)
        for job in await self.store.jobs(states=[JobState.QUEUED, JobState.RUNNING], limit=10_000):
            if job.plan.grains == 0:
                self._combine_soon(job.id)
            if needs_attendance(job):
                self.attendance.missed(job.id)
        self._dispatch.wake()

    async def stop(self) -> None:
        """End sessions, let checks that are under way end, and let go. The store stays open: it is the caller's."""
        await self._hub.close()
        self._feed.close()
        await self._chores.stop(self._config.drain_s)
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    # -- jobs

    async def submit(self, who: Principal, spec: JobSpec, idempotency_key: str, wait_s: float) -> JobRow:
        """Validate, plan, keep. Returns once durable; with `wait_s`, when the job ended or the time is up.

        Raises `InvalidJob`, `TooLarge`, `OutOfSpace`.
        """
        return await self._intake.submit(who, spec, idempotency_key, wait_s)

    async def plan(self, who: Principal, spec: JobSpec) -> PlanView:
        """The same without running."""
        row = await self._intake.sketch(who, spec)
        return self._views.plan(row.plan, row)

    async def wait(self, job: str, timeout_s: float) -> JobRow:
        """Wait for a job's end; returns it as it then is. Raises `NotFound`."""
        return await self._intake.wait(job, timeout_s)

    async def job(self, who: Principal, id_or_prefix: str) -> JobRow:
        """One job of theirs (an admin's and a viewer's are all); raises `NotFound`, also for another's."""
        return await self._intake.find(who, id_or_prefix)

    async def view(self, who: Principal, job: JobRow, *, detail: bool = False) -> JobView:
        """A job for showing; `detail` adds tasks and attempts; `result` is there for its owner only."""
        return await self._views.job(who, job, detail=detail)

    async def cancel(self, who: Principal, id_or_prefix: str) -> JobRow:
        """End it; one that ended stays as it is."""
        row = self._own(who, await self._intake.find(who, id_or_prefix))
        await self._cancel_job(row.id)
        return await self._intake.wait(row.id, 0.0)

    async def change_job(self, who: Principal, id_or_prefix: str, change: JobChange) -> JobRow:
        """Change a job of theirs: its name, its place in the queue, how long its outputs are kept."""
        row = self._own(who, await self._intake.find(who, id_or_prefix))
        changed = await self.store.change_job(row.id, change, self._clock.wall())
        self._dispatch.wake()
        return changed

    async def retry(self, who: Principal, id_or_prefix: str, idempotency_key: str = "") -> JobRow:
        """Submit the same spec again, as a new job; under one key, one new job of each job."""
        row = self._own(who, await self._intake.find(who, id_or_prefix))
        # Apart from keys of submits: the one that this job came under would find this job, and nothing would run.
        key = f"{row.id} again: {idempotency_key}" if idempotency_key else ""
        earlier = await self.store.job_under_key(who.id, key) if key else None
        if earlier is not None:
            await self.store.settle()  # what is read may not be committed yet
            return earlier
        if row.purged:
            raise NotFound(f"the inputs of {row.id} are no longer kept", "submit it again with its data")
        return await self._intake.submit(who, msgspec.structs.replace(row.spec, after=()), key, 0.0)

    def observe_results(self, observe: Callable[[str, str, Ruling], None]) -> None:
        """Call `observe(worker, kind of its device, ruling)` for every result that is judged."""

        def told(member: Member, ruling: Ruling) -> None:
            gpu = any(
                device.kind == "gpu" and ruling.device in (device.id, device.name) for device in member.row.devices
            )
            observe(member.row.id, "gpu" if gpu else "cpu", ruling)

        self._results.observe = told

    def complete_jobs(self, complete: Callable[[JobSpec], JobSpec]) -> None:
        """Let `complete` put what the pool holds for a new job (a registered kernel's text) into it, or refuse it."""
        self._intake.complete = complete

    def rename(self, name: str) -> None:
        """Workers that come from now on are told this name."""
        self.pool_name = self._hub.pool_name = name

    def bytes_left(self, who: Principal) -> int | None:
        """Sealed bytes that somebody may still upload; None when there is no limit."""
        return bytes_left(self.quotas, self.store, self._blobs, who)

    def open_tensor(self, tensor: Tensor) -> OpenTensor:
        """Open a stored tensor (inline or blob) for rendering."""
        return StoredTensor(tensor, self._blobs)

    # -- workers

    async def workers(self) -> list[WorkerView]:
        """All workers."""
        return await self._roster.all()

    async def find_worker(self, id_or_prefix: str) -> WorkerView:
        """One, by id, unique prefix or unique name. Raises `NotFound`, `Conflict`."""
        return await self._roster.find(id_or_prefix)

    async def change_worker(self, who: Principal, id: str, change: WorkerChange) -> WorkerView:
        """Pause, resume, drain, approve, rename, limit. Raises `NotFound`, `Conflict`, `Forbidden`."""
        return await self._roster.change(who, id, change)

    async def revoke_worker(self, who: Principal, id: str) -> None:
        """End its session, refuse it from now on, run its tasks again. Raises `NotFound`, `Forbidden`."""
        await self._roster.revoke(who, id)

    async def blob_right(self, bearer: str, digest: str) -> tuple[str, BlobRight] | None:
        """(worker id, right) of a worker's blob token; None when it is no live session's."""
        return self._hub.blob_right(bearer, digest)

    async def admit_upload(self, worker: str, total_bytes: int, left_bytes: int, but: str = "") -> None:
        """Make room for a worker's upload. Raises `TooManyRequests`."""
        await self._uploads.admit(worker, total_bytes, left_bytes, but)

    async def serve_worker(self, socket: WorkerSocket) -> None:
        """Run one worker's connection to its end."""
        await self._hub.serve(socket)

    # -- inside

    def _own(self, who: Principal, row: JobRow) -> JobRow:
        """Seeing is not owning: a viewer changes nothing, and learns of no job by trying."""
        if who.role != "admin" and row.submitter != who.id:
            raise NotFound(f"there is no job {row.id!r} of yours")
        return row

    async def _cancel_job(self, job: str) -> None:
        out = await self.store.cancel(job, self._clock.wall())
        self._results.cancel(out, "the job was cancelled")

    def _committed(self, events: list[Event]) -> None:
        self._feed.committed(events)
        ends = [event for event in events if event.type in ENDS]
        for event in ends:
            self._intake.ended(event.id)
            if event.type != "job.done":
                self._results.withdraw(event.id)
        if ends:
            self._dispatch.look()  # jobs may have waited for it

    def _undone(self, undone: Undone) -> None:
        self._intake.undone(undone.jobs)
        self._results.cancel(undone.leases, "it could not be kept")
        self._dispatch.rest()

    def _combine_soon(self, job: str) -> None:
        self._chores.spawn(self._finisher.finish(job))

    def _is_hopeless(self, job: JobRow, task: TaskRow, worker: str) -> bool:
        return is_hopeless(job, task, worker, self._fleet.workers())

    async def _snapshot(self, who: Principal) -> dict[str, Any]:
        return {"workers": len(self._fleet), "role": who.role}
