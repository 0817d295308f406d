"""What is pure and dear is computed once: the same answers, sooner. Nothing here decides anything.

An Ed25519 signature that a key of this very history made is known to be good for that key and message; every other one
goes to libsodium. A block of benchmark data depends on its name, seed and place alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from nacl.signing import SigningKey, VerifyKey

from moregpu.wire import identity
from moregpu.workloads.kernel import data

_BLOCKS = 64  # of 256 kB

_made: set[tuple[bytes, bytes, bytes]] = set()
"""(public key, message, signature) of what was signed in this history."""


class Signer(SigningKey):
    """A signing key whose signatures are remembered."""

    def sign(self, message: bytes, *arguments: Any) -> Any:
        signed = super().sign(message, *arguments)
        _made.add((bytes(self.verify_key), message, signed.signature))
        return signed


class Verifier:
    """`nacl.signing.VerifyKey` that knows what was signed here."""

    def __init__(self, pub: bytes) -> None:
        self._pub = pub

    def verify(self, message: bytes, signature: bytes) -> None:
        if (self._pub, message, signature) not in _made:
            VerifyKey(self._pub).verify(message, signature)


def forget() -> None:
    """Another history begins."""
    _made.clear()


PLACES: tuple[tuple[Any, str, Any], ...] = (
    (identity, "VerifyKey", Verifier),
    (identity, "refuse_weak_key", lru_cache(maxsize=256)(identity.refuse_weak_key)),
    (data, "_block", lru_cache(maxsize=_BLOCKS)(data._block)),
)
"""Module, name, and what stands there while histories run."""
