"""Bodies of the HTTP API (`/v1`), shared by the coordinator that serves them and the clients that read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from moregpu.jobs import AttemptState, Evidence, JobState, TaskState, Tensor

MAX_INLINE_POST_BYTES = 256 * 1024
"""Inline values of one JobSpec over POST."""


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request body: an unknown field is an error."""


class _View(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: a newer coordinator may say more."""


class Problem(_View, frozen=True, kw_only=True):
    """RFC 9457 problem document. `type` is `about:moregpu/<code>`."""

    type: str
    title: str
    status: int
    detail: str = ""
    hint: str = ""


class AttemptView(_View, frozen=True, kw_only=True):
    """One lease of a task."""

    number: int
    worker: str
    worker_name: str
    state: AttemptState
    leased_at: float
    ended_at: float | None = None
    seconds: float | None = None
    error: str = ""


class TaskView(_View, frozen=True, kw_only=True):
    """One task of a job."""

    id: str
    number: int
    state: TaskState
    grains: tuple[int, int]
    worker: str | None = None
    evidence: Evidence | None = None
    attempts: list[AttemptView] = []


class Signed(_View, frozen=True, kw_only=True):
    """Who signed what: one accepted statement, as kept in the ledger."""

    task: str
    attempt: int
    worker: str
    worker_name: str
    wi_pub: bytes
    statement: bytes
    batch: list[bytes]  # digests of the statements under the same signature
    index: int
    signature: bytes
    ledger: tuple[str, int, bytes]  # (writer, row, row hash)


class ResultManifest(_View, frozen=True, kw_only=True):
    """Where a job's outputs are. Tensors carry the key: only their owner is shown this."""

    outputs: dict[str, Tensor] = {}
    dropped: bool = False  # benchmark mode: the output was checked and dropped
    digest: str = ""  # content digest of the outputs, plain BLAKE3 in hex over names, dtypes, shapes and bytes


class Timing(_View, frozen=True, kw_only=True):
    """Seconds of each part of a job's road."""

    queued_s: float = 0.0
    running_s: float = 0.0
    checking_s: float = 0.0
    combining_s: float = 0.0


class JobView(_View, frozen=True, kw_only=True):
    """A job as its submitter sees it."""

    id: str
    kind: str
    name: str
    state: JobState
    submitter: str
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    grains: int = 0
    grains_done: int = 0
    tasks_total: int = 0
    tasks_done: int = 0
    checked: bool = False
    evidence: dict[str, int] = {}  # evidence kind → tasks
    signed: bool = False  # every accepted task carries a verified signature
    workers: list[str] = []
    waiting_reason: str = ""
    purged: bool = False  # outputs and inputs are gone; record, evidence and signatures stay
    kept_until: float | None = None  # of an ended job: when its outputs go at the latest
    error: Problem | None = None
    timing: Timing = Timing()
    result: ResultManifest | None = None
    tasks: list[TaskView] | None = None  # only in GET /v1/jobs/{id}
    summary: str = ""  # "matmul 1024 × 1024 × 1024, float32"


class PlanView(_View, frozen=True, kw_only=True):
    """What a JobSpec would do, without doing it."""

    kind: str
    summary: str
    grains: int
    flops: float
    moved_bytes: float
    task_memory_bytes: int
    fitting_workers: int
    estimate_s: float | None
    waiting_reason: str = ""


class DeviceView(_View, frozen=True, kw_only=True):
    """A device of a worker, by name of field: on the wire to workers the same is an array."""

    id: str
    kind: Literal["cpu", "gpu"]
    name: str
    driver: str = ""
    engine: str = ""
    memory_bytes: int = 0
    cores: int = 0


class LimitsView(_View, frozen=True, kw_only=True):
    """Limits of a worker, by name of field."""

    ceiling: float = 0.85
    schedule: str = "always"
    paused: bool = False


class WorkerView(_View, frozen=True, kw_only=True):
    """A worker as people see it."""

    id: str
    name: str
    owner: str
    groups: list[str]
    state: Literal["online", "offline", "pending", "paused", "draining", "revoked", "quarantined"]
    reason: str = ""
    devices: list[DeviceView] = []
    kinds: list[str] = []
    isolation: str = "none"
    system: str = ""
    version: str = ""
    limits: LimitsView = LimitsView()  # in force: the lower of the owner's and the admin's
    owner_limits: LimitsView = LimitsView()
    duty: dict[str, float] = {}
    user_load: float = 0.0
    speeds: dict[str, float] = {}
    score: int = 0
    leases: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    busy_s: float = 0.0
    round_trip_s: float | None = None
    connected_at: float | None = None
    seen_at: float | None = None
    enrolled_at: float = 0.0
    tls_ends_here: bool = True
    consent: dict[str, list[str]] = {}  # kind → whose jobs its owner lets in ("*": everybody's); not named: everybody's


class WorkerChange(_Body, frozen=True, kw_only=True):
    """PATCH /v1/workers/{id}: only what is named changes."""

    action: Literal["pause", "resume", "drain", "approve"] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    ceiling: Annotated[float, Meta(ge=0.05, le=1.0)] | None = None
    schedule: str | None = None
    groups: list[str] | None = None


class InviteRequest(_Body, frozen=True, kw_only=True):
    """POST /v1/invites."""

    owner: Annotated[str, Meta(title="Owner", max_length=100)] = ""
    groups: Annotated[list[str], Meta(title="Groups")] = []
    kinds: Annotated[list[str], Meta(title="Kinds allowed", description="Empty: all")] = []
    uses: Annotated[int, Meta(title="Uses", ge=1, le=10_000)] = 1
    expires_s: Annotated[float, Meta(title="Valid for", description="Seconds", gt=0)] = 3600.0
    auto_approve: Annotated[bool, Meta(title="Approve at once", description="Only matters with more than one use")] = (
        False
    )


class InviteView(_View, frozen=True, kw_only=True):
    """An invite. `line` is there once, in the answer to its making."""

    id: str
    owner: str
    groups: list[str]
    kinds: list[str]
    uses_left: int
    expires_at: float
    created_at: float
    auto_approve: bool = False
    line: str = ""
    reach: str = ""  # "this machine only; …" when the pool listens on loopback


class JobChange(_Body, frozen=True, kw_only=True):
    """PATCH /v1/jobs/{id}: only what is named changes."""

    name: Annotated[str, Meta(max_length=200)] | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    keep_s: Annotated[float, Meta(ge=0)] | None = None


class LogLine(_View, frozen=True, kw_only=True):
    """One line of GET /v1/jobs/{id}/logs."""

    at: float
    level: Literal["info", "warning", "error"]
    message: str
    worker: str = ""
    task: int | None = None  # the task's number


Role = Literal["viewer", "submitter", "admin"]
Scope = Literal["all", "compat"]


class TokenRequest(_Body, frozen=True, kw_only=True):
    """POST /v1/tokens."""

    label: Annotated[str, Meta(title="Label", max_length=100)] = ""
    role: Role = "submitter"
    expires_s: Annotated[float, Meta(gt=0)] | None = None
    scope: Annotated[Scope, Meta(description="compat: only the calls of MoreGPU 1.x, also without TLS on loopback")] = (
        "all"
    )
    kinds: Annotated[
        list[str], Meta(max_length=16, description="Kinds of jobs that it may submit; none named: all of them")
    ] = []
    weight: Annotated[float, Meta(ge=0.01, le=100.0, description="Share of a busy pool, beside others' 1")] = 1.0
    groups: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]],
        Meta(max_length=16, description="Of people: whom workers' owners let in by group:NAME"),
    ] = []


