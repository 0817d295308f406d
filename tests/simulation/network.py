"""A network of message pipes on virtual time: delays, one-way cuts, partitions, closes, lost tails.

WebSocket over TLS delivers in order or breaks, so a pipe delays, stalls or breaks; it never reorders or corrupts
(what a middleman can do to bytes is tested at the wire). What was sent before a break may or may not have arrived.
Nothing here belongs to a process: what is under way arrives though its sender died.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable

from tests.simulation.loop import SimulatedLoop

_NOBODY = contextvars.Context()


class Pipe:
    """One direction of a connection."""

    def __init__(self, loop: SimulatedLoop, random_: random.Random, delay_s: float) -> None:
        self.loop = loop
        self.random = random_
        self.delay_s = delay_s
        self.arrive: Callable[[bytes], None] = lambda data: None
        self.ended: Callable[[], None] = lambda: None
        self.over = False
        """Nothing arrives any more."""
        self.closing = False
        self.stalled_until = 0.0
        self._last = 0.0
        self._held: deque[bytes | None] = deque()

    def send(self, data: bytes) -> None:
        if self.over or self.closing:
            raise ConnectionResetError("the connection is gone")
        self._queue(data)

    def close(self) -> None:
        """A clean close arrives behind what is on its way."""
        if not (self.over or self.closing):
            self.closing = True
            self._queue(None)

    def sever(self) -> None:
        """Reset: what has not arrived never will."""
        if not self.over:
            self.over = True
            self._held.clear()
            self.loop.call_soon(self.ended, context=_NOBODY.copy())

    def _queue(self, data: bytes | None) -> None:
        self._held.append(data)
        self._last = max(self.loop.now + self.random.uniform(0.2, 1.8) * self.delay_s, self._last)
        self.loop.call_at(self._last, self._next, context=_NOBODY.copy())

    def _next(self) -> None:
        if self.over or not self._held:
            return
        if self.stalled_until > self.loop.now:
            self.loop.call_at(self.stalled_until, self._next, context=_NOBODY.copy())
            return
        data = self._held.popleft()
        if data is None:
            self.over = True
            self.ended()
        else:
            self.arrive(data)


class Socket:
    """The coordinator's end: whole messages, awaited (`WorkerSocket`)."""

    def __init__(self, connection: Connection) -> None:
        self.peer = ""
        self._connection = connection
        self._inbox: deque[bytes | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        connection.up.arrive = self._put
        connection.up.ended = lambda: self._put(None)

    async def receive(self) -> bytes | None:
        while not self._inbox:
            self._waiter = self._connection.loop.create_future()
            await self._waiter
        return self._inbox.popleft() if self._inbox[0] is not None else None

    async def send(self, data: bytes) -> None:
        self._connection.down.send(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self._connection.down.close()
        self._connection.up.close()

    def _put(self, data: bytes | None) -> None:
        self._inbox.append(data)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Connection:
    """Two pipes between an agent and a coordinator, and the faults that hit them."""

    def __init__(self, loop: SimulatedLoop, random_: random.Random, delay_s: float) -> None:
        self.loop = loop
        self.up = Pipe(loop, random_, delay_s)
        self.down = Pipe(loop, random_, delay_s)
        self.socket = Socket(self)

    @property
    def over(self) -> bool:
        return self.up.over or self.down.over

    def close(self) -> None:
        """The agent closes it."""
        self.up.close()
        self.down.close()

    def sever(self) -> None:
        """Both ends see a reset at once."""
        self.up.sever()
        self.down.sever()

    def stall(self, until: float, *, up: bool = True, down: bool = True) -> None:
        """A cable pulled: silence, no close; what was sent arrives when it is back."""
        if up:
            self.up.stalled_until = max(self.up.stalled_until, until)
        if down:
            self.down.stalled_until = max(self.down.stalled_until, until)
