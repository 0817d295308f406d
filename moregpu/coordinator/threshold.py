"""The first word on a connection: a worker that opens its session is let in right here, anybody else meets the server.

After a restart thousands of workers come at once, each with the same short request. By the server, its framework and a
route it cost a fifth of all that a return takes (1.2 of 6.7 ms on a busy machine; 0.17 so). Only what is exactly a
worker's request is answered here: whatever differs is the server's, and so is every refusal.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from moregpu.coordinator.handover import TakenSocket, served

if TYPE_CHECKING:
    from moregpu.coordinator.listen import Doorway

MAX_HEAD_BYTES = 64 * 1024
WS_MAX_BYTES = 65_535
_END = b"\r\n\r\n"


class Granted(NamedTuple):
    """A worker's request that is granted."""

    answer: bytes
    """What opens the WebSocket."""
    peer: str
    """The other end, for rate limits and logs."""


class WorkerDoor(Protocol):
    """What decides about workers' opening requests, and serves those that it grants."""

    line: bytes
    """How such a request begins."""

    async def serve(self, socket: TakenSocket, /) -> None:
        """Serve one that was granted, to its end."""
        ...

    def admit(self, head: bytes, client: str) -> Granted | None:
        """Judge a head without its empty line, from the address `client`; None: it is the server's to answer."""
        ...


class FirstWord(asyncio.Protocol):
    """A connection until its first request is known."""

    __slots__ = ("_came", "_door", "_doorway", "_timer", "_transport", "_until")

    def __init__(self, doorway: Doorway, door: WorkerDoor) -> None:
        self._doorway = doorway
        self._door = door
        self._came = b""
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._transport = cast("asyncio.Transport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a head, not for ever."""
        self._transport = cast("asyncio.Transport", transport)
        self._doorway.server_state.connections.add(cast("Any", self))
        self._doorway.fell_idle(self)
        self._until = self._doorway.head_until()
        self._timer = self._doorway.when_late(self.let_go, self._until)

    def data_received(self, data: bytes) -> None:
        """Wait for the end of what may be a worker's head; the rest is for whom the request is for."""
        came = self._came + data
        if came.startswith(self._door.line):
            end = came.find(_END)
            if end < 0 and len(came) <= MAX_HEAD_BYTES:
                self._came = came
                return
            peername = self._transport.get_extra_info("peername")
            client = str(peername[0]) if isinstance(peername, tuple) and peername else ""
            granted = self._door.admit(came[:end], client) if end >= 0 else None
            if granted is not None:
                self._let_in(granted, came[end + len(_END) :])
                return
        self._leave()
        server = self._doorway.server(self._until)
        self._transport.set_protocol(server)
        server.connection_made(self._transport)
        server.data_received(came)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over before anything was asked."""
        self._leave()

    def let_go(self) -> None:
        """Make room for another connection, or for nobody: it said nothing in time."""
        self._leave()
        self._transport.abort()

    def shutdown(self) -> None:
        """The server stops (uvicorn calls this for every connection)."""
        self._transport.close()

    def _let_in(self, granted: Granted, rest: bytes) -> None:
        self._leave()
        transport, state = self._transport, self._doorway.server_state
        transport.write(granted.answer)
        socket = TakenSocket(granted.peer, transport, state.connections, WS_MAX_BYTES)
        transport.set_protocol(socket)
        state.connections.add(cast("Any", socket))
        task = asyncio.get_running_loop().create_task(served(socket, self._door.serve))
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)
        if rest:
            socket.data_received(rest)

    def _leave(self) -> None:
        self._doorway.server_state.connections.discard(cast("Any", self))
        self._doorway.busy(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
