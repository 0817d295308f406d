"""The ledger: a chain that shows every change, cut, swap and forgery."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from moregpu.coordinator.ledger import GENESIS, Audit, Receipt, make_checkpoint, next_row, verify
from moregpu.coordinator.store.protocol import Checkpoint, LedgerBatch, LedgerRow
from moregpu.wire.identity import PoolKeys, WorkerKeys
from moregpu.wire.statement import batch_message, digest

POOL, WORKER, OTHER = PoolKeys.generate(), WorkerKeys.generate(), WorkerKeys.generate()
KEYS = {WORKER.worker_id: WORKER.wi_pub, OTHER.worker_id: OTHER.wi_pub}


class Chain:
    """Six accepted results in three signed lists."""

    def __init__(self) -> None:
        self.rows: list[LedgerRow] = []
        self.batches: dict[int, LedgerBatch] = {}
        row, previous = 0, GENESIS
        for number in (1, 2, 3):
            statements = [f"statement {number}/{index}".encode() for index in range(2)]
            digests = tuple(digest(statement) for statement in statements)
            signature = WORKER.sign(batch_message(POOL.pool_id, WORKER.worker_id, digests))
            self.batches[number] = LedgerBatch(
                writer="c-1", number=number, worker=WORKER.worker_id, digests=digests, signature=signature
            )
            for index, statement in enumerate(statements):
                link = next_row(
                    row,
                    previous,
                    writer="c-1",
                    batch=number,
                    index=index,
                    job="j-1",
                    task=f"t-{number}{index}",
                    attempt=1,
                    worker=WORKER.worker_id,
                    statement=statement,
                )
                self.rows.append(link)
                row, previous = link.row, link.hash

    @property
    def head(self) -> Receipt:
        last = self.rows[-1]
        return last.writer, last.row, last.hash

    def problems(self, checkpoints: list[Checkpoint] | None = None, receipts: list[Receipt] | None = None) -> list[str]:
        return verify(
            self.rows,
            self.batches,
            checkpoints or [],
            pool=POOL.pool_id,
            ci_pub=POOL.ci_pub,
            keys=KEYS,
            receipts=receipts or [],
        )


def test_an_honest_chain_with_checkpoint_and_receipts_has_no_problems() -> None:
    chain = Chain()
    point = make_checkpoint(chain.head, POOL.pool_id, 123.0, POOL.sign)
    receipts = [(row.writer, row.row, row.hash) for row in chain.rows]
    assert chain.problems([point], receipts) == []


def test_a_chain_is_walked_in_pages() -> None:
    chain = Chain()
    audit = Audit(POOL.pool_id, POOL.ci_pub, KEYS)
    audit.expect(receipts=[chain.head])
    for start in (0, 2, 4):
        audit.walk(chain.rows[start : start + 2], chain.batches)
    assert audit.finish() == []
    assert (audit.rows, audit.head) == (6, chain.rows[-1].hash)


def changed_statement(chain: Chain) -> None:
    chain.rows[2] = replace(chain.rows[2], statement=b"other")


def changed_worker(chain: Chain) -> None:
    chain.rows[2] = replace(chain.rows[2], worker=OTHER.worker_id)


def changed_task(chain: Chain) -> None:
    chain.rows[2] = replace(chain.rows[2], task="t-other")


def dropped_in_the_middle(chain: Chain) -> None:
    del chain.rows[2]


def dropped_at_the_start(chain: Chain) -> None:
    del chain.rows[0]


def swapped(chain: Chain) -> None:
    chain.rows[2], chain.rows[3] = chain.rows[3], chain.rows[2]


def doubled(chain: Chain) -> None:
    chain.rows.insert(2, chain.rows[2])


def signature_of_another(chain: Chain) -> None:
    batch = chain.batches[2]
    signature = OTHER.sign(batch_message(POOL.pool_id, WORKER.worker_id, batch.digests))
    chain.batches[2] = replace(batch, signature=signature)


def signature_for_another_pool(chain: Chain) -> None:
    batch = chain.batches[2]
    signature = WORKER.sign(batch_message(bytes(16), WORKER.worker_id, batch.digests))
    chain.batches[2] = replace(batch, signature=signature)


def no_signature(chain: Chain) -> None:
    del chain.batches[2]


def rebuilt_without_a_row(chain: Chain) -> None:
    """Whoever holds the database can make a chain that holds in itself: only the pins from outside show it."""
    kept, rows, previous = [row for row in chain.rows if row.row != 3], [], GENESIS
    for number, row in enumerate(kept):
        link = next_row(
            number,
            previous,
            writer=row.writer,
            batch=row.batch,
            index=row.index,
            job=row.job,
            task=row.task,
            attempt=row.attempt,
            worker=row.worker,
            statement=row.statement,
        )
        rows.append(link)
        previous = link.hash
    chain.rows = rows


def cut_off(chain: Chain) -> None:
    del chain.rows[4:]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (changed_statement, "row 3 is not what its hash says"),
        (changed_worker, "row 3 has no signature"),
        (changed_task, "row 3 is not what its hash says"),
        (dropped_in_the_middle, "row 3 is missing"),
        (dropped_at_the_start, "row 1 is missing"),
        (swapped, "does not follow"),
        (doubled, "does not follow"),
        (signature_of_another, "the signature over row 3"),
        (signature_for_another_pool, "the signature over row 3"),
        (no_signature, "row 3 has no signature"),
    ],
)
def test_damage_shows_by_the_chain_alone(damage: Callable[[Chain], None], words: str) -> None:
    chain = Chain()
    damage(chain)
    assert any(words in problem for problem in chain.problems())


@pytest.mark.parametrize("damage", [rebuilt_without_a_row, cut_off])
def test_a_chain_cut_or_rebuilt_shows_by_a_checkpoint_or_a_workers_receipt(damage: Callable[[Chain], None]) -> None:
    chain = Chain()
    point, receipt = make_checkpoint(chain.head, POOL.pool_id, 1.0, POOL.sign), chain.head
    damage(chain)
    assert chain.problems() == []
    assert any("cut off" in problem for problem in chain.problems(checkpoints=[point]))
    assert any("cut off" in problem for problem in chain.problems(receipts=[receipt]))


def test_a_receipt_for_another_row_shows() -> None:
    chain = Chain()
    assert any("receipt" in problem for problem in chain.problems(receipts=[("c-1", 2, bytes(32))]))


def test_a_checkpoint_that_the_pool_did_not_sign_shows() -> None:
    chain = Chain()
    forged = make_checkpoint(chain.head, POOL.pool_id, 1.0, PoolKeys.generate().sign)
    assert any("not signed by this pool" in problem for problem in chain.problems([forged]))


def test_findings_are_bounded() -> None:
    chain = Chain()
    chain.rows = [replace(row, statement=b"x") for row in chain.rows] * 100
    assert len(chain.problems()) == 100
