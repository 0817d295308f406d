"""Rows at rest: what carries keys is sealed under the pool's wrap key before it touches the disk.

Each start of the process derives a key of its own (BLAKE3 keyed with the wrap key, over 16 random bytes) and counts
nonces under it, so no nonce repeats however many rows a pool writes in its life. A sealed text is
16 bytes of salt ‖ 8 bytes of counter ‖ AES-256-GCM, bound to its place ("job.body", id).
"""

from __future__ import annotations

from collections.abc import Callable

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from moregpu.errors import StateRefused

SALT_BYTES = 16
COUNTER_BYTES = 8
MAX_CIPHERS = 64


class RowSealer:
    """Seals and opens texts by their place; used by one thread at a time for sealing, by any for opening."""

    def __init__(self, wrap_key: bytes, entropy: Callable[[int], bytes]):
        if len(wrap_key) != 32:
            raise ValueError(f"a wrap key has 32 bytes, not {len(wrap_key)}")
        self._wrap_key = wrap_key
        self._salt = entropy(SALT_BYTES)
        self._counter = 0
        self._own = self._cipher_under(self._salt)
        self._ciphers: dict[bytes, AESGCM] = {self._salt: self._own}

    def seal(self, place: str, id: str, text: bytes) -> bytes:
        """Seal a text for one place."""
        self._counter += 1
        counter = self._counter.to_bytes(COUNTER_BYTES, "big")
        return self._salt + counter + self._own.encrypt(_nonce(counter), text, _bound(place, id))

    def open(self, place: str, id: str, sealed: bytes) -> bytes:
        """Open a text; raises `StateRefused` when it is damaged, exchanged, or sealed under another wrap key."""
        salt, counter = sealed[:SALT_BYTES], sealed[SALT_BYTES : SALT_BYTES + COUNTER_BYTES]
        cipher = self._ciphers.get(salt)
        if cipher is None:
            if len(self._ciphers) >= MAX_CIPHERS:
                self._ciphers = {self._salt: self._own}
            cipher = self._ciphers[salt] = self._cipher_under(salt)
        try:
            return cipher.decrypt(_nonce(counter), sealed[SALT_BYTES + COUNTER_BYTES :], _bound(place, id))
        except (InvalidTag, ValueError) as error:
            raise StateRefused(
                f"the pool's database cannot be opened: {place} of {id} is damaged or sealed under another key",
                "put back the state folder's own key, or restore database and key from the same backup",
            ) from error

    def _cipher_under(self, salt: bytes) -> AESGCM:
        return AESGCM(blake3(b"moregpu rows at rest" + salt, key=self._wrap_key).digest())


def _nonce(counter: bytes) -> bytes:
    return counter.rjust(12, b"\0")


def _bound(place: str, id: str) -> bytes:
    return f"{place}\0{id}".encode()
