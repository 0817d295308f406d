"""A channel of the interface of `moregpu.wire.session.Channel` that seals nothing: most histories need no ciphers.

The handshake hash is as unique, both ends agree on it and on each other's key, and messages travel encoded as ever;
what Noise itself promises is tested at the wire, and by the histories that use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from blake3 import blake3

from moregpu.wire.messages import MAX_RECORD_BYTES, FromCoordinator, FromWorker
from moregpu.wire.session import ConnectionBroken
from moregpu.wire.text import clean_message

_ENCODER = msgspec.msgpack.Encoder()
_FROM_WORKER = msgspec.msgpack.Decoder(FromWorker)
_FROM_COORDINATOR = msgspec.msgpack.Decoder(FromCoordinator)


class PlainChannel:
    """One connection's session without ciphers."""

    def __init__(self, static: bytes, entropy: Callable[[int], bytes], *, initiator: bool) -> None:
        self.established = False
        self.dead = False
        self.h = b""
        self.remote_static = b""
        self._static = static
        self._initiator = initiator
        self._entropy = entropy
        self._first = b""
        self._reply: bytes | None = None
        self._decoder = _FROM_COORDINATOR if initiator else _FROM_WORKER
        self._control: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()

    def start(self) -> bytes:
        self._first = self._static + self._entropy(32)
        return self._first

    def receive(self, data: bytes) -> list[Any]:
        if self.dead:
            raise ConnectionBroken("The session has ended", "Connect again")
        if self.established:
            return [clean_message(self._decoder.decode(data))]
        self.remote_static = data[:32]
        if self._initiator:
            self.h = blake3(self._first + data).digest()
        else:
            self._reply = self._static + self._entropy(32)
            self.h = blake3(data + self._reply).digest()
        self.established = True
        return []

    def send(self, message: Any, bulk: bool = False) -> None:
        plain = _ENCODER.encode(message)
        if len(plain) > MAX_RECORD_BYTES:
            raise ValueError(f"{type(message).__name__} takes {len(plain)} bytes")
        if not self.dead:
            (self._bulk if bulk else self._control).append(plain)

    def next_record(self) -> bytes | None:
        if self._reply is not None:
            reply, self._reply = self._reply, None
            return reply
        queue = self._control or self._bulk
        return None if self.dead or not self.established or not queue else queue.popleft()

    def rest(self) -> None:
        pass

    @property
    def waiting(self) -> int:
        return len(self._control) + len(self._bulk)

    def close(self) -> None:
        self.dead = True
        self._reply = None
        self._control.clear()
        self._bulk.clear()
