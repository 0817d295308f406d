"""What a store needs of a disk: apply a transaction as a whole, load what is alive, read back what is not.

A disk is synchronous and knows no clock. `apply` is called by one thread at a time, `load` before all, the reads by one
reader thread, and `job_id_by_key` by the event loop's own (it is a point look-up of some microseconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from moregpu.coordinator.store.protocol import Checkpoint, JobRow, LedgerBatch, LedgerRow, TaskRow
from moregpu.coordinator.store.table import Transaction
from moregpu.jobs import JobState
from moregpu.wire.api import Event

KEEP_EVENTS = 100_000
KEEP_EVENTS_S = 86400.0
"""Durable events are kept this many and this long; a reader from further back must resync."""

Receipt = tuple[str, int, bytes]


class Loaded(NamedTuple):
    """What a start needs."""

    rows: dict[str, dict[Any, Any]]
    """Table → key → row: jobs that have not ended with all their tasks; everything of the registry."""
    receipts: dict[str, Receipt]
    writer: str
    head: tuple[int, bytes]
    next_batch: int
    seq: int


class JobFilter(NamedTuple):
    """Which ended jobs are asked for; all fields together."""

    submitter: str | None = None
    states: frozenset[JobState] | None = None
    kind: str | None = None
    before: str | None = None


class Disk(Protocol):
    """Durable rows."""

    def load(self, new_writer: str) -> Loaded:
        """Open, migrate, read what is alive. A fresh disk takes `new_writer` as its ledger writer's name.

        Raises `moregpu.errors.VersionMismatch` for a newer version's database, `StateRefused` for what is none of ours.
        """
        ...

    def apply(self, transaction: Transaction, wall: float) -> None:
        """Write all of it, durably, or raise (`OutOfSpace`, `Unavailable`) having written nothing."""
        ...

    def close(self) -> None:
        """Let go."""
        ...

    def job(self, id: str) -> JobRow | None:
        """One job."""
        ...

    def job_id_by_key(self, submitter: str, key: str) -> str | None:
        """The job under an idempotency key."""
        ...

    def job_id_of_task(self, task: str) -> str | None:
        """The job of a task."""
        ...

    def ended_jobs(self, wanted: JobFilter, limit: int) -> list[JobRow]:
        """Ended jobs, newest first."""
        ...

    def find_jobs(self, prefix: str, submitter: str | None, limit: int) -> list[str]:
        """Ids that begin with `prefix`, of one submitter's jobs or of all, in order."""
        ...

    def tasks(self, job: str) -> list[TaskRow]:
        """A job's tasks by number."""
        ...

    def receipts(self, job: str) -> dict[str, Receipt]:
        """Task → receipt of a job."""
        ...

    def statements(self, job: str) -> list[LedgerRow]:
        """Ledger rows of a job in order."""
        ...

    def ledger(self, writer: str, after: int, limit: int) -> list[LedgerRow]:
        """Rows of a chain after row `after`."""
        ...

    def batches(self, writer: str, numbers: Sequence[int]) -> dict[int, LedgerBatch]:
        """Signatures by number."""
        ...

    def checkpoints(self, writer: str) -> list[Checkpoint]:
        """Checkpoints of a chain in order."""
        ...

    def writers(self) -> list[str]:
        """Every writer that has a chain here."""
        ...

    def events_since(self, seq: int, limit: int) -> list[Event] | None:
        """Events after `seq`; None when some of those are not kept any more."""
        ...
