"""Who signed what is verified from the key up; one changed bit anywhere is refused."""

from __future__ import annotations

import msgspec
import pytest

from moregpu.client.signatures import verify_signed
from moregpu.errors import DigestMismatch, HandshakeFailed, MoreGPUError
from moregpu.wire.api import Signed
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.messages import Assignment
from moregpu.wire.statement import Described, Ran, batch_message, digest, statement_of

POOL = bytes(range(16))
JOB = "j-01HZZZZZZZZZZZZZZZZZZZZZZZ"
TASK = "t-00000000000000000000000001"


def signed(keys: WorkerKeys, *, job: str = JOB, task: str = TASK, claimed_worker: str | None = None) -> Signed:
    worker = claimed_worker or keys.worker_id
    assignment = Assignment(
        job=job,
        task=task,
        attempt=1,
        token=bytes(16),
        kind="kernel",
        program=b"matmul",
        parameters=b"\x80",
        precision="float32",
        inputs={},
        outputs={},
        digest_key=bytes(32),
        seed=0,
        time_limit_s=None,
        lease_s=60.0,
    )
    made = statement_of(
        assignment,
        pool=POOL,
        worker=worker,
        inputs={},
        outputs={"c": Described(blob_digest="ab" * 32, content=bytes(32), dtype="float32", shape=(2, 3))},
        ran=Ran(device="cpu", driver="", duty=1.0, seconds=0.5),
    )
    batch = [digest(b"another statement"), digest(made)]
    return Signed(
        task=task,
        attempt=1,
        worker=worker,
        worker_name="anna",
        wi_pub=keys.wi_pub,
        statement=made,
        batch=batch,
        index=1,
        signature=keys.sign(batch_message(POOL, worker, batch)),
        ledger=("main", 1, bytes(32)),
    )


def test_a_good_statement_tells_who_made_what() -> None:
    keys = WorkerKeys.generate()
    verified = verify_signed(JOB, signed(keys))
    assert (verified.worker, verified.task, verified.attempt, verified.pool) == (keys.worker_id, TASK, 1, POOL)
    assert verified.outputs[0].shape == (2, 3)
    assert verified.ran.seconds == 0.5


def test_a_statement_about_another_job_is_refused() -> None:
    with pytest.raises(HandshakeFailed):
        verify_signed(JOB, signed(WorkerKeys.generate(), job="j-01HYYYYYYYYYYYYYYYYYYYYYYY"))


def test_another_workers_key_is_refused() -> None:
    with pytest.raises(HandshakeFailed):
        verify_signed(JOB, signed(WorkerKeys.generate(), claimed_worker=WorkerKeys.generate().worker_id))


def test_what_the_coordinator_says_beside_the_statement_is_not_believed() -> None:
    good = signed(WorkerKeys.generate())
    for change in ({"task": "t-00000000000000000000000002"}, {"attempt": 2}, {"index": 0}, {"index": 7}, {"index": -1}):
        with pytest.raises(MoreGPUError):
            verify_signed(JOB, msgspec.structs.replace(good, **change))


def test_one_changed_bit_anywhere_is_refused() -> None:
    good = signed(WorkerKeys.generate())
    for field in ("statement", "signature", "wi_pub"):
        value: bytes = getattr(good, field)
        for position in range(0, len(value), 7):
            damaged = bytearray(value)
            damaged[position] ^= 1
            with pytest.raises((HandshakeFailed, DigestMismatch)):
                verify_signed(JOB, msgspec.structs.replace(good, **{field: bytes(damaged)}))


def test_another_batch_is_refused() -> None:
    good = signed(WorkerKeys.generate())
    with pytest.raises(HandshakeFailed):
        verify_signed(JOB, msgspec.structs.replace(good, batch=[bytes(32), good.batch[1]]))
