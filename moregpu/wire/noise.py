"""`Noise_IK_25519_AESGCM_SHA256`, handshake and transport, exactly as the Noise specification (revision 34) says.

No I/O. Section numbers refer to https://noiseprotocol.org/noise.html. Every failure is `HandshakeFailed`; what failed
inside the mathematics is never told.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from moregpu.errors import HandshakeFailed

PROTOCOL_NAME = b"Noise_IK_25519_AESGCM_SHA256"
KEY_BYTES = 32
TAG_BYTES = 16
MAX_MESSAGE_BYTES = 65_535
MAX_NONCE = 2**64 - 1  # reserved for REKEY (4.2)
MESSAGE_1_BYTES = KEY_BYTES + KEY_BYTES + TAG_BYTES + TAG_BYTES  # e, encrypted s, tag of the empty payload
MESSAGE_2_BYTES = KEY_BYTES + TAG_BYTES  # e, tag of the empty payload

Entropy = Callable[[int], bytes]
_SHA256 = hashes.SHA256()


def public(key: X25519PrivateKey) -> bytes:
    """The 32 bytes of a private key's public half."""
    return key.public_key().public_bytes_raw()


class CipherState:
    """One direction of a transport: a key and a counter (5.1). The counter is never on the wire.

    The cipher is made from the key when it is needed: 2.4 µs, and 2.5 kB as long as it stays (measured).
    """

    __slots__ = ("_cipher", "_key", "nonce")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher: AESGCM | None = None
        self.nonce = 0

    def encrypt(self, plain: bytes | memoryview, associated: bytes = b"") -> bytes:
        """Seal under the next counter value; raises `HandshakeFailed` when the counter is used up."""
        return self._ready().encrypt(self._next_nonce(), plain, associated)

    def decrypt(self, sealed: bytes | memoryview, associated: bytes = b"") -> bytes:
        """Open what the other end sealed under the same counter value; raises `HandshakeFailed`."""
        nonce = _nonce_bytes(self.nonce)
        if self.nonce >= MAX_NONCE:
            raise HandshakeFailed("The session has used up its counter", "Connect again")
        try:
            plain = self._ready().decrypt(nonce, sealed, associated)
        except (InvalidTag, ValueError) as error:
            raise HandshakeFailed("A record did not open: changed, lost, repeated or out of order") from error
        self.nonce += 1
        return plain

    def rekey(self) -> None:
        """`REKEY()` (4.2, 11.3): the key becomes a one-way function of itself; the counter runs on."""
        self._key = self._ready().encrypt(_nonce_bytes(MAX_NONCE), bytes(KEY_BYTES), b"")[:KEY_BYTES]
        self._cipher = None

    def rest(self) -> None:
        """Nothing is to be sealed or opened for a while: keep the key alone."""
        self._cipher = None

    def _ready(self) -> AESGCM:
        if self._cipher is None:
            self._cipher = AESGCM(self._key)
        return self._cipher

    def _next_nonce(self) -> bytes:
        if self.nonce >= MAX_NONCE:
            raise HandshakeFailed("The session has used up its counter", "Connect again")
        nonce = _nonce_bytes(self.nonce)
        self.nonce += 1
        return nonce


class Transport:
    """What a finished handshake leaves: a cipher for each direction, the handshake hash, the other end's static key."""

    __slots__ = ("h", "receiving", "remote_static", "sending")

    def __init__(self, sending: CipherState, receiving: CipherState, h: bytes, remote_static: bytes) -> None:
        self.sending = sending
        self.receiving = receiving
        self.h = h
        self.remote_static = remote_static


class Initiator:
    """The end that dials, and knows the other's static key beforehand: a worker."""

    def __init__(
        self, static: X25519PrivateKey, remote_static: bytes, prologue: bytes, entropy: Entropy = os.urandom
    ) -> None:
        self._static = static
        self._remote_static = remote_static
        self._ephemeral = _fresh_key(entropy)
        self._state = _SymmetricState()
        self._state.mix_hash(prologue)
        self._state.mix_hash(remote_static)  # pre-message: <- s

    def write_message_1(self, payload: bytes = b"") -> bytes:
        """-> e, es, s, ss."""
        state, ephemeral_public = self._state, public(self._ephemeral)
        state.mix_hash(ephemeral_public)
        state.mix_key(_exchange(self._ephemeral, self._remote_static))
        sealed_static = state.encrypt_and_hash(public(self._static))
        state.mix_key(_exchange(self._static, self._remote_static))
        return ephemeral_public + sealed_static + state.encrypt_and_hash(payload)

    def read_message_2(self, message: bytes) -> tuple[bytes, Transport]:
        """<- e, ee, se. Returns the payload and the transport; raises `HandshakeFailed`."""
        state = self._state
        if not MESSAGE_2_BYTES <= len(message) <= MAX_MESSAGE_BYTES:
            raise HandshakeFailed("The answer to the handshake has the wrong length")
        remote_ephemeral = message[:KEY_BYTES]
        state.mix_hash(remote_ephemeral)
        state.mix_key(_exchange(self._ephemeral, remote_ephemeral))
        state.mix_key(_exchange(self._static, remote_ephemeral))
        payload = state.decrypt_and_hash(message[KEY_BYTES:])
        to_responder, to_initiator = state.split()
        return payload, Transport(to_responder, to_initiator, state.h, self._remote_static)


