"""Jobs, their tasks and results, and what would become of one."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from moregpu.jobs import AttemptState, Evidence, JobState, TaskState, Tensor
from moregpu.wire.api.bodies import Body, Problem, View

MAX_INLINE_POST_BYTES = 256 * 1024
"""Inline values of one JobSpec over POST."""


class AttemptView(View, frozen=True, kw_only=True):
    """One lease of a task."""

    number: int
    worker: str
    worker_name: str
    state: AttemptState
    leased_at: float
    ended_at: float | None = None
    seconds: float | None = None
    error: str = ""


class TaskView(View, frozen=True, kw_only=True):
    """One task of a job."""

    id: str
    number: int
    state: TaskState
    grains: tuple[int, int]
    worker: str | None = None
    evidence: Evidence | None = None
    attempts: list[AttemptView] = []


class Signed(View, frozen=True, kw_only=True):
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


class ResultManifest(View, frozen=True, kw_only=True):
    """Where a job's outputs are. Tensors carry the key: only their owner is shown this."""

    outputs: dict[str, Tensor] = {}
    dropped: bool = False  # benchmark mode: the output was checked and dropped
    digest: str = ""  # content digest of the outputs, plain BLAKE3 in hex over names, dtypes, shapes and bytes


class Timing(View, frozen=True, kw_only=True):
    """Seconds of each part of a job's road."""

    queued_s: float = 0.0
    running_s: float = 0.0
    checking_s: float = 0.0
    combining_s: float = 0.0


class JobView(View, frozen=True, kw_only=True):
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
    submitter_name: str = ""  # the label of the token that it was submitted with
    failed_calls: int = 0  # of a function's calls, those that raised or died so far: they count as done


class PlanView(View, frozen=True, kw_only=True):
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


class JobChange(Body, frozen=True, kw_only=True):
    """PATCH /v1/jobs/{id}: only what is named changes."""

    name: Annotated[str, Meta(max_length=200)] | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    keep_s: Annotated[float, Meta(ge=0)] | None = None


class LogLine(View, frozen=True, kw_only=True):
    """One line of GET /v1/jobs/{id}/logs."""

    at: float
    level: Literal["info", "warning", "error"]
    message: str
    worker: str = ""
    task: int | None = None  # the task's number
    printed: bool = False  # by the job's own code


class JobPage(View, frozen=True, kw_only=True):
    """GET /v1/jobs: newest first; `next`, given as `?after=`, continues it."""

    items: list[JobView]
    next: str | None = None
