"""What a store promises. One contract suite (`tests/coordinator/store`) runs over every implementation.

Every call is one transaction. A call that returns something to be told to the outside ("accepted", "here is your job")
returns after its commit; `lease` alone may return before, since an assignment that a crash cut off is fenced later.
The store never decides: `choose` (the scheduler) and `transitions` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from moregpu.jobs import AttemptState, Evidence, JobState, TaskState, Tensor
from moregpu.wire.api import Event, JobChange, Problem, ResultManifest, Role, Scope
from moregpu.wire.messages import Device, LeaseRef, Limits, TaskError
from moregpu.workloads import JobSpec
from moregpu.workloads.protocol import Plan, TaskSpec, WorkerProfile


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept. Changed by `msgspec.structs.replace`, never in place."""


# ---- rows ------------------------------------------------------------------------------------------------------------


class JobRow(_Row, frozen=True, kw_only=True):
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


class AttemptRow(_Row, frozen=True, kw_only=True):
    """One lease of a task."""

    number: int
    worker: str
    token: bytes
    state: AttemptState
    leased_at: float
    ended_at: float | None = None
    seconds: float | None = None  # measured here: started → result
    error: str = ""


class Rival(_Row, frozen=True, kw_only=True):
    """A second lease of a task whose first takes too long. Whoever is accepted first ends the other."""

    attempt: int
    worker: str
    token: bytes
    expires: float = 0.0


class Vote(_Row, frozen=True, kw_only=True):
    """One result of a task that two owners must agree about."""

    attempt: int
    worker: str
    owner: str
    outputs: dict[str, Tensor] = {}
    receipt: tuple[str, int, bytes] | None = None


class TaskRow(_Row, frozen=True, kw_only=True):
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


class Trust(_Row, frozen=True, kw_only=True):
    """What a worker's checked results say about it (`moregpu.coordinator.trust`)."""

    version: int = 0  # counts changes: an older reading never overwrites a newer one
    right: int = 0  # results that were checked and right
    wrong: int = 0  # results that were proven wrong
    wrong_at: tuple[float, ...] = ()  # when, within the last 30 days
    suspected: int = 0  # results that two other owners agreed against
    probation_left: int = 0  # so many results to come are checked whatever their job says
    quarantined: bool = False


class WorkerRow(_Row, frozen=True, kw_only=True):
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


class InviteRow(_Row, frozen=True, kw_only=True):
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
    used_by: tuple[str, ...] = ()  # worker ids; the same worker presenting it again is let in


class TokenRow(_Row, frozen=True, kw_only=True):
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


class UsageRow(_Row, frozen=True, kw_only=True):
    """How much a submitter used the pool: worker seconds that fade, as they were at `at` (wall time)."""

    submitter: str
    seconds: float
    at: float


class BlobRow(_Row, frozen=True, kw_only=True):
    """A sealed blob on disk."""

    digest: str
    sealed_bytes: int
    principal: str  # token id, or worker id
    created_at: float = 0.0


class LedgerRow(_Row, frozen=True, kw_only=True):
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


class LedgerBatch(_Row, frozen=True, kw_only=True):
    """The signature over a list of statement digests, kept once."""

    writer: str
    number: int
    worker: str
    digests: tuple[bytes, ...]
    signature: bytes


class Checkpoint(_Row, frozen=True, kw_only=True):
    """The pool's own signature (`ci`) over a row of a chain: what stands before cannot be cut off or rewritten."""

    writer: str
    row: int
    hash: bytes
    at: float
    signature: bytes


# ---- what goes in and out --------------------------------------------------------------------------------------------


class Candidate(_Row, frozen=True, kw_only=True):
    """A job with work to hand out: tasks that came back, and grains that were never cut."""

    job: JobRow
    waiting: tuple[TaskRow, ...]

    @property
    def uncut(self) -> int:
        """Grains left to cut."""
        return self.job.plan.grains - self.job.cursor


class Turn(NamedTuple):
    """Where a submitter stands in the round: who is lowest goes next, and moves on by seconds ÷ share."""

    at: float
    share: float = 1.0


Fits = Callable[[JobRow, frozenset[str]], bool]
"""Whether a worker could take a job, given the owners that may not take any task of it that is ready."""


class Candidates(Protocol):
    """Ready work by submitter, highest priority and oldest first; jobs whose `after` is not done are left out."""

    def submitters(self) -> Sequence[str]:
        """Those with ready work; of two that are level, the one that was served longest ago comes first."""
        ...

    def turn(self, submitter: str) -> Turn:
        """Where one of them stands."""
        ...

    def of(self, submitter: str, fits: Fits | None = None) -> Iterator[Candidate]:
        """Their jobs, best first, lazily; with `fits`, asked once for all jobs that are alike, those that fit."""
        ...


