"""What a book is written on: tables with their journal, indices that follow them, and ended jobs that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from typing import Any

from moregpu.coordinator import ledger
from moregpu.coordinator.store.index import WorkIndex
from moregpu.coordinator.store.protocol import (
    Checkpoint,
    JobRow,
    LedgerBatch,
    LedgerRow,
    TaskRow,
)
from moregpu.coordinator.store.registry import Registry
from moregpu.coordinator.store.table import Change, Journal, Table
from moregpu.jobs import JOB_ENDED

Receipt = tuple[str, int, bytes]  # writer, row, row hash


class Pages:
    """Tables, indices and journal of one coordinator, and which ended jobs are in memory."""

    def __init__(self, writer: str, entropy: Callable[[int], bytes]):
        self.writer = writer
        self.journal = Journal()
        self.jobs: Table[str, JobRow] = Table("job", self.journal, self._watch_job)
        self.tasks: Table[str, TaskRow] = Table("task", self.journal, self._watch_task)
        self.ledger: Table[tuple[str, int], LedgerRow] = Table("ledger", self.journal, self._watch_ledger)
        self.batches: Table[tuple[str, int], LedgerBatch] = Table("batch", self.journal, self._watch_batch)
        self.checkpoints: Table[tuple[str, int], Checkpoint] = Table("checkpoint", self.journal)
        self.registry = Registry(self.journal)
        self.index = WorkIndex(self.jobs.rows, self.tasks.rows)
        self.receipts: dict[str, Receipt] = {}
        """Task → receipt of its accepted result, of the jobs in memory."""
        self.ended: dict[str, None] = {}
        """Ended jobs in memory, longest first."""
        self.head: tuple[int, bytes] = (0, ledger.GENESIS)
        """Newest row of our ledger chain, and its hash."""
        self.next_batch = 1
        self._entropy = entropy
        self._weighed_at = float("-inf")

    def tables(self) -> dict[str, Table[Any, Any]]:
        """Every table by name, as the disk knows them."""
        own: list[Table[Any, Any]] = [self.jobs, self.tasks, self.ledger, self.batches, self.checkpoints]
        return {table.name: table for table in (*own, *self.registry.tables())}

    # ---- following changes

    def _watch_job(self, old: JobRow | None, new: JobRow | None) -> None:
        self.index.watch_job(old, new)
        if new is not None and new.state in JOB_ENDED:
            self.ended.setdefault(new.id)
        elif row := new or old:
            self.ended.pop(row.id, None)

    def _watch_task(self, old: TaskRow | None, new: TaskRow | None) -> None:
        self.index.watch_task(old, new)
        if new is None and old is not None:
            self.receipts.pop(old.id, None)

    def _watch_ledger(self, old: LedgerRow | None, new: LedgerRow | None) -> None:
        if new is not None:
            self.head = new.row, new.hash
            self.receipts[new.task] = new.writer, new.row, new.hash
        elif old is not None:
            self.head = old.row - 1, old.previous
            self.receipts.pop(old.task, None)

    def _watch_batch(self, old: LedgerBatch | None, new: LedgerBatch | None) -> None:
        if new is not None:
            self.next_batch = new.number + 1
        elif old is not None:
            self.next_batch = old.number

    def forget_written(self, changes: Iterable[Change]) -> None:
        """Ledger rows and signatures are read from the disk once they are there."""
        for change in changes:
            if change.table in (self.ledger, self.batches, self.checkpoints):
                change.table.rows.pop(change.key, None)

    def evict(self, keep: int, on_its_way: Iterable[Change] = ()) -> None:
        """Let go of ended jobs beyond the newest `keep`, but none that is touched by what has yet to be written.

        That is the open transaction, and what is `on_its_way` to the disk.
        """
        if len(self.ended) <= keep:
            return
        leaving = dict.fromkeys(islice(self.ended, len(self.ended) - keep))
        for table, key, old, new in chain(on_its_way, self.journal.changes):
            if table is self.jobs:
                leaving.pop(key, None)
            elif table is self.tasks:
                leaving.pop((new or old).job, None)
        for id in leaving:
            for task in self.index.forget(self.jobs.rows[id]):
                del self.tasks.rows[task]
                self.receipts.pop(task, None)
            del self.jobs.rows[id], self.ended[id]

    def admit(self, job: JobRow, tasks: Iterable[TaskRow], receipts: dict[str, Receipt]) -> None:
        """Take back an ended job that was let go: rows as the disk has them."""
        if job.id not in self.jobs.rows:
            self.jobs.restore(job.id, job)
            for task in tasks:
                self.tasks.restore(task.id, task)
            self.receipts.update(receipts)