class TokenView(_View, frozen=True, kw_only=True):
    """A client token. `line` (`MGPUC1-…`) is there once, in the answer to its making."""

    id: str
    label: str
    role: Role
    created_at: float
    expires_at: float | None = None
    used_at: float | None = None
    line: str = ""
    scope: Scope = "all"
    weight: float = 1.0
    kinds: list[str] = []  # of jobs that it may submit; none: all of them
    groups: list[str] = []  # whom workers' owners may let in by `group:NAME`


class PoolView(_View, frozen=True, kw_only=True):
    """GET /v1/pool."""

    id: str
    name: str
    fingerprint: str  # words
    version: str
    addresses: list[str]
    workers_online: int
    workers_total: int
    jobs_queued: int
    jobs_running: int
    started_at: float
    storage_bytes: int = 0
    storage_free_bytes: int = 0
    description: str = ""
    keep_bytes: int | None = None  # outputs of ended jobs beyond this go, oldest first; None: no limit
    max_blob_bytes: int = 0
    submitter_jobs: int = 0  # most jobs of one submitter that have not ended
    submitter_bytes: int | None = None  # most bytes that one submitter keeps; None: no limit
    rotating: bool = False  # a next session key is announced


class PoolChange(_Body, frozen=True, kw_only=True):
    """PATCH /v1/pool: only what is named changes."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    description: Annotated[str, Meta(max_length=1000)] | None = None
    keep_bytes: Annotated[int, Meta(ge=0, description="0: no limit")] | None = None
    max_blob_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 50)] | None = None
    submitter_jobs: Annotated[int, Meta(ge=1, description="Jobs of one submitter that have not ended")] | None = None
    submitter_bytes: Annotated[int, Meta(ge=0, description="Bytes that one submitter keeps; 0: no limit")] | None = None


class RotateRequest(_Body, frozen=True, kw_only=True):
    """POST /v1/pool/rotate: `begin` a next session key, `finish` lets go of the old one, `cancel` of the next.

    Workers learn the next key when their session begins, at the latest after a day; one that did not when the old key
    goes needs a new invite.
    """

    action: Literal["begin", "finish", "cancel"] = "begin"


class RotateView(_View, frozen=True, kw_only=True):
    """Where a rotation stands. Keys are public halves, in hex."""

    rotating: bool
    session_key: str
    next_session_key: str = ""


class KernelRequest(_Body, frozen=True, kw_only=True):
    """POST /v1/kernels: register a kernel, its whole text with front matter and reference (`docs/kernels.md`)."""

    source: Annotated[str, Meta(title="WGSL", min_length=1, max_length=6_144)]


class KernelView(_View, frozen=True, kw_only=True):
    """A registered kernel."""

    name: str
    digest: str
    summary: str = ""
    inputs: list[str] = []
    parameters: list[str] = []  # numbers that a job gives
    reference: str = ""  # the formula that CPUs compute and results are judged by
    source: str = ""
    created_at: float = 0.0


class GroupRequest(_Body, frozen=True, kw_only=True):
    """POST /v1/groups: make a group, or describe one that is there; its `workers` (ids or names) join it."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    description: Annotated[str, Meta(max_length=1000)] = ""
    workers: list[str] = []


