"""A store in memory with an explicit commit: what was not committed is lost by `crash`, as on a real disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

from moregpu.coordinator.ledger import GENESIS
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.commits import COMMIT_WITHIN_S, KEEP_ENDED
from moregpu.coordinator.store.disk import KEEP_EVENTS, KEEP_EVENTS_S, JobFilter, Loaded, Receipt
from moregpu.coordinator.store.durable import BookStore, matches
from moregpu.coordinator.store.protocol import Checkpoint, JobRow, LedgerBatch, LedgerRow, TaskRow
from moregpu.coordinator.store.table import Transaction
from moregpu.errors import MoreGPUError, OutOfSpace
from moregpu.jobs import JOB_ENDED
from moregpu.wire.api import Event

T = TypeVar("T")


class MemoryDisk:
    """Rows that outlive a `MemoryStore`. `full` makes every write fail, as a full disk does."""

    def __init__(self, *, keep_events: int = KEEP_EVENTS, keep_events_s: float = KEEP_EVENTS_S) -> None:
        self.full = False
        self._rows: dict[str, dict[Any, Any]] = {}
        self._events: dict[int, Event] = {}
        self._first_seq = 1
        self._seq = 0
        self._keep_events = keep_events
        self._keep_events_s = keep_events_s
        self._writer = ""

    def load(self, new_writer: str) -> Loaded:
        """Read what is alive."""
        self._writer = self._writer or new_writer
        jobs = {id: row for id, row in self._table("job").items() if row.state not in JOB_ENDED}
        tasks = {id: row for id, row in self._table("task").items() if row.job in jobs}
        registry = {
            name: dict(self._table(name))
            for name in ("worker", "invite", "token", "blob", "owner", "reference", "setting", "usage")
        }
        ours: list[LedgerRow] = [row for row in self._table("ledger").values() if row.writer == self._writer]
        newest = max(ours, key=lambda row: row.row, default=None)
        numbers = [number for writer, number in self._table("batch") if writer == self._writer]
        return Loaded(
            rows={**registry, "job": jobs, "task": tasks},
            receipts={row.task: _receipt(row) for row in self._table("ledger").values() if row.job in jobs},
            writer=self._writer,
            head=(0, GENESIS) if newest is None else (newest.row, newest.hash),
            next_batch=max(numbers, default=0) + 1,
            seq=self._seq,
        )

    def apply(self, transaction: Transaction, wall: float) -> None:
        """Write all of it, or nothing when full."""
        if self.full:
            raise OutOfSpace("the pool's disk is full", "free some space; nothing was lost")
        for change in transaction.coalesced():
            table = self._rows.setdefault(change.table.name, {})
            if change.new is None:
                table.pop(change.key, None)
            else:
                table[change.key] = change.new
        for event in transaction.events:
            self._seq = event.seq or self._seq
            self._events[self._seq] = event
        while self._events and (
            len(self._events) > self._keep_events or self._events[self._first_seq].at < wall - self._keep_events_s
        ):
            del self._events[self._first_seq]
            self._first_seq += 1

    def close(self) -> None:
        """Nothing to let go."""

    def job(self, id: str) -> JobRow | None:
        return self._table("job").get(id)

    def job_id_by_key(self, submitter: str, key: str) -> str | None:
        rows: list[JobRow] = list(self._table("job").values())
        return next((row.id for row in rows if (row.submitter, row.idempotency_key) == (submitter, key)), None)

    def job_id_of_task(self, task: str) -> str | None:
        row: TaskRow | None = self._table("task").get(task)
        return None if row is None else row.job

    def ended_jobs(self, wanted: JobFilter, limit: int) -> list[JobRow]:
        rows: dict[str, JobRow] = self._table("job")
        found = (rows[id] for id in sorted(rows, reverse=True))
        return list(islice((row for row in found if row.state in JOB_ENDED and matches(row, wanted)), limit))

    def find_jobs(self, prefix: str, submitter: str | None, limit: int) -> list[str]:
        rows: list[JobRow] = list(self._table("job").values())
        return sorted(row.id for row in rows if row.id.startswith(prefix) and submitter in (None, row.submitter))[
            :limit
        ]

    def tasks(self, job: str) -> list[TaskRow]:
        rows: list[TaskRow] = [row for row in self._table("task").values() if row.job == job]
        return sorted(rows, key=lambda row: row.number)

    def receipts(self, job: str) -> dict[str, Receipt]:
        return {row.task: _receipt(row) for row in self.statements(job)}

    def statements(self, job: str) -> list[LedgerRow]:
        rows: list[LedgerRow] = [row for row in self._table("ledger").values() if row.job == job]
        return sorted(rows, key=lambda row: (row.writer, row.row))

    def ledger(self, writer: str, after: int, limit: int) -> list[LedgerRow]:
        rows: list[LedgerRow] = [r for r in self._table("ledger").values() if r.writer == writer and r.row > after]
        return sorted(rows, key=lambda row: row.row)[:limit]

    def batches(self, writer: str, numbers: Sequence[int]) -> dict[int, LedgerBatch]:
        table = self._table("batch")
        return {number: table[writer, number] for number in numbers if (writer, number) in table}

    def checkpoints(self, writer: str) -> list[Checkpoint]:
        rows: list[Checkpoint] = [row for row in self._table("checkpoint").values() if row.writer == writer]
        return sorted(rows, key=lambda row: row.row)

    def writers(self) -> list[str]:
        return sorted({self._writer, *(writer for writer, _ in self._table("ledger"))})

    def events_since(self, seq: int, limit: int) -> list[Event] | None:
        if seq + 1 < self._first_seq:
            return None
        return [self._events[number] for number in range(seq + 1, min(self._seq, seq + limit) + 1)]

    def _table(self, name: str) -> dict[Any, Any]:
        return self._rows.setdefault(name, {})


class MemoryStore(BookStore):
    """`auto_commit=True` commits by itself, soon; else nothing is durable, and nobody is told, until `commit`."""

    def __init__(
        self,
        clock: Clock,
        entropy: Callable[[int], bytes] = os.urandom,
        *,
        disk: MemoryDisk | None = None,
        auto_commit: bool = True,
        keep_ended: int = KEEP_ENDED,
    ):
        self.disk = disk if disk is not None else MemoryDisk()
        super().__init__(self.disk, clock, entropy, keep_ended=keep_ended)
        self._auto_commit = auto_commit
        self._timer: asyncio.Handle | None = None
        self._crashed = False

    def commit(self) -> None:
        """Make durable what gathered; those who waited for it go on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._crashed or not self._book.journal:
            return
        transaction = self._take()
        error: MoreGPUError | None = None
        try:
            self.disk.apply(transaction, self._clock.wall())
        except OutOfSpace as full:
            error = full
        self._landed(error)

    def crash(self) -> MemoryDisk:
        """The process dies here: what was not committed is lost, and whoever waited never hears of it.

        Gives the disk, for the next store to open.
        """
        self._crashed, self._opened = True, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting is not None:
            self._waiting.cancel()
        return self.disk

    @property
    def uncommitted(self) -> bool:
        """Whether there is anything that a crash would lose."""
        return bool(self._book.journal)

    def _commit_soon(self) -> None:
        if self._auto_commit:
            self._schedule(0.0)

    def _disk_is_free(self) -> None:
        """Nothing: `commit`, or the timer, orders commits here."""

    def _commit_later(self) -> None:
        if self._auto_commit and self._timer is None:
            self._schedule(COMMIT_WITHIN_S)

    def _schedule(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay_s, self.commit) if delay_s else loop.call_soon(self.commit)

    async def _read(self, read: Callable[[], T]) -> T:
        return read()


def _receipt(row: LedgerRow) -> Receipt:
    return row.writer, row.row, row.hash