class FleetWorker(_Row, frozen=True, kw_only=True):
    """A connected worker, as placement sees it."""

    id: str
    owner: str
    groups: tuple[str, ...]
    kinds: tuple[str, ...]
    devices: tuple[Device, ...]
    profile: WorkerProfile
    hot: frozenset[str] = frozenset()
    total_speed: dict[str, float] = {}  # of all workers, by speed key, duty included: the share rule needs it
    peers: int = 1  # connected workers that take work
    held_s: float = 0.0  # seconds until its devices, side by side, are done with what they have in hand
    held_on: dict[str, int] = {}  # how many leases each of its devices has in hand
    proven: bool = True
    consent: dict[str, list[str]] = {}  # kind → whose jobs; a kind not named is open to all


class Choice(_Row, frozen=True, kw_only=True):
    """What the scheduler picked: a waiting task again, or a fresh cut from a job's cursor."""

    job: str
    task: str | None = None
    cut: TaskSpec | None = None
    device: str = ""


class Choose(Protocol):
    """The pure scheduler."""

    def __call__(self, candidates: Candidates, worker: FleetWorker, slots: int, now: float) -> list[Choice]:
        """Pick at most `slots` tasks for `worker`."""
        ...


class Lease(_Row, frozen=True, kw_only=True):
    """What was leased."""

    job: JobRow
    task: TaskRow
    attempt: int
    token: bytes
    device: str = ""

    @property
    def ref(self) -> LeaseRef:
        """The lease's exact name."""
        return LeaseRef(task=self.task.id, attempt=self.attempt, token=self.token)


class Accepted(_Row, frozen=True, kw_only=True):
    """A checked output, to be accepted. `statement` at `index` of the batch."""

    ref: LeaseRef
    outputs: dict[str, Tensor]
    evidence: Evidence
    statement: bytes
    index: int
    seconds: float
    checking_s: float = 0.0
    checked_by_us: bool = True
    """Whether we compared it with what we know to be right: only that says anything about its worker."""
    result: ResultManifest | None = None
    """The whole job's result, where this one output is all of it: if the job becomes ready by this completion, it is
    finished (`done`, `Completed.ended`) in the same transaction, so that a tiny job costs one commit."""


class Voted(_Row, frozen=True, kw_only=True):
    """A result that stands beside others until two owners agree. `last`: they cannot any more; the job fails."""

    ref: LeaseRef
    outputs: dict[str, Tensor]
    statement: bytes
    index: int
    seconds: float
    checking_s: float = 0.0
    last: bool = False


class Failed(_Row, frozen=True, kw_only=True):
    """A failed or wrong attempt."""

    ref: LeaseRef
    error: TaskError
    proven_wrong: bool = False
    seconds: float = 0.0
    final: bool = False  # the submitter's own fault: no further attempt


class Completed(_Row, frozen=True, kw_only=True):
    """What became of a completion. `fenced`: not this lease any more; the worker may drop it."""

    ref: LeaseRef
    verdict: str  # accepted | rejected | fenced
    detail: str = ""
    ledger: tuple[str, int, bytes] | None = None
    job: str = ""
    ready: bool = False  # every grain of the job is accepted: combine it
    ended: bool = False  # the job reached its end state in this transaction: failed for good, or `result` was given
    out: tuple[tuple[str, LeaseRef], ...] = ()  # with `ended`: (worker, lease) that were out, to be cancelled there


class SignedBatch(_Row, frozen=True, kw_only=True):
    """The list a worker signed."""

    worker: str
    digests: tuple[bytes, ...]
    signature: bytes


class Undone(_Row, frozen=True, kw_only=True):
    """What a failed commit took back although somebody inside had seen it. Nobody outside was told any of it."""

    jobs: frozenset[str] = frozenset()  # jobs that never became durable
    leases: tuple[tuple[str, LeaseRef], ...] = ()  # (worker, lease) whose assignment may have left: fenced from now on


# ---- the promise -----------------------------------------------------------------------------------------------------

ASSIGN_LEASE_S = 10.0
LEASE_S = 60.0
MAX_LOSSES = 20


