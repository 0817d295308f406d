"""Rows in an SQLite file: hand-written SQL, one connection that writes, one that reads, one for the loop's look-ups."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from moregpu.coordinator.ledger import GENESIS
from moregpu.coordinator.store import stored
from moregpu.coordinator.store.database import connect, migrate, typed
from moregpu.coordinator.store.disk import KEEP_EVENTS, KEEP_EVENTS_S, JobFilter, Loaded, Receipt
from moregpu.coordinator.store.protocol import (
    BlobRow,
    Checkpoint,
    InviteRow,
    JobRow,
    LedgerBatch,
    LedgerRow,
    TaskRow,
    TokenRow,
    UsageRow,
    WorkerRow,
)
from moregpu.coordinator.store.sealing import RowSealer
from moregpu.coordinator.store.sqlite_tables import COLUMNS, DELETES, INSERTS
from moregpu.coordinator.store.table import Change, Transaction
from moregpu.jobs import JOB_ENDED
from moregpu.wire.api import Event

TRIM_EVERY = 256
"""Commits between two looks at which events are too old."""

DIGEST_BYTES = 32

Sql = tuple[str, list[tuple[Any, ...]]]

_JOB = "SELECT id, submitter, idempotency_key, kind, body, progress FROM job"
_TASK = "SELECT id, job, body, progress FROM task"
_LEDGER = "SELECT writer, row, hash, previous, batch, position, job, task, attempt, worker, statement FROM ledger"
_ALIVE = "state IN ('queued', 'running')"
_ALIVE_JOBS = "SELECT id FROM job WHERE state IN ('queued', 'running')"
_ALIVE_RECEIPTS = (
    "SELECT task, writer, row, hash FROM ledger WHERE job IN (SELECT id FROM job WHERE state IN ('queued', 'running'))"
)

_event_list = msgspec.msgpack.Decoder(list[Event])
_bodies: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "worker": msgspec.msgpack.Decoder(WorkerRow),
    "invite": msgspec.msgpack.Decoder(InviteRow),
    "token": msgspec.msgpack.Decoder(TokenRow),
    "blob": msgspec.msgpack.Decoder(BlobRow),
}
_BODIES = {
    "worker": "SELECT id, body FROM worker",
    "invite": "SELECT id, body FROM invite",
    "token": "SELECT id, body FROM token",
    "blob": "SELECT digest, body FROM blob",
}


class SqliteDisk:
    """One pool's database file."""

    def __init__(
        self,
        path: Path,
        wrap_key: bytes,
        entropy: Callable[[int], bytes],
        *,
        keep_events: int = KEEP_EVENTS,
        keep_events_s: float = KEEP_EVENTS_S,
    ):
        self._path = path
        self._sealer = RowSealer(wrap_key, entropy)
        self._keep_events = keep_events
        self._keep_events_s = keep_events_s
        self._commits = 0
        self._connections: list[sqlite3.Connection] = []
        self._write: sqlite3.Connection
        self._read: sqlite3.Connection
        self._look: sqlite3.Connection

    # ---- life

    def load(self, new_writer: str) -> Loaded:
        """Open, migrate, read what is alive."""
        try:
            self._write = self._connect()
            migrate(self._write, self._path)
            self._read, self._look = self._connect(), self._connect()
            return self._load(new_writer)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise typed(error, self._path) from error
            raise

    def _connect(self) -> sqlite3.Connection:
        connection = connect(self._path)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        """Let go; the last connection moves the write-ahead log into the database."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _load(self, new_writer: str) -> Loaded:
        writer = self._writer(new_writer)
        jobs = self._jobs(f"{_JOB} WHERE {_ALIVE}")
        tasks = self._tasks(f"{_TASK} WHERE job IN ({_ALIVE_JOBS})")
        receipts = self._read.execute(_ALIVE_RECEIPTS)
        rows: dict[str, dict[Any, Any]] = {
            name: {key: stored.decode(decoder, body, name) for key, body in self._read.execute(_BODIES[name])}
            for name, decoder in _bodies.items()
        }
        rows["setting"] = dict(self._read.execute("SELECT name, value FROM setting"))
        rows["usage"] = {
            who: UsageRow(submitter=who, seconds=seconds, at=at)
            for who, seconds, at in self._read.execute("SELECT submitter, seconds, at FROM usage")
        }
        rows["owner"] = {
            (digest, who): at for digest, who, at in self._read.execute("SELECT digest, principal, at FROM owner")
        }
        rows["reference"] = {
            (digest, job): who
            for digest, job, who in self._read.execute("SELECT digest, job, submitter FROM reference")
        }
        rows["job"] = {job.id: job for job in jobs}
        rows["task"] = {task.id: task for task in tasks}
        head = self._read.execute(
            "SELECT row, hash FROM ledger WHERE writer = ? ORDER BY row DESC LIMIT 1", (writer,)
        ).fetchone()
        batch = self._read.execute("SELECT max(number) FROM batch WHERE writer = ?", (writer,)).fetchone()[0]
        seq = self._read.execute("SELECT max(newest) FROM event").fetchone()[0]
        return Loaded(
            rows=rows,
            receipts={task: (name, row, hash) for task, name, row, hash in receipts},
            writer=writer,
            head=tuple(head) if head is not None else (0, GENESIS),
            next_batch=(batch or 0) + 1,
            seq=seq or 0,
        )

    def _writer(self, new_writer: str) -> str:
        """The name of our ledger chain; with it, proof that the wrap key is the one that the rows are sealed under."""
        found = self._write.execute("SELECT value FROM meta WHERE name = 'writer'").fetchone()
        if found is not None:
            return self._sealer.open("meta", "writer", found[0]).decode()
        sealed = self._sealer.seal("meta", "writer", new_writer.encode())
        self._write.execute("INSERT INTO meta VALUES ('writer', ?)", (sealed,))
        return new_writer

    # ---- writing

    def apply(self, transaction: Transaction, wall: float) -> None:
        """Write all of it in one transaction of the database."""
        try:
            self._write.execute("BEGIN IMMEDIATE")
            for sql, rows in self._statements(transaction):
                self._write.executemany(sql, rows)
            self._commits += 1
            if self._commits % TRIM_EVERY == 0 or self._keep_events < TRIM_EVERY:
                self._trim_events(wall)
            self._write.execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise typed(error, self._path) from error
            raise

    def _roll_back(self) -> None:
        try:
            if self._write.in_transaction:
                self._write.execute("ROLLBACK")
        except sqlite3.Error:
            # A connection that cannot even roll back is no use; SQLite forgets the transaction when it is closed.
            self._connections.remove(self._write)
            self._write.close()
            self._write = self._connect()

    def _statements(self, transaction: Transaction) -> Iterable[Sql]:
        by_table: dict[str, list[Change]] = {}
        for change in transaction.coalesced():
            by_table.setdefault(change.table.name, []).append(change)
        for name, changes in by_table.items():
            if name == "job":
                yield from self._job_statements(changes)
            elif name == "task":
                yield from self._task_statements(changes)
            else:
                gone = [change.key for change in changes if change.new is None]
                kept = [(change.key, change.new) for change in changes if change.new is not None]
                if gone:
                    yield DELETES[name], [key if isinstance(key, tuple) else (key,) for key in gone]
                if kept:
                    yield INSERTS[name], [COLUMNS[name](key, row) for key, row in kept]
        events = transaction.events
        if events:
            row = (events[-1].seq, events[0].seq, events[-1].at, stored.encode(events))
            yield "INSERT INTO event (newest, oldest, at, body) VALUES (?, ?, ?, ?)", [row]

    def _job_statements(self, changes: Iterable[Change]) -> Iterable[Sql]:
        inserted: list[tuple[Any, ...]] = []
        rewritten: list[tuple[Any, ...]] = []
        updated: list[tuple[Any, ...]] = []
        for change in changes:
            new: JobRow = change.new
            progress = stored.job_progress(self._sealer, new)
            if change.old is not None and stored.same_job_body(change.old, new):
                updated.append((new.state.value, progress, new.id))
                continue
            body = stored.job_body(self._sealer, new)
            if change.old is None:
                key = new.idempotency_key
                inserted.append((new.id, new.submitter, key, new.kind, new.state.value, body, progress))
            else:
                rewritten.append((new.state.value, body, progress, new.id))
        if inserted:
            yield "INSERT INTO job VALUES (?, ?, ?, ?, ?, ?, ?)", inserted
        if rewritten:
            yield "UPDATE job SET state = ?, body = ?, progress = ? WHERE id = ?", rewritten
        if updated:
            yield "UPDATE job SET state = ?, progress = ? WHERE id = ?", updated

    def _task_statements(self, changes: Iterable[Change]) -> Iterable[Sql]:
        inserted: list[tuple[Any, ...]] = []
        rewritten: list[tuple[Any, ...]] = []
        updated: list[tuple[Any, ...]] = []
        for change in changes:
            new: TaskRow = change.new
            progress = stored.task_progress(self._sealer, new)
            if change.old is None:
                inserted.append((new.id, new.job, new.number, stored.task_body(self._sealer, new), progress))
            elif change.old.spec is not new.spec:
                rewritten.append((stored.task_body(self._sealer, new), progress, new.id))
            else:
                updated.append((progress, new.id))
        if inserted:
            yield "INSERT INTO task VALUES (?, ?, ?, ?, ?)", inserted
        if rewritten:
            yield "UPDATE task SET body = ?, progress = ? WHERE id = ?", rewritten
        if updated:
            yield "UPDATE task SET progress = ? WHERE id = ?", updated

    def _trim_events(self, wall: float) -> None:
        """Drop events that are too many or too old; the newest row stays, for its number."""
        self._write.execute(
            "DELETE FROM event WHERE newest < (SELECT max(newest) FROM event) AND (newest <= (SELECT max(newest) FROM "
            "event) - ? OR newest < coalesce((SELECT min(newest) FROM event WHERE at >= ?), 9223372036854775807))",
            (self._keep_events, wall - self._keep_events_s),
        )

    # ---- reading

    def job(self, id: str) -> JobRow | None:
        return next(iter(self._jobs(f"{_JOB} WHERE id = ?", id)), None)

    def job_id_by_key(self, submitter: str, key: str) -> str | None:
        # The comparison with '' lets SQLite use the partial index.
        found = self._look.execute(
            "SELECT id FROM job WHERE submitter = ? AND idempotency_key = ? AND idempotency_key <> ''",
            (submitter, key),
        ).fetchone()
        return None if found is None else str(found[0])

    def job_id_of_task(self, task: str) -> str | None:
        found = self._read.execute("SELECT job FROM task WHERE id = ?", (task,)).fetchone()
        return None if found is None else str(found[0])

    def ended_jobs(self, wanted: JobFilter, limit: int) -> list[JobRow]:
        states = sorted(JOB_ENDED if wanted.states is None else JOB_ENDED & wanted.states)
        where, values = [f"state IN ({', '.join('?' * len(states))})"], [state.value for state in states]
        for clause, value in (
            ("submitter = ?", wanted.submitter),
            ("kind = ?", wanted.kind),
            ("id < ?", wanted.before),
        ):
            if value is not None:
                where.append(clause)
                values.append(value)
        return self._jobs(f"{_JOB} WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?", *values, limit)

    def find_jobs(self, prefix: str, submitter: str | None, limit: int) -> list[str]:
        whose, values = ("", []) if submitter is None else ("submitter = ? AND ", [submitter])
        found = self._read.execute(
            f"SELECT id FROM job WHERE {whose}id >= ? AND id < ? ORDER BY id LIMIT ?",  # noqa: S608 — our own words
            (*values, prefix, prefix + "\U0010ffff", limit),
        )
        return [str(id) for (id,) in found]

    def tasks(self, job: str) -> list[TaskRow]:
        return self._tasks(f"{_TASK} WHERE job = ? ORDER BY number", job)

    def receipts(self, job: str) -> dict[str, Receipt]:
        found = self._read.execute("SELECT task, writer, row, hash FROM ledger WHERE job = ?", (job,))
        return {task: (writer, row, hash) for task, writer, row, hash in found}

    def statements(self, job: str) -> list[LedgerRow]:
        return self._ledger_rows(f"{_LEDGER} WHERE job = ? ORDER BY writer, row", job)

    def ledger(self, writer: str, after: int, limit: int) -> list[LedgerRow]:
        return self._ledger_rows(f"{_LEDGER} WHERE writer = ? AND row > ? ORDER BY row LIMIT ?", writer, after, limit)

    def batches(self, writer: str, numbers: Sequence[int]) -> dict[int, LedgerBatch]:
        found: dict[int, LedgerBatch] = {}
        for wanted in numbers:
            for number, worker, digests, signature in self._read.execute(
                "SELECT number, worker, digests, signature FROM batch WHERE writer = ? AND number = ?",
                (writer, wanted),
            ):
                found[number] = LedgerBatch(
                    writer=writer,
                    number=number,
                    worker=worker,
                    digests=tuple(digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)),
                    signature=signature,
                )
        return found

    def checkpoints(self, writer: str) -> list[Checkpoint]:
        found = self._read.execute(
            "SELECT row, hash, at, signature FROM checkpoint WHERE writer = ? ORDER BY row", (writer,)
        )
        return [
            Checkpoint(writer=writer, row=row, hash=hash, at=at, signature=signature)
            for row, hash, at, signature in found
        ]

    def writers(self) -> list[str]:
        own = self._sealer.open(
            "meta", "writer", self._read.execute("SELECT value FROM meta WHERE name = 'writer'").fetchone()[0]
        ).decode()
        return sorted({own, *(str(writer) for (writer,) in self._read.execute("SELECT DISTINCT writer FROM batch"))})

    def events_since(self, seq: int, limit: int) -> list[Event] | None:
        oldest = self._read.execute("SELECT oldest FROM event ORDER BY newest LIMIT 1").fetchone()
        if oldest is not None and seq + 1 < oldest[0]:
            return None
        events: list[Event] = []
        for (body,) in self._read.execute("SELECT body FROM event WHERE newest > ? ORDER BY newest", (seq,)):
            events += [event for event in stored.decode(_event_list, body, "event") if (event.seq or 0) > seq]
            if len(events) >= limit:
                break
        return events[:limit]

    def _jobs(self, sql: str, *values: Any) -> list[JobRow]:
        return [stored.open_job(self._sealer, *row) for row in self._read.execute(sql, values)]

    def _tasks(self, sql: str, *values: Any) -> list[TaskRow]:
        return [stored.open_task(self._sealer, *row) for row in self._read.execute(sql, values)]

    def _ledger_rows(self, sql: str, *values: Any) -> list[LedgerRow]:
        return [
            LedgerRow(
                writer=writer,
                row=row,
                hash=hash,
                previous=previous,
                batch=batch,
                index=index,
                job=job,
                task=task,
                attempt=attempt,
                worker=worker,
                statement=statement,
            )
            for (
                writer,
                row,
                hash,
                previous,
                batch,
                index,
                job,
                task,
                attempt,
                worker,
                statement,
            ) in self._read.execute(sql, values)
        ]
