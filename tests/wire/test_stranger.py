"""Who has only `docs/protocol.md` reads what we write: nothing of `moregpu` is imported here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl.signing import SigningKey, VerifyKey
from noise.connection import Keypair, NoiseConnection

OURS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / "ours.json").read_text())
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
KEYS = bytes(range(256))
CS, CI, WS, WI = (KEYS[start : start + 32] for start in (0, 32, 64, 96))


def pack(*values: Any) -> bytes:
    return msgspec.msgpack.encode(list(values))


def crockford(bits: bytes) -> str:
    number = int.from_bytes(bits, "big")
    return "".join(CROCKFORD[number >> 5 * place & 31] for place in range(25, -1, -1))


def fields_of(line: str) -> bytes:
    prefix, body = line[: line.index("-") + 1], line[line.index("-") + 1 :]
    bits = "".join(f"{CROCKFORD.index(character):05b}" for character in body)
    data = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
    length = int.from_bytes(data[:2], "big")
    assert len(data) == 2 + length + 5
    assert data[-5:] == blake3(prefix.encode() + data[:-5]).digest(5)
    return data[2:-5]


def text(data: bytes) -> tuple[str, bytes]:
    return data[1 : 1 + data[0]].decode(), data[1 + data[0] :]


def places(data: bytes) -> tuple[list[str], bytes, bytes]:
    count, data, found = data[0], data[1:], []
    for _ in range(count):
        address, data = text(data)
        found.append(address)
    return found, data[1 : 1 + data[0]], data[1 + data[0] :]


def test_names_follow_from_keys() -> None:
    pool = blake3(SigningKey(CI).verify_key.encode()).digest()[:16]
    assert pool.hex() == OURS["pool_id"]
    assert len(OURS["fingerprint"].split()) == 8
    assert OURS["worker_id"] == "w-" + crockford(blake3(SigningKey(WI).verify_key.encode()).digest()[:16])


def test_the_invite_is_read() -> None:
    data = fields_of(OURS["invite"])
    assert data[:16].hex() == OURS["pool_id"]
    assert data[16:48] == X25519PrivateKey.from_private_bytes(CS).public_key().public_bytes_raw()
    assert data[48:64] == KEYS[128:144]
    assert data[64:80] == KEYS[144:160]
    addresses, pin, rest = places(data[80:])
    assert (addresses, pin) == (["den.local:8787", "192.168.1.5:8787"], KEYS[160:192])
    assert text(rest) == ("Küche", b"")


def test_the_client_line_is_read() -> None:
    addresses, pin, rest = places(fields_of(OURS["client_line"]))
    assert (addresses, pin) == (["den.local:8787"], b"")
    assert text(rest) == (OURS["token"], b"")
    assert len(hashlib.blake2b(OURS["token"].encode(), digest_size=32).digest()) == 32


def test_the_session_is_played_back_and_its_hello_verified() -> None:
    noise = NoiseConnection.from_name(b"Noise_IK_25519_AESGCM_SHA256")
    noise.set_as_responder()
    noise.set_prologue(b"moregpu\x00moregpu.1\x00" + bytes.fromhex(OURS["pool_id"]))
    noise.set_keypair_from_private_bytes(Keypair.STATIC, CS)
    noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, KEYS[9:41])
    with pytest.warns(UserWarning, match="ephemeral"):
        noise.start_handshake()
    assert noise.read_message(bytes.fromhex(OURS["message_1"])) == b""
    assert bytes(noise.write_message()).hex() == OURS["message_2"]
    h = noise.get_handshake_hash()
    assert h.hex() == OURS["handshake_hash"]
    hello = bytes(noise.decrypt(bytes.fromhex(OURS["hello_record"])))
    assert hello.hex() == OURS["hello"]
    tag, wi_pub, signature, ws_number, ws_signature = msgspec.msgpack.decode(hello)[:5]
    assert tag == "hello"
    VerifyKey(wi_pub).verify(b"moregpu/hello/1" + h, signature)
    ws_pub = X25519PrivateKey.from_private_bytes(WS).public_key().public_bytes_raw()
    VerifyKey(wi_pub).verify(pack("moregpu/ws/1", ws_pub, ws_number), ws_signature)


def test_the_blob_is_opened() -> None:
    sealed, key = bytes.fromhex(OURS["sealed"]), bytes.fromhex(OURS["blob_key"])
    assert blake3(sealed).hexdigest() == OURS["blob_digest"]
    header, record = sealed[:64], sealed[64:]
    assert header[:16] == b"MoreGPU\x00" + (1).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big")
    assert int.from_bytes(header[16:24], "big") == 9
    assert header[24:40] == blake3(key, derive_key_context="moregpu blob key id").digest()[:16]
    assert AESGCM(key).decrypt(bytes(7) + bytes(4) + b"\x01", record, header) == b"forty-two"


def test_the_statement_is_rebuilt_and_its_signature_verified() -> None:
    assignment = msgspec.msgpack.decode(bytes.fromhex(OURS["assignment"]))
    job, task, attempt, token, kind, program, parameters, precision, inputs, outputs, digest_key = assignment[:11]
    content = blake3(pack("moregpu/content/1", "uint8", [9]) + b"forty-two", key=digest_key).digest()
    assert content.hex() == OURS["content_digest"]
    pool, worker = bytes.fromhex(OURS["pool_id"]), OURS["worker_id"]
    statement = pack(
        "moregpu/result/1", pool, job, task, attempt, token, worker, kind,
        blake3(program).digest(), blake3(parameters).digest(), precision,
        [[inputs["a"]["data"]["digest"], content, "uint8", [9]]],
        [["", content, outputs["c"]["dtype"], outputs["c"]["shape"]]],
        ["cpu", "", 0.5, 1.0],
    )  # fmt: skip
    assert statement.hex() == OURS["statement"]
    signed = pack("moregpu/results/1", pool, worker, [blake3(statement).digest()])
    SigningKey(WI).verify_key.verify(signed, bytes.fromhex(OURS["batch_signature"]))
