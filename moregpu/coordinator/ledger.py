"""The ledger: one hash chain a writer, whose rows are accepted results and point to the signature over their list.

A row's hash is BLAKE3 over the previous row's hash and the row's content, so a row cannot be changed, dropped or moved
without breaking every hash after it; a checkpoint signed by the pool's `ci` pins the chain's length; a worker's receipt
(writer, row, hash) pins it from the outside. `Audit` walks a chain row by row, in memory that does not grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from blake3 import blake3

from moregpu.coordinator.store.protocol import Checkpoint, LedgerBatch, LedgerRow
from moregpu.errors import HandshakeFailed
from moregpu.wire.identity import verify as verify_signature
from moregpu.wire.statement import batch_message

GENESIS = bytes(32)
"""The hash before a chain's first row."""

MAX_PROBLEMS = 100
"""Findings that an audit keeps: one broken link makes as many as there are rows."""

Receipt = tuple[str, int, bytes]


def row_hash(
    previous: bytes,
    writer: str,
    row: int,
    batch: int,
    index: int,
    job: str,
    task: str,
    attempt: int,
    worker: str,
    statement: bytes,
) -> bytes:
    """BLAKE3 of canonical msgpack `["moregpu/ledger/1", previous, writer, row, batch, index, job, …, statement]`."""
    content = ["moregpu/ledger/1", previous, writer, row, batch, index, job, task, attempt, worker, statement]
    return blake3(_encode(content)).digest()


def next_row(
    previous_row: int,
    previous: bytes,
    *,
    writer: str,
    batch: int,
    index: int,
    job: str,
    task: str,
    attempt: int,
    worker: str,
    statement: bytes,
) -> LedgerRow:
    """Link a row to the chain's head. Rows count from 1."""
    number = previous_row + 1
    return LedgerRow(
        writer=writer,
        row=number,
        hash=row_hash(previous, writer, number, batch, index, job, task, attempt, worker, statement),
        previous=previous,
        batch=batch,
        index=index,
        job=job,
        task=task,
        attempt=attempt,
        worker=worker,
        statement=statement,
    )


def checkpoint_message(pool: bytes, writer: str, row: int, hash: bytes, at: float) -> bytes:
    """What `ci` signs: canonical msgpack `["moregpu/checkpoint/1", pool, writer, row, hash, at]`."""
    return _encode(["moregpu/checkpoint/1", pool, writer, row, hash, at])


def make_checkpoint(head: Receipt, pool: bytes, at: float, sign: Callable[[bytes], bytes]) -> Checkpoint:
    """Sign a chain's head (`Store.ledger_head`) with the pool's `ci`."""
    writer, row, hash = head
    signature = sign(checkpoint_message(pool, writer, row, hash, at))
    return Checkpoint(writer=writer, row=row, hash=hash, at=at, signature=signature)


class Audit:
    """A walk over one writer's chain, a page of rows at a time: `walk` in order, then `finish`."""

    def __init__(self, pool: bytes, ci_pub: bytes, keys: Mapping[str, bytes]):
        self._pool = pool
        self._ci_pub = ci_pub
        self._keys = keys  # worker id → wi_pub
        self._expected: dict[int, list[tuple[bytes, str]]] = {}
        self._good_batches: dict[int, bool] = {}
        self._previous = GENESIS
        self.rows = 0
        self.checkpoints = 0
        self.head = GENESIS
        self.problems: list[str] = []

    def expect(self, checkpoints: Iterable[Checkpoint] = (), receipts: Iterable[Receipt] = ()) -> None:
        """Name what pins the chain from the outside, before walking: signed checkpoints, workers' receipts."""
        for point in checkpoints:
            self.checkpoints += 1
            message = checkpoint_message(self._pool, point.writer, point.row, point.hash, point.at)
            if not _signed(self._ci_pub, message, point.signature):
                self._note(f"the checkpoint at row {point.row} is not signed by this pool")
                continue
            self._expect(point.row, point.hash, "a checkpoint")
        for _, row, hash in receipts:
            self._expect(row, hash, "a worker's receipt")

    def walk(self, rows: Sequence[LedgerRow], batches: Mapping[int, LedgerBatch]) -> None:
        """Check rows that follow those walked before, with the signatures over them."""
        for row in rows:
            if row.row != self.rows + 1:
                self._note(f"row {self.rows + 1} is missing: row {row.row} follows")
            if row.previous != self._previous:
                self._note(f"row {row.row} does not follow the row before it")
            if row.hash != _hash_of(row):
                self._note(f"row {row.row} is not what its hash says")
            self._check_signature(row, batches.get(row.batch))
            for hash, what in self._expected.pop(row.row, ()):
                if hash != row.hash:
                    self._note(f"row {row.row} is not the row that {what} names")
            self.rows, self._previous, self.head = row.row, row.hash, row.hash

    def finish(self) -> list[str]:
        """What was found; empty when the chain holds."""
        for row, pins in sorted(self._expected.items()):
            for _, what in pins:
                self._note(f"the chain ends at row {self.rows}, but {what} names row {row}: rows were cut off")
        self._expected.clear()
        return self.problems

    def _check_signature(self, row: LedgerRow, batch: LedgerBatch | None) -> None:
        if batch is None or batch.writer != row.writer or batch.worker != row.worker:
            self._note(f"row {row.row} has no signature by {row.worker}")
            return
        if not 0 <= row.index < len(batch.digests) or batch.digests[row.index] != blake3(row.statement).digest():
            self._note(f"row {row.row}'s statement is not the one that was signed")
        if batch.number not in self._good_batches:
            if len(self._good_batches) > 256:  # neighbours share batches; more need not be remembered
                self._good_batches.clear()
            key = self._keys.get(batch.worker)
            message = batch_message(self._pool, batch.worker, batch.digests)
            self._good_batches[batch.number] = key is not None and _signed(key, message, batch.signature)
        if not self._good_batches[batch.number]:
            self._note(f"the signature over row {row.row} is not {row.worker}'s")

    def _expect(self, row: int, hash: bytes, what: str) -> None:
        if row > 0:
            self._expected.setdefault(row, []).append((hash, what))

    def _note(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def verify(
    rows: Sequence[LedgerRow],
    batches: Mapping[int, LedgerBatch],
    checkpoints: Iterable[Checkpoint],
    *,
    pool: bytes,
    ci_pub: bytes,
    keys: Mapping[str, bytes],
    receipts: Iterable[Receipt] = (),
) -> list[str]:
    """Check a whole chain of one writer at once; returns what is wrong with it, in words. `keys`: worker → wi_pub."""
    audit = Audit(pool, ci_pub, keys)
    audit.expect(checkpoints, receipts)
    audit.walk(rows, batches)
    return audit.finish()


def _hash_of(row: LedgerRow) -> bytes:
    return row_hash(
        row.previous,
        row.writer,
        row.row,
        row.batch,
        row.index,
        row.job,
        row.task,
        row.attempt,
        row.worker,
        row.statement,
    )


def _signed(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        verify_signature(key, message, signature)
    except HandshakeFailed:
        return False
    return True


_encode = msgspec.msgpack.Encoder().encode
