"""The handshake and the ciphers are Noise's, as public vectors and another implementation say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from noise.connection import Keypair, NoiseConnection

from moregpu.errors import HandshakeFailed
from moregpu.wire.noise import MAX_NONCE, CipherState, Initiator, Responder, public

NAME = b"Noise_IK_25519_AESGCM_SHA256"
VECTOR: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / f"{NAME.decode()}.json").read_text())
SMALL_ORDER_POINTS = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


def key(text: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(text))


def fixed(text: str) -> Any:
    return lambda length: bytes.fromhex(text)[:length]


def test_the_public_vector_replays_byte_for_byte() -> None:
    messages = [(bytes.fromhex(m["payload"]), bytes.fromhex(m["ciphertext"])) for m in VECTOR["messages"]]
    initiator = Initiator(
        key(VECTOR["init_static"]),
        bytes.fromhex(VECTOR["init_remote_static"]),
        bytes.fromhex(VECTOR["init_prologue"]),
        fixed(VECTOR["init_ephemeral"]),
    )
    responder = Responder(
        [key(VECTOR["resp_static"])], bytes.fromhex(VECTOR["resp_prologue"]), fixed(VECTOR["resp_ephemeral"])
    )
    assert initiator.write_message_1(messages[0][0]) == messages[0][1]
    assert responder.read_message_1(messages[0][1]) == (messages[0][0], public(key(VECTOR["init_static"])))
    message_2, there = responder.write_message_2(messages[1][0])
    assert message_2 == messages[1][1]
    payload, here = initiator.read_message_2(messages[1][1])
    assert payload == messages[1][0]
    assert here.h == there.h == bytes.fromhex(VECTOR["handshake_hash"])
    for number, (plain, sealed) in enumerate(messages[2:]):
        sender, receiver = (here, there) if number % 2 == 0 else (there, here)
        assert sender.sending.encrypt(plain) == sealed
        assert receiver.receiving.decrypt(sealed) == plain


def test_the_other_implementation_agrees_with_the_vector() -> None:
    """The vector itself is good: who replays it is not only us."""
    noise = NoiseConnection.from_name(NAME)
    noise.set_as_initiator()
    noise.set_prologue(bytes.fromhex(VECTOR["init_prologue"]))
    noise.set_keypair_from_private_bytes(Keypair.STATIC, bytes.fromhex(VECTOR["init_static"]))
    noise.set_keypair_from_private_bytes(Keypair.EPHEMERAL, bytes.fromhex(VECTOR["init_ephemeral"]))
    noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, bytes.fromhex(VECTOR["init_remote_static"]))
    with pytest.warns(UserWarning, match="ephemeral"):
        noise.start_handshake()
    first, second = VECTOR["messages"][:2]
    assert noise.write_message(bytes.fromhex(first["payload"])).hex() == first["ciphertext"]
    assert noise.read_message(bytes.fromhex(second["ciphertext"])).hex() == second["payload"]
    assert noise.get_handshake_hash().hex() == VECTOR["handshake_hash"]


def test_a_direction_that_rests_goes_on_where_it_was() -> None:
    sealing, opening = CipherState(bytes(range(32))), CipherState(bytes(range(32)))
    for number in range(6):
        assert opening.decrypt(sealing.encrypt(b"%d" % number)) == b"%d" % number
        if number == 3:
            sealing.rekey()
            opening.rekey()
        sealing.rest()
        if number % 2:
            opening.rest()
    assert sealing.nonce == opening.nonce == 6


def test_rekey_is_noises_own() -> None:
    noise = NoiseConnection.from_name(NAME)
    noise.set_as_initiator()
    noise.set_prologue(b"")
    static, remote = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    noise.set_keypair_from_private_bytes(Keypair.STATIC, static.private_bytes_raw())
    noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, public(remote))
    noise.start_handshake()
    responder = Responder([remote], b"")
    responder.read_message_1(bytes(noise.write_message()))
    message_2, ours = responder.write_message_2()
    noise.read_message(message_2)
    for _ in range(3):
        assert bytes(noise.decrypt(ours.sending.encrypt(b"to the initiator"))) == b"to the initiator"
        assert ours.receiving.decrypt(bytes(noise.encrypt(b"to the responder"))) == b"to the responder"
        noise.rekey_inbound_cipher()
        noise.rekey_outbound_cipher()
        ours.sending.rekey()
        ours.receiving.rekey()


def test_a_responder_with_two_keys_answers_to_both() -> None:
    old, new, worker = (X25519PrivateKey.generate() for _ in range(3))
    for dialled in (old, new):
        initiator, responder = Initiator(worker, public(dialled), b"p"), Responder([new, old], b"p")
        responder.read_message_1(initiator.write_message_1())
        message_2, there = responder.write_message_2()
        assert initiator.read_message_2(message_2)[1].h == there.h


def test_another_key_another_prologue_or_a_flipped_bit_fails() -> None:
    worker, cs, other = (X25519PrivateKey.generate() for _ in range(3))
    message = Initiator(worker, public(cs), b"pool").write_message_1()
    with pytest.raises(HandshakeFailed):
        Responder([other], b"pool").read_message_1(message)
    with pytest.raises(HandshakeFailed):
        Responder([cs], b"loop").read_message_1(message)
    for bit in range(0, 8 * len(message), 5):
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(HandshakeFailed):
            _finish(Responder([cs], b"pool"), bytes(changed), Initiator(worker, public(cs), b"pool"))


def _finish(responder: Responder, message_1: bytes, initiator: Initiator) -> None:
    responder.read_message_1(message_1)  # the top bit of a point is ignored (RFC 7748): then the hash differs
    initiator.write_message_1()
    initiator.read_message_2(responder.write_message_2()[0])


@pytest.mark.parametrize("point", SMALL_ORDER_POINTS, ids=lambda point: point.hex()[:8])
def test_points_of_small_order_are_refused_everywhere(point: bytes) -> None:
    static = X25519PrivateKey.generate()
    with pytest.raises(HandshakeFailed):
        Responder([static], b"").read_message_1(point + bytes(64))
    with pytest.raises(HandshakeFailed):
        Initiator(static, point, b"").write_message_1()
    initiator = Initiator(static, public(X25519PrivateKey.generate()), b"")
    initiator.write_message_1()
    with pytest.raises(HandshakeFailed):
        initiator.read_message_2(point + bytes(16))


@given(st.binary(max_size=200))
def test_no_stranger_makes_a_responder_raise_anything_else(data: bytes) -> None:
    with pytest.raises(HandshakeFailed):
        Responder([key(VECTOR["resp_static"])], b"").read_message_1(data)


@given(st.binary(max_size=200))
def test_no_stranger_makes_an_initiator_raise_anything_else(data: bytes) -> None:
    initiator = Initiator(key(VECTOR["init_static"]), bytes.fromhex(VECTOR["init_remote_static"]), b"")
    initiator.write_message_1()
    with pytest.raises(HandshakeFailed):
        initiator.read_message_2(data)


def test_the_counter_never_wraps() -> None:
    cipher = CipherState(os.urandom(32))
    cipher.nonce = MAX_NONCE
    with pytest.raises(HandshakeFailed, match="counter"):
        cipher.encrypt(b"")
    with pytest.raises(HandshakeFailed, match="counter"):
        cipher.decrypt(bytes(16))


def test_a_responder_answers_only_what_it_has_read() -> None:
    with pytest.raises(ValueError, match="message 1"):
        Responder([X25519PrivateKey.generate()], b"").write_message_2()
    with pytest.raises(ValueError, match="static key"):
        Responder([], b"")
