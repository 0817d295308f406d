"""Who is who: the keys of a pool and of a worker, what they sign, and the names that follow from them.

X25519 goes through `cryptography`, Ed25519 only through PyNaCl: the two libraries disagree on small-order points.
Every failure to verify is `HandshakeFailed`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from nacl.bindings import crypto_core_ed25519_is_valid_point
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from moregpu import ids
from moregpu.errors import HandshakeFailed, StateRefused
from moregpu.wire.canonical import canonical
from moregpu.wire.messages import Hello, Welcome
from moregpu.wire.noise import public
from moregpu.wire.words import spell

HELLO_PREFIX = b"moregpu/hello/1"


# ---- names and signatures --------------------------------------------------------------------------------------------


def pool_id_of(ci_pub: bytes) -> bytes:
    """The pool's name: 16 bytes."""
    return blake3(ci_pub).digest(16)


def worker_id_of(wi_pub: bytes) -> str:
    """The worker's name: `w-` and 26 characters."""
    return ids.named("w", blake3(wi_pub).digest(16))


def fingerprint(pool_id: bytes) -> str:
    """Eight words that people compare before they join."""
    return spell(pool_id[:8])


def verify(pub: bytes, message: bytes, signature: bytes) -> None:
    """Check an Ed25519 signature; raises `HandshakeFailed`, also for keys of small order and malformed ones."""
    try:
        VerifyKey(pub).verify(message, signature)
    except (CryptoError, ValueError, TypeError) as error:
        raise HandshakeFailed("A signature is not good") from error


def refuse_weak_key(pub: bytes) -> None:
    """Raise `HandshakeFailed` unless `pub` is a canonical point of the main subgroup (then it has one owner)."""
    try:
        good = crypto_core_ed25519_is_valid_point(pub)
    except (CryptoError, ValueError, TypeError) as error:
        raise HandshakeFailed("A signing key is malformed") from error
    if not good:
        raise HandshakeFailed("A signing key is weak: anyone could sign for it")


# ---- the pool --------------------------------------------------------------------------------------------------------


