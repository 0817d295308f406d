"""The tables whose rows are written whole: how a row becomes columns, and the SQL that adds or removes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moregpu.coordinator.store import stored
from moregpu.coordinator.store.protocol import (
    BlobRow,
    Checkpoint,
    InviteRow,
    LedgerBatch,
    LedgerRow,
    TokenRow,
    UsageRow,
    WorkerRow,
)


def _ledger_columns(_: Any, row: LedgerRow) -> tuple[Any, ...]:
    return (
        row.writer,
        row.row,
        row.hash,
        row.previous,
        row.batch,
        row.index,
        row.job,
        row.task,
        row.attempt,
        row.worker,
        row.statement,
    )


def _batch_columns(_: Any, row: LedgerBatch) -> tuple[Any, ...]:
    return row.writer, row.number, row.worker, b"".join(row.digests), row.signature


def _checkpoint_columns(_: Any, row: Checkpoint) -> tuple[Any, ...]:
    return row.writer, row.row, row.hash, row.at, row.signature


def _body_columns(key: str, row: WorkerRow | InviteRow | TokenRow | BlobRow) -> tuple[Any, ...]:
    return key, stored.encode(row)


def _pair_columns(key: tuple[str, str], value: Any) -> tuple[Any, ...]:
    return *key, value


def _usage_columns(key: str, row: UsageRow) -> tuple[Any, ...]:
    return key, row.seconds, row.at


def _single_columns(key: str, value: Any) -> tuple[Any, ...]:
    return key, value


COLUMNS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "ledger": _ledger_columns,
    "batch": _batch_columns,
    "checkpoint": _checkpoint_columns,
    "worker": _body_columns,
    "invite": _body_columns,
    "token": _body_columns,
    "blob": _body_columns,
    "owner": _pair_columns,
    "reference": _pair_columns,
    "setting": _single_columns,
    "usage": _usage_columns,
}
INSERTS = {
    "ledger": "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "batch": "INSERT INTO batch VALUES (?, ?, ?, ?, ?)",
    "checkpoint": "INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?, ?)",
    "worker": "INSERT OR REPLACE INTO worker VALUES (?, ?)",
    "invite": "INSERT OR REPLACE INTO invite VALUES (?, ?)",
    "token": "INSERT OR REPLACE INTO token VALUES (?, ?)",
    "blob": "INSERT OR REPLACE INTO blob VALUES (?, ?)",
    "owner": "INSERT OR REPLACE INTO owner VALUES (?, ?, ?)",
    "reference": "INSERT OR REPLACE INTO reference VALUES (?, ?, ?)",
    "setting": "INSERT OR REPLACE INTO setting VALUES (?, ?)",
    "usage": "INSERT OR REPLACE INTO usage VALUES (?, ?, ?)",
}
DELETES = {
    "invite": "DELETE FROM invite WHERE id = ?",
    "token": "DELETE FROM token WHERE id = ?",
    "blob": "DELETE FROM blob WHERE digest = ?",
    "owner": "DELETE FROM owner WHERE digest = ? AND principal = ?",
    "reference": "DELETE FROM reference WHERE digest = ? AND job = ?",
    "setting": "DELETE FROM setting WHERE name = ?",
    "usage": "DELETE FROM usage WHERE submitter = ?",
}
