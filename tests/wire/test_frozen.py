"""The formats of version 1, byte for byte: `vectors/ours.json` was made once, and a change here is a new version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from nacl.signing import SigningKey

from moregpu import ids
from moregpu.blobs.format import open_into, seal
from moregpu.jobs import Blob, Planned, Tensor
from moregpu.wire.identity import PoolKeys, WorkerKeys, fingerprint
from moregpu.wire.invite import ClientLine, Invite, new_token, parse_client_line, parse_invite
from moregpu.wire.messages import Assignment, Hello, Limits
from moregpu.wire.session import Channel
from moregpu.wire.statement import Ran, batch_message, content_digest, described, digest, statement_of

VECTORS = Path(__file__).parent / "vectors" / "ours.json"


def made_now() -> dict[str, Any]:
    """Every format, from keys that are bytes in a row."""

    def row(start: int, length: int) -> bytes:
        return bytes(value % 256 for value in range(start, start + length))

    pool = PoolKeys(X25519PrivateKey.from_private_bytes(row(0, 32)), SigningKey(row(32, 32)))
    worker = WorkerKeys(X25519PrivateKey.from_private_bytes(row(64, 32)), SigningKey(row(96, 32)), 3)
    invite = Invite(
        addresses=("den.local:8787", "192.168.1.5:8787"),
        pool_id=pool.pool_id,
        cs_pub=pool.cs_pub,
        invite_id=ids.named("i", row(128, 16)),
        secret=row(144, 16),
        pin=row(160, 32),
        pool_name="Küche",
    )
    token = new_token(lambda length: row(192, length))[1]
    blob, sealed = seal(b"forty-two", key=row(1, 32))
    a = Tensor(dtype="uint8", shape=(9,), data=blob)
    assignment = Assignment(
        job="j-1",
        task="t-1",
        attempt=1,
        token=row(0, 16),
        kind="kernel",
        program=b"relu",
        parameters=msgspec.msgpack.encode({}),
        precision="float32",
        inputs={"a": a},
        outputs={"c": Planned(dtype="uint8", shape=(9,))},
        digest_key=row(2, 32),
        seed=0,
        time_limit_s=None,
        lease_s=60.0,
    )
    content = content_digest(assignment.digest_key, "uint8", (9,), b"forty-two")
    statement = statement_of(
        assignment,
        pool=pool.pool_id,
        worker=worker.worker_id,
        inputs={"a": described(a, content)},
        outputs={"c": described(Tensor(dtype="uint8", shape=(9,), data=b"forty-two"), content)},
        ran=Ran(device="cpu", driver="", duty=0.5, seconds=1.0),
    )
    here = Channel.initiator(worker.ws, pool.cs_pub, pool.pool_id, entropy=lambda length: row(7, length))
    there = Channel.responder([pool.cs], pool.pool_id, entropy=lambda length: row(9, length))
    message_1 = here.start()
    there.receive(message_1)
    message_2 = there.next_record() or b""
    here.receive(message_2)
    hello = Hello(
        wi_pub=worker.wi_pub,
        signature=worker.hello_signature(here.h),
        ws_number=worker.ws_number,
        ws_signature=worker.ws_signature(),
        boot=row(0, 16),
        name="den",
        limits=Limits(),
    )
    here.send(hello)
    record = here.next_record() or b""
    assert there.receive(record) == [hello]
    return {
        "pool_id": pool.pool_id.hex(),
        "fingerprint": fingerprint(pool.pool_id),
        "worker_id": worker.worker_id,
        "invite": invite.line(),
        "client_line": ClientLine(addresses=("den.local:8787",), token=token).line(),
        "token": token,
        "message_1": message_1.hex(),
        "message_2": message_2.hex(),
        "handshake_hash": here.h.hex(),
        "hello": msgspec.msgpack.encode(hello).hex(),
        "hello_record": record.hex(),
        "assignment": msgspec.msgpack.encode(assignment).hex(),
        "content_digest": content.hex(),
        "statement": statement.hex(),
        "statement_digest": digest(statement).hex(),
        "batch_signature": worker.sign(batch_message(pool.pool_id, worker.worker_id, [digest(statement)])).hex(),
        "blob_key": blob.key.hex(),
        "blob_digest": blob.digest,
        "sealed": sealed.hex(),
    }


def test_version_1_is_still_version_1() -> None:
    assert made_now() == json.loads(VECTORS.read_text())


def test_what_was_written_then_is_read_now() -> None:
    kept = json.loads(VECTORS.read_text())
    assert parse_invite(kept["invite"]).pool_name == "Küche"
    assert parse_client_line(kept["client_line"]).token == kept["token"]
    sealed = bytes.fromhex(kept["sealed"])
    assert blake3(sealed).hexdigest() == kept["blob_digest"]
    out = bytearray(9)
    open_into(Blob(digest=kept["blob_digest"], key=bytes.fromhex(kept["blob_key"]), size_bytes=9), sealed, out)
    assert out == b"forty-two"
