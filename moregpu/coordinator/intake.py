"""What a submitter sends becomes a planned, durable job, or a clear refusal with nothing kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from moregpu.blobs.format import sealed_size
from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.fleet import Fleet
from moregpu.coordinator.opening import SealedWriter
from moregpu.coordinator.protocol import Clock, Offload, Principal
from moregpu.coordinator.quotas import Quotas, refuse_calls, refuse_job
from moregpu.coordinator.replays import data_must_be_read, holds_the_same, says_the_same, wording
from moregpu.coordinator.store.protocol import BlobRow, JobRow, Store
from moregpu.errors import Conflict, InvalidJob, KeyReused, MoreGPUError, NotFound, OutOfSpace, TooLarge
from moregpu.ids import beginning_of, job_id, normalise
from moregpu.jobs import JOB_ENDED, Blob, JobState, Tensor
from moregpu.wire.api import MAX_INLINE_POST_BYTES
from moregpu.wire.messages import MAX_INLINE_BYTES
from moregpu.workloads import JobSpec, kind_of, workload
from moregpu.workloads.protocol import Plan

PLANS_SHARED = 64
"""Plans that are remembered, for jobs that are alike."""

CROWD_JOBS = 2_000
CROWD_INLINE_BYTES = 1_024
"""Of a submitter with so many jobs that have not ended, inputs beyond this go to the disk: jobs that wait are held in
memory, and a whole quota of them with what one `Assign` may hold would be gigabytes."""

_encode = msgspec.msgpack.Encoder().encode


class Intake:
    """Submits jobs, finds them, and lets callers wait for their end."""

    def __init__(
        self,
        store: Store,
        blobs: BlobFiles,
        fleet: Fleet,
        clock: Clock,
        offload: Offload,
        entropy: Callable[[int], bytes],
        wake: Callable[[], None],
        finish: Callable[[str], None],
        quotas: Callable[[], Quotas],
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._fleet = fleet
        self._clock = clock
        self._offload = offload
        self._entropy = entropy
        self._wake = wake
        self._finish = finish
        self._quotas = quotas
        self.complete: Callable[[JobSpec], JobSpec] = lambda spec: spec
        """Puts in what the pool holds for a job, or raises `InvalidJob`."""
        self._plans: dict[bytes, Plan] = {}
        self._planned: Plan | None = None  # the latest
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}

    async def submit(self, who: Principal, spec: JobSpec, idempotency_key: str, wait_s: float) -> JobRow:
        """Keep a job. Returns once durable; with `wait_s`, when the job ended or the time is up.

        Raises `InvalidJob`, `TooLarge`, `OutOfSpace`, `OverQuota`, `KeyReused`.
        """
        try:
            refuse_job(self._quotas(), self._store, self._blobs, who)
            ready, plan = await self._ready(who, spec)
            refuse_calls(self._quotas(), self._store, who, plan)
        except MoreGPUError:
            row = await self._earlier(who, idempotency_key, spec)
            if row is None:
                raise
            return row if wait_s <= 0.0 else await self.wait(row.id, wait_s)
        said = wording(spec) if idempotency_key else b""
        new = self._row_of(who, ready, plan, idempotency_key or self._entropy(16).hex(), said)
        # Before the commit: leasing sees the row as soon as it is in memory, and its transaction joins this one.
        self._wake()
        waits = wait_s > 0.0
        row = await self._store.add_job(new, told=not waits)
        if self._store.has_ready_work():
            self._wake()
        if row.id != new.id:
            await self._refuse_other(row, spec)
        if plan.grains == 0 and row.state not in JOB_ENDED:
            self._finish(row.id)
        if not waits:
            return row
        return await self.wait(row.id, wait_s)

    async def _earlier(self, who: Principal, idempotency_key: str, spec: JobSpec) -> JobRow | None:
        """The job that a submit is sent again for: no new one, so neither quotas nor inputs that are gone matter."""
        row = await self._store.job_under_key(who.id, idempotency_key)
        if row is not None:
            await self._refuse_other(row, spec)
            await self._store.settle()  # what is read may not be committed yet
        return row

    async def _refuse_other(self, row: JobRow, spec: JobSpec) -> None:
        """Refuse another spec under the key of a job that is there."""
        same = says_the_same(row, spec)
        if same and data_must_be_read(row, spec):
            same = await self._offload(lambda: holds_the_same(row, spec, self._blobs))
        if not same:
            raise KeyReused(
                f"this idempotency key stands for {row.id}, which was submitted with another spec",
                "use a new key for a new job; nothing was submitted now",
            )

    async def sketch(self, who: Principal, spec: JobSpec) -> JobRow:
        """The job that a submit would keep; nothing is kept."""
        spec = await self._checked(who, spec)
        plan = workload(kind_of(spec)).plan(spec, self._fleet.summary())
        return self._row_of(who, spec, plan, "")

    async def wait(self, job: str, timeout_s: float) -> JobRow:
        """Wait for a job's end; returns it as it then is. Raises `NotFound`."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[bool] = loop.create_future()
        waiting = self._waiting.setdefault(job, set())
        waiting.add(ended)
        try:
            row = await self._row(job)
            if row.state in JOB_ENDED:
                await self._store.settle()  # what is read may not be committed yet
                return row
            if timeout_s <= 0.0:
                return row
            late = loop.call_later(timeout_s, _tell, ended, False)
            try:
                has_ended = await ended
            finally:
                late.cancel()
            if not has_ended:
                row = await self._row(job)
                await self._store.settle()  # what was read must be durable before it is told; in this order
                return row
            return await self._row(job)
        finally:
            waiting.discard(ended)
            if not waiting and self._waiting.get(job) is waiting:
                del self._waiting[job]

    def ended(self, job: str) -> None:
        """A job reached its end state, durably."""
        for future in self._waiting.pop(job, ()):
            _tell(future, True)

    def undone(self, jobs: frozenset[str]) -> None:
        """A commit failed: these jobs do not exist, and whoever waits for one is told so."""
        for job in jobs:
            for future in self._waiting.pop(job, ()):
                if not future.done():
                    future.set_exception(OutOfSpace("the job could not be kept", "free some space, then send it again"))

    async def find(self, who: Principal, id_or_prefix: str) -> JobRow:
        """One job of theirs (an admin's and a viewer's are all), by id or unique prefix.

        Raises `NotFound` (also for another's), `Conflict` when the prefix names several.
        """
        row = await self._store.job(id_or_prefix)
        if row is None:
            row = await self._by_prefix(who, id_or_prefix)
        if not _may_see(who, row):
            raise NotFound(f"there is no job {id_or_prefix!r}", "`moregpu jobs` lists yours")
        return row

    async def _by_prefix(self, who: Principal, prefix: str) -> JobRow:
        name = normalise(prefix)
        whose = who.id if who.role == "submitter" else None  # a beginning that is unique among one's own is enough
        beginning = beginning_of(name, "j-")
        found = await self._store.find_jobs(beginning, whose) if beginning else []
        rows = [row for id_ in found if (row := await self._store.job(id_)) is not None and _may_see(who, row)]
        if not rows:
            raise NotFound(f"there is no job {prefix!r}", "`moregpu jobs` lists yours")
        if len(rows) > 1:
            some = ", ".join(row.id for row in rows[:3])
            raise Conflict(f"{prefix!r} names {len(rows)} jobs or more: {some}", "type more of the id")
        return rows[0]

    async def _row(self, job: str) -> JobRow:
        row = await self._store.job(job)
        if row is None:
            raise NotFound(f"there is no job {job!r}")
        return row

    def _row_of(self, who: Principal, spec: JobSpec, plan: Plan, idempotency_key: str, wording: bytes = b"") -> JobRow:
        wall = self._clock.wall()
        return JobRow(
            id=job_id(wall, self._entropy(10)),
            submitter=who.id,
            kind=kind_of(spec),
            spec=spec,
            plan=plan,
            digest_key=self._entropy(32),
            state=JobState.QUEUED,
            created_at=wall,
            idempotency_key=idempotency_key,
            submitter_name=who.label,
            submitter_groups=who.groups,
            wording=wording,
        )

    # -- what must hold before anything is kept

    async def _ready(self, who: Principal, spec: JobSpec) -> tuple[JobSpec, Plan]:
        spec = await self._checked(who, spec)
        kind = workload(kind_of(spec))
        room = MAX_INLINE_BYTES if self._store.jobs_alive(who.id) < CROWD_JOBS else CROWD_INLINE_BYTES
        if sum(inline_bytes(tensor) for tensor in tensors_of(spec).values()) > room:
            spec = await self._sealed(who, spec, room)
        return spec, self._shared(kind.plan(spec, self._fleet.summary()))

    def _shared(self, plan: Plan) -> Plan:
        """The plan as one object for all jobs that are alike: they share its memory, and what is known of it."""
        if plan is self._planned:
            return plan
        text = _encode(plan)
        if len(self._plans) >= PLANS_SHARED:
            self._plans.clear()
        self._planned = self._plans.setdefault(text, plan)
        return self._planned

    async def _checked(self, who: Principal, spec: JobSpec) -> JobSpec:
        spec = self.complete(spec)
        workload(kind_of(spec)).validate(spec)
        tensors = tensors_of(spec)
        inline = sum(inline_bytes(tensor) for tensor in tensors.values())
        if inline > MAX_INLINE_POST_BYTES:
            raise TooLarge(
                f"the inputs hold {inline} bytes inline; a job may hold {MAX_INLINE_POST_BYTES}",
                "upload larger inputs as blobs",
            )
        for name, tensor in tensors.items():
            if isinstance(tensor.data, Blob):
                await self._refuse_missing(who, name, tensor, tensor.data)
        if spec.after:
            spec = msgspec.structs.replace(spec, after=tuple([await self._dependency(who, id_) for id_ in spec.after]))
        return spec

    async def _refuse_missing(self, who: Principal, name: str, tensor: Tensor, blob: Blob) -> None:
        if blob.size_bytes != tensor.whole_bytes:
            raise InvalidJob(f"input {name!r} takes {tensor.whole_bytes} bytes; its blob holds {blob.size_bytes}")
        length = self._blobs.size(blob.digest)
        if length is None or not await self._store.blob_readable(blob.digest, who.id):
            raise InvalidJob(f"input {name!r}: there is no blob {blob.digest[:12]}… of yours here", "upload it first")
        if length != sealed_size(blob.size_bytes):
            raise InvalidJob(f"input {name!r}: the blob {blob.digest[:12]}… does not hold {blob.size_bytes} bytes")

    async def _dependency(self, who: Principal, id_or_prefix: str) -> str:
        try:
            return (await self.find(who, id_or_prefix)).id
        except (NotFound, Conflict) as error:
            raise InvalidJob(f"`after`: {error.detail}", "`after` takes ids of your own jobs") from error

    async def _sealed(self, who: Principal, spec: JobSpec, room: int) -> JobSpec:
        """Seal into blobs what is beyond `room`, largest first."""
        tensors = tensors_of(spec)
        inline = sum(inline_bytes(tensor) for tensor in tensors.values())
        for name, tensor in sorted(tensors.items(), key=lambda item: -inline_bytes(item[1])):
            if inline <= room:
                break
            inline -= inline_bytes(tensor)
            tensors[name] = await self._seal(who, tensor)
        return msgspec.structs.replace(spec, inputs=tensors)

    async def _seal(self, who: Principal, tensor: Tensor) -> Tensor:
        writer = SealedWriter(self._blobs, who.id, self._entropy, inline_bytes=0)

        def work() -> Tensor:
            try:
                writer.begin("input", tensor.dtype, tensor.shape)
                writer.write(tensor.data)
                return writer.finish()[0]["input"]
            except BaseException:
                writer.abort()
                raise

        sealed = await self._offload(work)
        wall = self._clock.wall()
        for digest, length in writer.written:
            await self._store.add_blob(BlobRow(digest=digest, sealed_bytes=length, principal=who.id, created_at=wall))
        return msgspec.structs.replace(tensor, data=sealed.data)


def tensors_of(spec: JobSpec) -> dict[str, Tensor]:
    """The tensors that a spec names."""
    return dict(spec.inputs)


def inline_bytes(tensor: Tensor) -> int:
    """Bytes that travel inside the spec."""
    return len(tensor.data) if isinstance(tensor.data, bytes) else 0


def _tell(waiting: asyncio.Future[bool], ended: bool) -> None:
    if not waiting.done():
        waiting.set_result(ended)


def _may_see(who: Principal, row: JobRow) -> bool:
    return who.role in ("admin", "viewer") or row.submitter == who.id
