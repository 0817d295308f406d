"""Keys name, sign and refuse."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from nacl import bindings as b
from nacl.signing import SigningKey

from moregpu.errors import HandshakeFailed, StateRefused
from moregpu.wire.canonical import canonical
from moregpu.wire.identity import (
    PoolKeys,
    WorkerKeys,
    check_hello,
    check_welcome,
    fingerprint,
    pool_id_of,
    refuse_weak_key,
    verify,
    worker_id_of,
)
from moregpu.wire.messages import Hello, Welcome
from moregpu.wire.noise import public
from moregpu.wire.words import WORDS

H = bytes(range(32))
SMALL_ORDER_KEYS = [
    b"\x01" + bytes(31),  # the neutral element
    b"\xec" + b"\xff" * 30 + b"\x7f",  # order 2
    bytes(32),  # order 4
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),  # order 8
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),  # order 8
    b"\xee" + b"\xff" * 30 + b"\x7f",  # the neutral element, written another way
]


def hello_of(worker: WorkerKeys, h: bytes = H, **changes: Any) -> Hello:
    hello = Hello(
        wi_pub=worker.wi_pub,
        signature=worker.hello_signature(h),
        ws_number=worker.ws_number,
        ws_signature=worker.ws_signature(),
        boot=bytes(16),
        name="den",
    )
    return replace(hello, **changes)


def welcome_of(keys: PoolKeys, **changes: Any) -> Welcome:
    welcome = Welcome(
        worker="w-1",
        pool=keys.pool_id,
        pool_name="home",
        ci_pub=keys.ci_pub,
        blob_token="x",
        next_cs=keys.next_cs_pub,
        next_cs_signature=keys.next_cs_signature(),
    )
    return replace(welcome, **changes)


def rotated(worker: WorkerKeys) -> WorkerKeys:
    """The same worker with the next session key."""
    return WorkerKeys(X25519PrivateKey.generate(), worker.wi, worker.ws_number + 1)


def test_keys_survive_a_dump() -> None:
    pool, worker = PoolKeys.generate(), rotated(WorkerKeys.generate())
    again = PoolKeys.load(pool.dump())
    assert (again.pool_id, again.cs_pub, again.ci_pub) == (pool.pool_id, pool.cs_pub, pool.ci_pub)
    back = WorkerKeys.load(worker.dump())
    assert (back.worker_id, back.ws_pub, back.ws_number) == (worker.worker_id, worker.ws_pub, 1)
    assert len(base64.b64encode(worker.dump())) < 1_200  # what the smallest keyring takes


def test_a_pool_whose_signing_key_is_elsewhere_still_opens_sessions() -> None:
    full = PoolKeys.generate()
    bare = PoolKeys.load(PoolKeys(full.cs, None, ci_pub=full.ci_pub).dump())
    assert bare.pool_id == full.pool_id
    assert bare.statics == (bare.cs,)
    with pytest.raises(StateRefused, match="not on this machine"):
        bare.sign(b"checkpoint")


@given(st.binary(max_size=200))
def test_damaged_keys_are_refused(data: bytes) -> None:
    for load in (PoolKeys.load, WorkerKeys.load):
        with pytest.raises(StateRefused):
            load(data)


def test_keys_that_do_not_belong_together_are_refused() -> None:
    pool = PoolKeys.generate()
    mixed = PoolKeys(pool.cs, SigningKey.generate(), ci_pub=pool.ci_pub)
    with pytest.raises(StateRefused, match="belong together"):
        PoolKeys.load(mixed.dump())


def test_what_was_vouched_for_before_is_not_verified_again_but_the_session_is_always() -> None:
    worker = WorkerKeys.generate()
    vouched = (worker.wi_pub, worker.ws_pub, worker.ws_number)
    unsigned = hello_of(worker, ws_signature=bytes(64))
    assert check_hello(unsigned, worker.ws_pub, H, vouched) == worker.worker_id
    with pytest.raises(HandshakeFailed):
        check_hello(hello_of(worker), worker.ws_pub, bytes(32), vouched)  # a replay
    for other in (None, (worker.wi_pub, bytes(32), worker.ws_number), (worker.wi_pub, worker.ws_pub, 7)):
        with pytest.raises(HandshakeFailed):
            check_hello(unsigned, worker.ws_pub, H, other)


def test_a_hello_proves_the_worker_in_this_session_only() -> None:
    worker = WorkerKeys.generate()
    assert check_hello(hello_of(worker), worker.ws_pub, H) == worker.worker_id == worker_id_of(worker.wi_pub)
    with pytest.raises(HandshakeFailed):
        check_hello(hello_of(worker), worker.ws_pub, bytes(32))  # another session's hash: a replay
    with pytest.raises(HandshakeFailed):
        check_hello(hello_of(worker), public(X25519PrivateKey.generate()), H)  # another's session key
    with pytest.raises(HandshakeFailed):
        check_hello(hello_of(worker, ws_number=1), worker.ws_pub, H)
    with pytest.raises(HandshakeFailed):
        check_hello(hello_of(worker, wi_pub=WorkerKeys.generate().wi_pub), worker.ws_pub, H)
    with pytest.raises(HandshakeFailed):
        check_hello(hello_of(worker, signature=bytes(64)), worker.ws_pub, H)


def test_a_rotated_session_key_is_the_same_worker() -> None:
    worker = WorkerKeys.generate()
    later = rotated(worker)
    assert later.ws_pub != worker.ws_pub
    assert check_hello(hello_of(later), later.ws_pub, H) == worker.worker_id


@pytest.mark.parametrize("key", SMALL_ORDER_KEYS, ids=lambda key: key.hex()[:8])
def test_signing_keys_of_small_order_are_refused(key: bytes) -> None:
    with pytest.raises(HandshakeFailed):
        refuse_weak_key(key)
    with pytest.raises(HandshakeFailed):
        verify(key, b"anything", key + bytes(32))
    with pytest.raises(HandshakeFailed):
        check_hello(hello_of(WorkerKeys.generate(), wi_pub=key), bytes(32), H)


def test_a_key_with_a_twist_is_refused_though_its_signatures_verify() -> None:
    """A point plus one of order 8 has signatures that libsodium accepts: one signer could go by eight names."""
    secret = b.crypto_core_ed25519_scalar_reduce(bytes(range(64)))
    key = b.crypto_core_ed25519_add(b.crypto_scalarmult_ed25519_base_noclamp(secret), SMALL_ORDER_KEYS[3])

    def sign(message: bytes) -> bytes:
        for number in range(1, 500):
            nonce = b.crypto_core_ed25519_scalar_reduce(number.to_bytes(64, "little"))
            R = b.crypto_scalarmult_ed25519_base_noclamp(nonce)
            k = b.crypto_core_ed25519_scalar_reduce(hashlib.sha512(R + key + message).digest())
            if k[0] % 8 == 0:  # the twist vanishes
                s = b.crypto_core_ed25519_scalar_add(nonce, b.crypto_core_ed25519_scalar_mul(k, secret))
                return R + s
        raise AssertionError

    verify(key, b"message", sign(b"message"))
    ws_pub = public(X25519PrivateKey.generate())
    hello = hello_of(
        WorkerKeys.generate(),
        wi_pub=key,
        signature=sign(b"moregpu/hello/1" + H),
        ws_number=0,
        ws_signature=sign(canonical(["moregpu/ws/1", ws_pub, 0])),
    )
    with pytest.raises(HandshakeFailed, match="weak"):
        check_hello(hello, ws_pub, H)


@given(st.binary(max_size=40), st.binary(max_size=40), st.binary(max_size=70))
def test_verify_raises_nothing_else(key: bytes, message: bytes, signature: bytes) -> None:
    with pytest.raises(HandshakeFailed):
        verify(key, message, signature)


def test_a_welcome_must_come_from_the_pool_of_the_invite() -> None:
    pool, other = PoolKeys.generate(), PoolKeys.generate()
    assert check_welcome(welcome_of(pool), pool.pool_id) is None
    assert check_welcome(welcome_of(pool), pool.pool_id, pool.ci_pub) is None
    for changes in ({"ci_pub": other.ci_pub}, {"pool": other.pool_id}):
        with pytest.raises(HandshakeFailed, match="another pool"):
            check_welcome(welcome_of(pool, **changes), pool.pool_id)
    with pytest.raises(HandshakeFailed, match="another pool"):
        check_welcome(welcome_of(pool), pool.pool_id, other.ci_pub)


def test_the_next_session_key_is_believed_only_when_signed() -> None:
    pool = PoolKeys.generate()
    rotating = PoolKeys.load(PoolKeys(pool.cs, pool.ci, next_cs=X25519PrivateKey.generate()).dump())
    assert check_welcome(welcome_of(rotating), pool.pool_id) == rotating.next_cs_pub
    assert [public(key) for key in rotating.statics] == [rotating.next_cs_pub, pool.cs_pub]
    forged = public(X25519PrivateKey.generate())
    with pytest.raises(HandshakeFailed):
        check_welcome(welcome_of(rotating, next_cs=forged), pool.pool_id)
    with pytest.raises(HandshakeFailed):
        check_welcome(welcome_of(rotating, next_cs_signature=b""), pool.pool_id)


def test_a_fingerprint_is_eight_words_of_the_pool_id() -> None:
    assert fingerprint(bytes(range(0, 160, 10))) == " ".join(WORDS[value] for value in range(0, 80, 10))
    assert len(fingerprint(pool_id_of(bytes(32))).split()) == 8


def test_the_words_are_told_apart_by_four_letters() -> None:
    assert len(WORDS) == 256
    assert len({word[:4] for word in WORDS}) == 256
    assert all(word.isascii() and word.islower() and 4 <= len(word) <= 8 for word in WORDS)
    assert list(WORDS) == sorted(WORDS)