class GroupView(_View, frozen=True, kw_only=True):
    """A named set of workers; a job's `group` restricts it to them."""

    name: str
    description: str = ""
    workers: list[str] = []  # ids
    online: int = 0


class TensorRequest(_Body, frozen=True, kw_only=True):
    """POST /v1/tensors: name a tensor, so that its blob stays here. The same name again replaces it."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$")]
    tensor: Tensor


class TensorView(_View, frozen=True, kw_only=True):
    """A named tensor. `tensor` carries the key: put it into a JobSpec's inputs."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    created_at: float
    tensor: Tensor


class LinkView(_View, frozen=True, kw_only=True):
    """How well a worker is connected, and what that allows. Bytes a second are None until something was moved."""

    worker: str
    name: str
    state: str
    round_trip_s: float | None = None
    to_worker_bytes_s: float | None = None
    from_worker_bytes_s: float | None = None
    moved_bytes: int = 0
    tasks_per_s: float | None = None  # tiny tasks that one submitter who waits for each could run
    product_size: int | None = None  # from size × size on, computing a product takes longer than moving it
    allows: str = ""  # the same in words


class NetworkView(_View, frozen=True, kw_only=True):
    """GET /v1/network."""

    links: list[LinkView]


class Me(_View, frozen=True, kw_only=True):
    """GET /v1/me."""

    id: str
    label: str
    role: Role
    scope: Scope = "all"
    kinds: list[str] = []  # of jobs that it may submit; none: all of them


class Event(_View, frozen=True, kw_only=True):
    """One thing that happened. Durable ones carry `seq`; live ones (duty, load) have none: the latest wins."""

    type: str
    id: str = ""
    at: float = 0.0
    seq: int | None = None
    data: dict[str, Any] = {}


class AuditView(_View, frozen=True, kw_only=True):
    """GET /v1/audit: what a walk over the ledger found."""

    rows: int
    checkpoints: int
    writers: int
    ok: bool
    problems: list[str] = []
    head: str = ""


class JobPage(_View, frozen=True, kw_only=True):
    """GET /v1/jobs: newest first; `next`, given as `?after=`, continues it."""

    items: list[JobView]
    next: str | None = None


class BlobView(_View, frozen=True, kw_only=True):
    """What an upload came to: whole, with the name and length of the sealed bytes, or partial, with `offset`."""

    digest: str | None = None
    sealed_bytes: int | None = None
    offset: int | None = None


class Health(_View, frozen=True, kw_only=True):
    """GET /health: public. Workers that are connected, jobs that are queued."""

    ok: bool
    fleet: int
    queue: int