class Responder:
    """The end that is dialled: the coordinator. Holds one static key, or two while they rotate (newest first)."""

    def __init__(self, statics: Sequence[X25519PrivateKey], prologue: bytes, entropy: Entropy = os.urandom) -> None:
        if not statics:
            raise ValueError("a responder needs a static key")
        self._statics = tuple(statics)
        self._prologue = prologue
        self._entropy = entropy
        self._state: _SymmetricState | None = None
        self._remote_ephemeral = b""
        self._remote_static = b""

    def read_message_1(self, message: bytes) -> tuple[bytes, bytes]:
        """-> e, es, s, ss. Returns (payload, the initiator's static key); raises `HandshakeFailed`."""
        if not MESSAGE_1_BYTES <= len(message) <= MAX_MESSAGE_BYTES:
            raise HandshakeFailed("The first message of the handshake has the wrong length")
        for static in self._statics[:-1]:
            try:
                return self._read_message_1(static, message)
            except HandshakeFailed:
                continue  # sealed to an older key, perhaps
        return self._read_message_1(self._statics[-1], message)

    def _read_message_1(self, static: X25519PrivateKey, message: bytes) -> tuple[bytes, bytes]:
        state = _SymmetricState()
        state.mix_hash(self._prologue)
        state.mix_hash(public(static))  # pre-message: <- s
        remote_ephemeral = message[:KEY_BYTES]
        state.mix_hash(remote_ephemeral)
        state.mix_key(_exchange(static, remote_ephemeral))
        remote_static = state.decrypt_and_hash(message[KEY_BYTES : 2 * KEY_BYTES + TAG_BYTES])
        state.mix_key(_exchange(static, remote_static))
        payload = state.decrypt_and_hash(message[2 * KEY_BYTES + TAG_BYTES :])
        self._state, self._remote_ephemeral, self._remote_static = state, remote_ephemeral, remote_static
        return payload, remote_static

    def write_message_2(self, payload: bytes = b"") -> tuple[bytes, Transport]:
        """<- e, ee, se. Returns the message and the transport; only after `read_message_1`."""
        state = self._state
        if state is None:
            raise ValueError("message 1 was not read yet")
        ephemeral = _fresh_key(self._entropy)
        ephemeral_public = public(ephemeral)
        state.mix_hash(ephemeral_public)
        state.mix_key(_exchange(ephemeral, self._remote_ephemeral))
        state.mix_key(_exchange(ephemeral, self._remote_static))
        message = ephemeral_public + state.encrypt_and_hash(payload)
        to_responder, to_initiator = state.split()
        return message, Transport(to_initiator, to_responder, state.h, self._remote_static)


class _SymmetricState:
    """Chaining key, handshake hash and, from the first `mix_key` on, a cipher (5.2)."""

    def __init__(self) -> None:
        self.h = PROTOCOL_NAME.ljust(32, b"\0")  # at most HASHLEN bytes: padded, not hashed
        self._chaining_key = self.h
        self._cipher: CipherState | None = None

    def mix_hash(self, data: bytes) -> None:
        self.h = hashlib.sha256(self.h + data).digest()

    def mix_key(self, secret: bytes) -> None:
        self._chaining_key, key = _hkdf(self._chaining_key, secret)
        self._cipher = CipherState(key)

    def encrypt_and_hash(self, plain: bytes) -> bytes:
        sealed = plain if self._cipher is None else self._cipher.encrypt(plain, self.h)
        self.mix_hash(sealed)
        return sealed

    def decrypt_and_hash(self, sealed: bytes) -> bytes:
        plain = sealed if self._cipher is None else self._cipher.decrypt(sealed, self.h)
        self.mix_hash(sealed)
        return plain

    def split(self) -> tuple[CipherState, CipherState]:
        """(initiator → responder, responder → initiator)."""
        first, second = _hkdf(self._chaining_key, b"")
        return CipherState(first), CipherState(second)


def _fresh_key(entropy: Entropy) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(entropy(KEY_BYTES))


def _exchange(private: X25519PrivateKey, remote_public: bytes) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(remote_public))
    except ValueError as error:  # a point of small order, or not 32 bytes
        raise HandshakeFailed("The other end offered a key that is none") from error


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    """HKDF with two outputs (4.3): RFC 5869's, without info, cut in two."""
    both = HKDF(_SHA256, 2 * KEY_BYTES, chaining_key, b"").derive(material)
    return both[:KEY_BYTES], both[KEY_BYTES:]


def _nonce_bytes(nonce: int) -> bytes:
    """AESGCM (12.4): 32 zero bits, then the counter, big-endian."""
    return b"\0\0\0\0" + nonce.to_bytes(8, "big")
