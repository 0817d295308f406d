"""What a store promises. One contract suite (`tests/coordinator/store`) runs over every implementation.

Every call is one transaction. A call that returns something to be told to the outside ("accepted", "here is your job")
returns after its commit; `lease` alone may return before, since an assignment that a crash cut off is fenced later.
The store never decides: `choose` (the scheduler) and `transitions` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from moregpu.coordinator.store.dealings import (
    Accepted,
    Candidate,
    Candidates,
    Choice,
    Choose,
    Completed,
    Failed,
    Fits,
    FleetWorker,
    Lease,
    SignedBatch,
    Turn,
    Undone,
    Voted,
)
from moregpu.coordinator.store.rows import (
    AttemptRow,
    BlobRow,
    Checkpoint,
    InviteRow,
    JobRow,
    LedgerBatch,
    LedgerRow,
    Rival,
    TaskRow,
    TokenRow,
    Trust,
    UsageRow,
    Vote,
    WorkerRow,
)
from moregpu.jobs import JobState
from moregpu.wire.api import Event, JobChange, Problem, ResultManifest
from moregpu.wire.messages import LeaseRef

__all__ = [
    "ASSIGN_LEASE_S",
    "LEASE_S",
    "MAX_LOSSES",
    "Accepted",
    "AttemptRow",
    "BlobRow",
    "Candidate",
    "Candidates",
    "Checkpoint",
    "Choice",
    "Choose",
    "Completed",
    "Failed",
    "Fits",
    "FleetWorker",
    "InviteRow",
    "JobRow",
    "Lease",
    "LedgerBatch",
    "LedgerRow",
    "Rival",
    "SignedBatch",
    "Store",
    "TaskRow",
    "TokenRow",
    "Trust",
    "Turn",
    "Undone",
    "UsageRow",
    "Vote",
    "Voted",
    "WorkerRow",
]

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
        """Call `callback` on the loop with the durable events of each commit, in order; returns the way to stop.

        What the commit changed is still in memory then: `job_in_memory` has every job that an event names.
        """
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

    def job_in_memory(self, id: str) -> JobRow | None:
        """One job, if it has not ended, or not long ago."""
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

    async def find_jobs(self, prefix: str, submitter: str | None = None) -> list[str]:
        """Ids that begin with a (normalised) prefix, of one submitter's jobs or of all; at most 10."""
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

    def calls_alive(self, submitter: str) -> int:
        """Calls of functions in those."""
        ...

    def needs_ready(self, submitter: str) -> int:
        """How many different needs (group, device, memory, speed …) the ready jobs of a submitter have."""
        ...

    def bytes_of(self, submitter: str) -> int:
        """Sealed bytes of all blobs that a submitter uploaded or that jobs of theirs name."""
        ...

    def loose_blobs(self, worker: str) -> list[BlobRow]:
        """A worker's uploads that no job names (yet), oldest first: results on their way, and what it left here."""
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
        self, worker: str, refs: Sequence[LeaseRef], wall: float, reason: str = "handed back", *, untouched: bool
    ) -> list[LeaseRef]:
        """Refused by the worker, or taken from it: back to waiting, and its claim is over.

        `untouched`: it never began them; else those that may run only once fail.
        """
        ...

    async def release(
        self, worker: str, keep: Sequence[LeaseRef], now: float, wall: float, reason: str = "the connection ended"
    ) -> list[LeaseRef]:
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

    async def save_worker(self, worker: WorkerRow, event: str = "worker.changed", *, durable: bool = True) -> WorkerRow:
        """Replace a worker's row. Not `durable`: it is on the disk a little later, and nobody is told that it is."""
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
