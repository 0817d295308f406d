"""What goes into a store's steps and comes out of them: whose work is next, what is leased, what came back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from moregpu.coordinator.store.rows import JobRow, Row, TaskRow
from moregpu.jobs import Evidence, Tensor
from moregpu.wire.api import ResultManifest
from moregpu.wire.messages import Device, LeaseRef, TaskError
from moregpu.workloads.protocol import TaskSpec, WorkerProfile


class Candidate(Row, frozen=True, kw_only=True):
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


class FleetWorker(Row, frozen=True, kw_only=True):
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


class Choice(Row, frozen=True, kw_only=True):
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


class Lease(Row, frozen=True, kw_only=True):
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


class Accepted(Row, frozen=True, kw_only=True):
    """A checked output, to be accepted. `statement` at `index` of the batch."""

    ref: LeaseRef
    outputs: dict[str, Tensor]
    evidence: Evidence
    statement: bytes
    index: int
    seconds: float
    checking_s: float = 0.0
    failed_calls: int = 0
    checked_by_us: bool = True
    """Whether we compared it with what we know to be right: only that says anything about its worker."""
    result: ResultManifest | None = None
    """The whole job's result, where this one output is all of it: if the job becomes ready by this completion, it is
    finished (`done`, `Completed.ended`) in the same transaction, so that a tiny job costs one commit."""


class Voted(Row, frozen=True, kw_only=True):
    """A result that stands beside others until two owners agree. `last`: they cannot any more; the job fails."""

    ref: LeaseRef
    outputs: dict[str, Tensor]
    statement: bytes
    index: int
    seconds: float
    checking_s: float = 0.0
    last: bool = False


class Failed(Row, frozen=True, kw_only=True):
    """A failed or wrong attempt."""

    ref: LeaseRef
    error: TaskError
    proven_wrong: bool = False
    seconds: float = 0.0
    final: bool = False  # the submitter's own fault: no further attempt


class Completed(Row, frozen=True, kw_only=True):
    """What became of a completion. `fenced`: not this lease any more; the worker may drop it."""

    ref: LeaseRef
    verdict: str  # accepted | rejected | fenced
    detail: str = ""
    ledger: tuple[str, int, bytes] | None = None
    job: str = ""
    ready: bool = False  # every grain of the job is accepted: combine it
    ended: bool = False  # the job reached its end state in this transaction: failed for good, or `result` was given
    out: tuple[tuple[str, LeaseRef], ...] = ()  # with `ended`: (worker, lease) that were out, to be cancelled there


class SignedBatch(Row, frozen=True, kw_only=True):
    """The list a worker signed."""

    worker: str
    digests: tuple[bytes, ...]
    signature: bytes


class Undone(Row, frozen=True, kw_only=True):
    """What a failed commit took back although somebody inside had seen it. Nobody outside was told any of it."""

    jobs: frozenset[str] = frozenset()  # jobs that never became durable
    leases: tuple[tuple[str, LeaseRef], ...] = ()  # (worker, lease) whose assignment may have left: fenced from now on
