"""Settings of the engine room, and the limits that keep a stranger from using up its memory or its time."""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import msgspec
from msgspec import Meta

from moregpu.coordinator.quotas import Quotas

MAX_LINKS_UNCONFIRMED = 64
"""Connections that have not yet proven who they are."""

MAX_JUDGING = 256
"""Results of one worker that wait for their check; beyond that it gets no new work. Several times a full queue (64): a
worker must not wait for the disk between one batch and the next."""

OFFLOAD_BYTES = 64 * 1024
"""Checks over more bytes than this leave the event loop; below, a thread hop costs a tiny job 20 % more CPU."""

OFFLOAD_FLOPS = 2e6
"""Checks of more operations leave the loop too: about 0.2 ms of NumPy on one slow core."""

MAX_MEMORY_CLAIM = 1 << 40
MAX_CORES_CLAIM = 4096
"""What a worker says about itself is capped: placement must not believe in a petabyte."""


class DeskConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine room behaves. The defaults are those of the design; tests shorten some."""

    pool_name: str = "pool"
    leaves: tuple[bytes, ...] = ()
    """SHA-256 of the TLS leaves that this coordinator shows: told to workers, and compared with what they saw."""
    heartbeat_s: Annotated[float, Meta(gt=0)] = 15.0
    handshake_s: Annotated[float, Meta(gt=0)] = 10.0
    """A connection must have proven who it is by then."""
    silence_s: Annotated[float, Meta(gt=0)] = 60.0
    """No message for so long, or for so long past the next one that was agreed on: the connection is closed; leases
    keep their full time."""
    idle_beats: Annotated[float, Meta(gt=0)] = 40.0
    """Heartbeats a second of all idle workers together, once there are many: each beats the less often for it."""
    idle_most_s: Annotated[float, Meta(gt=0)] = 120.0
    """No idle worker is silent for longer. (One that is gone without a word is found by then, or when it gets work.)"""
    grace_s: Annotated[float, Meta(ge=0)] = 0.5
    """After a closed socket, leases wait this long for the same process to come back."""
    session_s: Annotated[float, Meta(gt=0)] = 86_400.0
    tick_s: Annotated[float, Meta(gt=0)] = 0.25
    """Period of the timer that reaps leases and notices that the loop lagged."""
    lag_s: Annotated[float, Meta(gt=0)] = 1.0
    """The loop came late by more than this: all leases get their full time again."""
    stats_s: Annotated[float, Meta(gt=0)] = 1.0
    drain_s: Annotated[float, Meta(ge=0)] = 5.0
    """How long `stop` waits for checks that are under way."""
    measure: bool = True
    """Whether new workers get a canary and a speed measurement before work."""
    measure_s: Annotated[float, Meta(gt=0)] = 0.5
    """Aim for one speed measurement."""
    canary_s: Annotated[float, Meta(gt=0)] = 3600.0
    """How often each worker gets a canary while it works."""
    quotas: Quotas = Quotas()
    wrong_invites_a_minute: Annotated[int, Meta(ge=1)] = 10
    """Per invite id and, where the address is real, per address; ten times as many for the whole pool."""


class RateLimit:
    """So many events a minute for each key, with a bounded memory of keys."""

    def __init__(self, a_minute: int, keys: int = 10_000) -> None:
        self._a_minute = a_minute
        self._keys = keys
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def blocked(self, key: str, now: float) -> bool:
        """Whether the key has used up what it may."""
        return self._level(key, now) + 1.0 > self._a_minute

    def count(self, key: str, now: float) -> None:
        """Note one event of the key."""
        self._spent[key] = (self._level(key, now) + 1.0, now)
        self._spent.move_to_end(key)
        while len(self._spent) > self._keys:
            self._spent.popitem(last=False)

    def _level(self, key: str, now: float) -> float:
        level, at = self._spent.get(key, (0.0, now))
        return max(0.0, level - (now - at) * self._a_minute / 60.0)
