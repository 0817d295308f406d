"""Verify who signed what, here, from the statements alone: nothing that the coordinator says about them is believed."""

from __future__ import annotations

import msgspec

from moregpu.errors import DigestMismatch, HandshakeFailed
from moregpu.wire.api import Signed
from moregpu.wire.identity import verify, worker_id_of
from moregpu.wire.statement import RESULT, Described, Ran, batch_message, digest, read_ran_and_outputs


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """A statement whose signature is good: this worker's key signed that it made these outputs in this attempt."""

    pool: bytes
    job: str
    task: str
    attempt: int
    worker: str
    outputs: list[Described]
    ran: Ran


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a statement's list (`docs/protocol.md`, Statement)."""

    version: str
    pool: bytes
    job: str
    task: str
    attempt: int
    token: bytes
    worker: str


def verify_signed(job: str, signed: Signed) -> Verified:
    """Check one statement of `job` from the signature up.

    The key makes the worker's name; the key signed the batch; the batch holds the statement's digest; the statement
    is about this job, task, attempt and worker. Raises `HandshakeFailed` where one of these does not hold,
    `DigestMismatch` for a statement that is not what was signed.
    """
    if worker_id_of(signed.wi_pub) != signed.worker:
        raise HandshakeFailed(f"the key shown for {signed.worker} is another worker's")
    try:
        head = msgspec.msgpack.decode(signed.statement, type=_Head)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DigestMismatch("a signed statement cannot be read") from error
    if not 0 <= signed.index < len(signed.batch) or signed.batch[signed.index] != digest(signed.statement):
        raise DigestMismatch(f"the statement about {head.task} is not the one that was signed")
    verify(signed.wi_pub, batch_message(head.pool, signed.worker, signed.batch), signed.signature)
    if (head.version, head.job, head.task, head.attempt, head.worker) != (
        RESULT,
        job,
        signed.task,
        signed.attempt,
        signed.worker,
    ):
        raise HandshakeFailed(f"{signed.worker} signed something, but not this result of {signed.task}")
    outputs, ran = read_ran_and_outputs(signed.statement)
    return Verified(
        pool=head.pool,
        job=head.job,
        task=head.task,
        attempt=head.attempt,
        worker=head.worker,
        outputs=outputs,
        ran=ran,
    )
