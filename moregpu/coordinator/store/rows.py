"""What a store keeps: its rows, as everybody sees them. How they lie on a disk is a matter of `stored.py`."""

from __future__ import annotations

import msgspec

from moregpu.jobs import AttemptState, Evidence, JobState, TaskState, Tensor
from moregpu.wire.api import Problem, ResultManifest, Role, Scope
from moregpu.wire.messages import Device, Limits
from moregpu.workloads import JobSpec
from moregpu.workloads.protocol import Plan, TaskSpec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept, or passed with it. Changed by `msgspec.structs.replace`, never in place."""


class JobRow(Row, frozen=True, kw_only=True):
    """A job. Times are UTC epoch seconds."""

    id: str
    submitter: str  # the token's id
    kind: str
    spec: JobSpec
    plan: Plan
    digest_key: bytes
    state: JobState
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    cursor: int = 0  # grains handed out so far: the next task is cut from here
    grains_done: int = 0
    tasks_total: int = 0
    tasks_done: int = 0
    evidence: dict[str, int] = {}
    idempotency_key: str = ""
    result: ResultManifest | None = None
    error: Problem | None = None
    checking_s: float = 0.0
    combining_s: float = 0.0
    purged: bool = False  # outputs and keys are gone; record and evidence stay
    submitter_name: str = ""  # the token's label: by which a worker's owner may know its holder
    submitter_groups: tuple[str, ...] = ()  # the token's, likewise
    failed_calls: int = 0  # of a function: they raised, or died of something; what they gave is a result like any
    wording: bytes = b""  # of the spec as it was sent (`coordinator.replays`): the key's second use must say the same


class AttemptRow(Row, frozen=True, kw_only=True):
    """One lease of a task."""

    number: int
    worker: str
    token: bytes
    state: AttemptState
    leased_at: float
    ended_at: float | None = None
    seconds: float | None = None  # measured here: started → result
    error: str = ""


class Rival(Row, frozen=True, kw_only=True):
    """A second lease of a task whose first takes too long. Whoever is accepted first ends the other."""

    attempt: int
    worker: str
    token: bytes
    expires: float = 0.0


class Vote(Row, frozen=True, kw_only=True):
    """One result of a task that two owners must agree about."""

    attempt: int
    worker: str
    owner: str
    outputs: dict[str, Tensor] = {}
    receipt: tuple[str, int, bytes] | None = None


class TaskRow(Row, frozen=True, kw_only=True):
    """A task. The lease lives on this row: `worker`, `token`, `expires`; a second one, for a while, in `rival`."""

    id: str
    job: str
    number: int
    state: TaskState
    spec: TaskSpec
    attempts: tuple[AttemptRow, ...] = ()
    failures: int = 0
    losses: int = 0
    failed_on: tuple[str, ...] = ()  # workers that failed it: not offered to them again while others fit
    worker: str | None = None
    token: bytes = b""
    expires: float = 0.0  # monotonic seconds of the store's clock; after a restart every lease is extended in full
    outputs: dict[str, Tensor] = {}
    evidence: Evidence | None = None
    rival: Rival | None = None
    votes: tuple[Vote, ...] = ()


class Trust(Row, frozen=True, kw_only=True):
    """What a worker's checked results say about it (`moregpu.coordinator.trust`)."""

    version: int = 0  # counts changes: an older reading never overwrites a newer one
    right: int = 0  # results that were checked and right
    wrong: int = 0  # results that were proven wrong
    wrong_at: tuple[float, ...] = ()  # when, within the last 30 days
    suspected: int = 0  # results that two other owners agreed against
    probation_left: int = 0  # so many results to come are checked whatever their job says
    quarantined: bool = False


class WorkerRow(Row, frozen=True, kw_only=True):
    """A worker that was enrolled."""

    id: str
    wi_pub: bytes
    ws_pub: bytes
    ws_number: int
    name: str
    owner: str
    groups: tuple[str, ...] = ()
    kinds_allowed: tuple[str, ...] = ()  # by its invite; empty = all
    approved: bool = True
    revoked: bool = False
    paused: bool = False
    draining: bool = False
    limits: Limits = Limits()  # what the admin asks
    invite: str = ""
    enrolled_at: float = 0.0
    seen_at: float = 0.0
    speeds: dict[str, float] = {}
    devices: tuple[Device, ...] = ()
    system: str = ""
    version: str = ""
    tasks_done: int = 0
    tasks_failed: int = 0
    busy_s: float = 0.0
    trust: Trust = Trust()
    tried: bool = False  # its trials went through, whether or not they measured anything
    consent: dict[str, list[str]] = {}  # kind → whose jobs, as its owner said last
    paused_for: str = ""  # why the coordinator paused it; "" where an admin did


class InviteRow(Row, frozen=True, kw_only=True):
    """An invite. The secret itself is never kept."""

    id: str
    secret_hash: bytes  # BLAKE2b-256
    owner: str
    groups: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    expires_at: float = 0.0
    uses_left: int = 1
    auto_approve: bool = True
    created_at: float = 0.0
    created_by: str = ""
    used_by: tuple[str, ...] = ()  # newest worker ids; one presenting it again is let in


class TokenRow(Row, frozen=True, kw_only=True):
    """A client token, looked up by id, compared by hash in constant time."""

    id: str
    hash: bytes  # BLAKE2b-256 of the whole token
    role: Role
    label: str = ""
    created_at: float = 0.0
    expires_at: float | None = None
    used_at: float | None = None
    revoked: bool = False
    weight: float = 1.0  # its share of a busy pool, beside those of others
    scope: Scope = "all"  # "compat": only the calls of MoreGPU 1.x, also without TLS on loopback
    kinds: tuple[str, ...] = ()  # of jobs that it may submit; none named: all
    groups: tuple[str, ...] = ()  # of people that its holder is one of, as the admin says


class UsageRow(Row, frozen=True, kw_only=True):
    """How much a submitter used the pool: worker seconds that fade, as they were at `at` (wall time)."""

    submitter: str
    seconds: float
    at: float


class BlobRow(Row, frozen=True, kw_only=True):
    """A sealed blob on disk."""

    digest: str
    sealed_bytes: int
    principal: str  # token id, or worker id
    created_at: float = 0.0


class LedgerRow(Row, frozen=True, kw_only=True):
    """One accepted (or refused and noted) result. `hash` = BLAKE3 over the previous hash and this row's content."""

    writer: str
    row: int
    hash: bytes
    previous: bytes
    batch: int  # the batch's number
    index: int
    job: str
    task: str
    attempt: int
    worker: str
    statement: bytes


class LedgerBatch(Row, frozen=True, kw_only=True):
    """The signature over a list of statement digests, kept once."""

    writer: str
    number: int
    worker: str
    digests: tuple[bytes, ...]
    signature: bytes


class Checkpoint(Row, frozen=True, kw_only=True):
    """The pool's own signature (`ci`) over a row of a chain: what stands before cannot be cut off or rewritten."""

    writer: str
    row: int
    hash: bytes
    at: float
    signature: bytes
