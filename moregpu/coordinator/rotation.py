"""Rotating the pool's session key: announce the next one, then let go of the old one.

While both hold, workers may come with either. `Welcome` carries the next key signed by `ci`; a session lives at most a
day, so every worker that is about learns it within a day.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from moregpu.errors import Conflict
from moregpu.wire.api import RotateRequest, RotateView
from moregpu.wire.identity import PoolKeys

log = logging.getLogger(__name__)


class Rotation:
    """Changes a pool's keys where they are used, once they are kept."""

    def __init__(self, keys: PoolKeys, save: Callable[[PoolKeys], None]):
        """`save` writes the keys durably, before they count."""
        self._keys = keys
        self._save = save

    @property
    def rotating(self) -> bool:
        """Whether a next key is announced."""
        return self._keys.next_cs is not None

    def view(self) -> RotateView:
        """Where it stands."""
        keys = self._keys
        return RotateView(
            rotating=self.rotating, session_key=keys.cs_pub.hex(), next_session_key=keys.next_cs_pub.hex()
        )

    def step(self, wanted: RotateRequest) -> RotateView:
        """Take one step (blocking: it writes a file). Raises `Conflict` for a step that does not fit."""
        keys = self._keys
        if wanted.action == "begin":
            if keys.ci is None:
                raise Conflict("the pool's signing key is not on this machine", "rotate where it is")
            if keys.next_cs is not None:
                raise Conflict("a rotation is under way", "moregpu pool rotate finish, or cancel")
            self._take(keys.cs, X25519PrivateKey.generate())
        elif keys.next_cs is None:
            raise Conflict("no rotation is under way", "begin one: moregpu pool rotate begin")
        elif wanted.action == "finish":
            self._take(keys.next_cs, None)
        else:
            self._take(keys.cs, None)
        log.info("the session key's rotation went on", extra={"action": wanted.action})
        return self.view()

    def _take(self, cs: X25519PrivateKey, next_cs: X25519PrivateKey | None) -> None:
        keys = self._keys
        self._save(PoolKeys(cs, keys.ci, ci_pub=keys.ci_pub, next_cs=next_cs))
        keys.replace_sessions(cs, next_cs)