class _PoolDump(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    cs: bytes
    ci_pub: bytes
    ci: bytes | None = None
    next_cs: bytes | None = None


class PoolKeys:
    """A pool's keys: `cs` for sessions, `ci` for what outlives them (it can be kept offline; then it is None)."""

    def __init__(
        self,
        cs: X25519PrivateKey,
        ci: SigningKey | None,
        *,
        ci_pub: bytes | None = None,
        next_cs: X25519PrivateKey | None = None,
    ) -> None:
        if ci_pub is None:
            if ci is None:
                raise ValueError("without ci its public half is needed")
            ci_pub = ci.verify_key.encode()
        self.cs = cs
        self.ci = ci
        self.next_cs = next_cs
        self.ci_pub = ci_pub
        self.cs_pub = public(cs)
        self.pool_id = pool_id_of(ci_pub)

    @classmethod
    def generate(cls) -> PoolKeys:
        """Fresh keys: a new pool."""
        return cls(X25519PrivateKey.generate(), SigningKey.generate())

    def replace_sessions(self, cs: X25519PrivateKey, next_cs: X25519PrivateKey | None) -> None:
        """Go on with other session keys: a step of a rotation. What they are kept in is the caller's to write first."""
        self.cs, self.cs_pub, self.next_cs = cs, public(cs), next_cs

    def dump(self) -> bytes:
        """All keys, secret halves too, for the state folder or the keyring."""
        return msgspec.msgpack.encode(
            _PoolDump(
                version=1,
                cs=self.cs.private_bytes_raw(),
                ci_pub=self.ci_pub,
                ci=None if self.ci is None else self.ci.encode(),
                next_cs=None if self.next_cs is None else self.next_cs.private_bytes_raw(),
            )
        )

    @classmethod
    def load(cls, data: bytes) -> PoolKeys:
        """Read a dump; raises `StateRefused` when it is none."""
        try:
            dump = msgspec.msgpack.decode(data, type=_PoolDump)
            keys = cls(
                X25519PrivateKey.from_private_bytes(dump.cs),
                None if dump.ci is None else SigningKey(dump.ci),
                ci_pub=dump.ci_pub,
                next_cs=None if dump.next_cs is None else X25519PrivateKey.from_private_bytes(dump.next_cs),
            )
        except (msgspec.MsgspecError, ValueError, TypeError, CryptoError) as error:
            raise StateRefused("The pool's keys are damaged", "Restore the state folder from a backup") from error
        if len(dump.ci_pub) != 32 or (keys.ci is not None and keys.ci.verify_key.encode() != dump.ci_pub):
            raise StateRefused("The pool's keys do not belong together", "Restore the state folder from a backup")
        return keys

    @property
    def statics(self) -> Sequence[X25519PrivateKey]:
        """Keys that sessions may be sealed to, newest first."""
        return (self.cs,) if self.next_cs is None else (self.next_cs, self.cs)

    @property
    def next_cs_pub(self) -> bytes:
        """Public half of the next session key, b"" outside a rotation."""
        return b"" if self.next_cs is None else public(self.next_cs)

    def sign(self, message: bytes) -> bytes:
        """Sign with `ci`, 64 bytes; raises `StateRefused` where it is kept elsewhere."""
        if self.ci is None:
            raise StateRefused("The pool's signing key is not on this machine", "Bring it back to rotate or checkpoint")
        return self.ci.sign(message).signature

    def next_cs_signature(self) -> bytes:
        """`ci` over the next session key, b"" outside a rotation."""
        return b"" if self.next_cs is None else self.sign(_cs_message(self.pool_id, self.next_cs_pub))


def check_welcome(welcome: Welcome, pool_id: bytes, pinned_ci_pub: bytes | None = None) -> bytes | None:
    """Check what a coordinator says of itself against the invite; returns the next `cs_pub` during a rotation.

    Raises `HandshakeFailed` when `ci_pub` does not hash to the pool's id, is not the one pinned at enrolment, or did
    not sign the next session key.
    """
    pinned = pinned_ci_pub is None or welcome.ci_pub == pinned_ci_pub
    if welcome.pool != pool_id or pool_id_of(welcome.ci_pub) != pool_id or not pinned:
        raise HandshakeFailed("The coordinator belongs to another pool", "Ask the admin for a new invite")
    if not welcome.next_cs:
        return None
    verify(welcome.ci_pub, _cs_message(pool_id, welcome.next_cs), welcome.next_cs_signature)
    return welcome.next_cs


def _cs_message(pool_id: bytes, cs_pub: bytes) -> bytes:
    return canonical(["moregpu/cs/1", pool_id, cs_pub])


# ---- a worker --------------------------------------------------------------------------------------------------------


class _WorkerDump(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    ws: bytes
    wi: bytes
    ws_number: int


class WorkerKeys:
    """A worker's keys: `wi` is who it is, `ws` a session key that `wi` vouches for under a rising number."""

    def __init__(self, ws: X25519PrivateKey, wi: SigningKey, ws_number: int = 0) -> None:
        self.ws = ws
        self.wi = wi
        self.ws_number = ws_number
        self.ws_pub = public(ws)
        self.wi_pub = wi.verify_key.encode()
        self.worker_id = worker_id_of(self.wi_pub)
        self._ws_signature = b""

    @classmethod
    def generate(cls) -> WorkerKeys:
        """Fresh keys: a new worker."""
        return cls(X25519PrivateKey.generate(), SigningKey.generate())

    def dump(self) -> bytes:
        """Both keys with their secret halves: about 100 bytes, so that every keyring takes them."""
        return msgspec.msgpack.encode(
            _WorkerDump(version=1, ws=self.ws.private_bytes_raw(), wi=self.wi.encode(), ws_number=self.ws_number)
        )

    @classmethod
    def load(cls, data: bytes) -> WorkerKeys:
        """Read a dump; raises `StateRefused` when it is none."""
        try:
            dump = msgspec.msgpack.decode(data, type=_WorkerDump)
            return cls(X25519PrivateKey.from_private_bytes(dump.ws), SigningKey(dump.wi), dump.ws_number)
        except (msgspec.MsgspecError, ValueError, TypeError, CryptoError) as error:
            raise StateRefused("The worker's keys are damaged", "Join the pool again with a new invite") from error

    def sign(self, message: bytes) -> bytes:
        """Sign with `wi`, 64 bytes."""
        return self.wi.sign(message).signature

    def hello_signature(self, h: bytes) -> bytes:
        """Proof of being this worker in the session whose handshake hash is `h`."""
        return self.sign(HELLO_PREFIX + h)

    def ws_signature(self) -> bytes:
        """`wi` over the session key and its number: always the same, so it is made once."""
        if not self._ws_signature:
            self._ws_signature = self.sign(_ws_message(self.ws_pub, self.ws_number))
        return self._ws_signature


def check_hello(hello: Hello, remote_static: bytes, h: bytes, vouched: tuple[bytes, bytes, int] | None = None) -> str:
    """Verify both signatures of a Hello against the session it came in; returns the worker's id.

    Before this returns nothing may happen on the peer's behalf: message 1 can be replayed, and forged by a thief of
    `cs`. `vouched`: (`wi_pub`, `ws_pub`, its number) of a Hello that has passed before, so that the same three need not
    be verified again when thousands return at once; that this is the worker is, always. Raises `HandshakeFailed`.
    """
    if (hello.wi_pub, remote_static, hello.ws_number) != vouched:
        refuse_weak_key(hello.wi_pub)
        verify(hello.wi_pub, _ws_message(remote_static, hello.ws_number), hello.ws_signature)
    verify(hello.wi_pub, HELLO_PREFIX + h, hello.signature)
    return worker_id_of(hello.wi_pub)


def _ws_message(ws_pub: bytes, number: int) -> bytes:
    return canonical(["moregpu/ws/1", ws_pub, number])