class Store(Protocol):
    """All that the pool remembers. `now` is monotonic seconds for leases; wall times come in rows."""

    async def open(self, now: float) -> None:
        """Load; migrate; every lease that was out gets the full time from `now` on."""
        ...

    async def close(self) -> None:
        """Commit what is queued and let go."""
        ...

    async def settle(self) -> None:
        """Wait until everything that this store has shown so far is durable.

        Reads show what the newest steps did, committed or not. Whoever is about to tell the outside something that it
        *read* waits here first. Raises `OutOfSpace` or `Unavailable` when some of it was undone instead.
        """
        ...

    def subscribe(self, callback: Callable[[list[Event]], None]) -> Callable[[], None]:
        """Call `callback` on the loop with the durable events of each commit, in order; returns the way to stop."""
        ...

    def watch_undone(self, callback: Callable[[Undone], None]) -> Callable[[], None]:
        """Call `callback` on the loop when a commit failed, with what vanished; returns the way to stop."""
        ...

    # jobs and tasks
    async def add_job(self, job: JobRow, *, told: bool = True) -> JobRow:
        """Keep a job. The same (submitter, idempotency key) gives back the earlier one.

        `told=False`: the submitter waits for the result and has been told nothing, so the rows may ride in a later
        transaction (at most 10 ms away) and the call returns at once.
        """
        ...

    async def job(self, id: str) -> JobRow | None:
        """One job."""
        ...

    async def job_under_key(self, submitter: str, key: str) -> JobRow | None:
        """A submitter's job under an idempotency key."""
        ...

    async def jobs(
        self,
        *,
        submitter: str | None = None,
        states: Iterable[JobState] | None = None,
        kind: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[JobRow]:
        """Jobs, newest first, older than the id `before`."""
        ...

    async def find_jobs(self, prefix: str) -> list[str]:
        """Ids that begin with a (normalised) prefix; at most 10."""
        ...

    async def tasks(self, job: str) -> list[TaskRow]:
        """A job's tasks in the order they were cut."""
        ...

    async def task(self, id: str) -> TaskRow | None:
        """One task."""
        ...

    def blocked_by(self, job: JobRow) -> list[str]:
        """Jobs that `job` waits for (`after`) and that are not done yet."""
        ...

    def has_ready_work(self) -> bool:
        """Whether `lease` could give anything to a worker that fits everything."""
        ...

    def ready_count(self) -> int:
        """How many jobs have something to lease."""
        ...

    def work_version(self) -> int:
        """Goes up whenever something becomes ready: who found nothing need not look again before."""
        ...

    def tails(self) -> list[str]:
        """Jobs that are nearly done and have nothing left to hand out: their last tasks are all leased."""
        ...

    def jobs_alive(self, submitter: str) -> int:
        """Jobs of a submitter that have not ended."""
        ...

    def needs_ready(self, submitter: str) -> int:
        """How many different needs (group, device, memory, speed …) the ready jobs of a submitter have."""
        ...

    def bytes_of(self, submitter: str) -> int:
        """Sealed bytes of all blobs that a submitter uploaded or that jobs of theirs name."""
        ...

    async def lease_again(self, worker: FleetWorker, task: str, device: str, now: float, wall: float) -> Lease | None:
        """Lease a task that is out to somebody else, too; None when it is not, or not any more, or twice already."""
        ...

    async def lease(self, worker: FleetWorker, slots: int, choose: Choose, now: float, wall: float) -> list[Lease]:
        """Let `choose` pick, then write attempts with fresh random tokens. May return before the commit."""
        ...

    async def taken(self, worker: str, refs: Sequence[LeaseRef], now: float) -> list[LeaseRef]:
        """The worker confirmed: assign lease → full lease. Returns those that are not its own any more."""
        ...

    async def renew(self, worker: str, refs: Sequence[LeaseRef], now: float) -> list[LeaseRef]:
        """A heartbeat listed these. Returns the lost ones."""
        ...

    async def complete(
        self, worker: str, ended: Sequence[Accepted | Voted | Failed], batch: SignedBatch | None, wall: float
    ) -> list[Completed]:
        """Accept or fail attempts, fenced by (task, attempt, token, worker); ledger rows in the same transaction.

        A resend of an accepted lease is answered `accepted` again, with the same receipt.
        """
        ...

    async def hand_back(
        self, worker: str, refs: Sequence[LeaseRef], wall: float, reason: str = "handed back"
    ) -> list[LeaseRef]:
        """Refused by the worker, or taken from it: back to waiting, and its claim is over."""
        ...

    async def release(self, worker: str, keep: Sequence[LeaseRef], now: float, wall: float) -> list[LeaseRef]:
        """The session is gone: its leases but `keep` go back to waiting (their tokens hold until leased again)."""
        ...

    async def reap(self, now: float, wall: float) -> list[LeaseRef]:
        """Leases past their time go back to waiting."""
        ...

    async def extend_all(self, now: float) -> None:
        """The loop lagged or time jumped: every lease gets its full time again."""
        ...

    async def cancel(self, job: str, wall: float) -> list[tuple[str, LeaseRef]]:
        """End a job as cancelled. Returns (worker, lease) that were out."""
        ...

    async def finish(
        self, job: str, *, result: ResultManifest | None, error: Problem | None, combining_s: float, wall: float
    ) -> JobRow:
        """Combined: done, or failed with `error`. A job that already ended stays as it is."""
        ...

    async def change_job(self, job: str, change: JobChange, wall: float) -> JobRow:
        """Change what may be changed of a job that was accepted; its place in the queue follows. Raises `NotFound`."""
        ...

    async def ready_jobs(self) -> list[str]:
        """Jobs whose grains are all accepted but that are not finished: to be combined (after a restart)."""
        ...

    async def purge(self, job: str) -> JobRow:
        """Forget outputs and keys of an ended job."""
        ...

    # ledger
    async def statements(self, job: str) -> list[tuple[LedgerRow, LedgerBatch]]:
        """The accepted statements of a job with the signatures over them."""
        ...

    async def ledger(self, writer: str | None = None, after: int = 0, limit: int = 1000) -> list[LedgerRow]:
        """Rows in order."""
        ...

    async def batches(self, writer: str, numbers: Sequence[int]) -> dict[int, LedgerBatch]:
        """Signatures by batch number."""
        ...

    async def ledger_head(self) -> tuple[str, int, bytes]:
        """Our writer's name, its newest row and that row's hash: what a checkpoint signs."""
        ...

    async def ledger_writers(self) -> list[str]:
        """Every writer that has a chain here."""
        ...

    async def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep a signed checkpoint."""
        ...

    async def checkpoints(self, writer: str) -> list[Checkpoint]:
        """Checkpoints of a chain in order."""
        ...

    # events
    async def events_since(self, seq: int, limit: int = 1000) -> list[Event] | None:
        """Durable events after `seq`; None when that is further back than is kept (the reader must resync)."""
        ...

    def last_seq(self) -> int:
        """Sequence of the newest committed event."""
        ...

    async def note(self, event: Event) -> Event:
        """Keep an event that no other call makes (`log`, …)."""
        ...

    # workers, invites, tokens, blobs
    async def enrol(self, worker: WorkerRow, invite: str, secret_hash: bytes, wall: float) -> WorkerRow | None:
        """Consume one use of an invite and add its worker, in one conditional write; None = refused.

        The same worker (same `wi_pub`) presenting an invite it already used gets its row back.
        """
        ...

    async def worker(self, id: str) -> WorkerRow | None:
        """One worker."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """All that are not forgotten, revoked ones too."""
        ...

    async def save_worker(self, worker: WorkerRow, event: str = "worker.changed") -> WorkerRow:
        """Replace a worker's row."""
        ...

    async def add_invite(self, invite: InviteRow) -> None:
        """Keep an invite."""
        ...

    async def invites(self) -> list[InviteRow]:
        """All that could still be used, and used ones for a day."""
        ...

    async def drop_invite(self, id: str) -> bool:
        """Withdraw an invite."""
        ...

    async def save_token(self, token: TokenRow) -> None:
        """Add or replace a token."""
        ...

    async def token(self, id: str) -> TokenRow | None:
        """One token."""
        ...

    async def tokens(self) -> list[TokenRow]:
        """All tokens."""
        ...

    async def add_blob(self, blob: BlobRow) -> None:
        """A blob is durable on disk."""
        ...

    async def blob(self, digest: str) -> BlobRow | None:
        """One blob."""
        ...

    async def blob_readable(self, digest: str, submitter: str) -> bool:
        """Whether this submitter uploaded it, or a job of theirs refers to it."""
        ...

    async def unreferenced_blobs(self, older_than: float) -> list[str]:
        """Blobs that no job refers to, older than a wall time."""
        ...

    async def drop_blobs(self, digests: Sequence[str]) -> None:
        """Forget blobs whose files are about to be deleted."""
        ...

    # settings
    async def setting(self, key: str) -> str | None:
        """A small fact about the pool."""
        ...

    async def set_setting(self, key: str, value: str) -> None:
        """Keep one."""
        ...
