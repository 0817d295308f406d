"""One worker's socket: a reader that opens what comes, a writer that seals at the moment of writing.

Where the socket has room, all that was said in one turn of the loop is written at its end, without a task; one lives
only while there is more to say than goes out. (Ten thousand workers are mostly silent, and a task that waits takes as
much memory as all else that a connection keeps here.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from moregpu.coordinator.protocol import PromptSocket, WorkerSocket
from moregpu.errors import HandshakeFailed
from moregpu.wire.messages import FromCoordinator, FromWorker
from moregpu.wire.session import Channel

log = logging.getLogger(__name__)

MAX_WAITING = 4_096
"""Messages that a worker has not read yet; one that falls behind further is cut off (64 leases make few messages)."""

PATIENCE_S = 0.01
"""What nobody waits for (an acknowledgement) lies here so long: most often something is said meanwhile, and both travel
as one write and wake the other end once."""

LAST_WORDS_S = 5.0
"""A closing connection may take this long to read what is still to be said to it."""


class Connection:
    """Runs a channel over a socket until either end closes or breaks it."""

    __slots__ = ("_cut", "_ending", "_later", "_prompt", "_reader", "_receive", "_socket", "_soon", "_writer",
                 "channel", "peer")  # fmt: skip

    def __init__(
        self,
        socket: WorkerSocket,
        channel: Channel[FromWorker],
        receive: Callable[[FromWorker], Awaitable[None]],
    ) -> None:
        self.peer = socket.peer
        self.channel = channel
        self._socket = socket
        self._prompt = socket if isinstance(socket, PromptSocket) else None
        self._soon = False
        self._receive = receive
        self._reader: asyncio.Task[object] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._ending: tuple[int, str] | None = None
        self._cut = False

    async def run(self) -> None:
        """Serve to the end. Returns however it ends; only cancellation is passed on."""
        self._reader = reader = asyncio.current_task()
        try:
            await self._read()
            self._reader = None
            if self._soon and self._prompt is not None:
                self._say(self._prompt)
            if self._ending is not None and self._writer is not None:
                await asyncio.wait({self._writer}, timeout=LAST_WORDS_S)
        except asyncio.CancelledError:
            # By `abort`, which is nobody else's matter; unless somebody else wants this task to end as well.
            if not self._cut or reader is None or reader.uncancel() > 0:
                raise
        except Exception:
            log.exception("a connection failed", extra={"peer": self.peer})
        finally:
            self._reader = None
            self.channel.close()
            self._hurry()
            if self._writer is not None:
                self._writer.cancel()
            code, reason = self._ending or (1000, "")
            try:
                await self._socket.close(code, reason)
            except (ConnectionError, OSError, RuntimeError):
                pass  # it is gone already, and that is what was wanted

    def send(self, message: FromCoordinator, *, may_wait: bool = False) -> None:
        """Queue a message; nothing happens on a connection that has ended. `may_wait`: for `PATIENCE_S`, for others."""
        if self.channel.waiting >= MAX_WAITING:
            self.end(1008, "too far behind")
            return
        self.channel.send(message)
        if not may_wait:
            self._speak()
        elif self._later is None and self._writer is None and not self._soon:
            self._later = asyncio.get_running_loop().call_later(PATIENCE_S, self._speak)

    def end(self, code: int, reason: str) -> None:
        """Close after what is queued was written (within `LAST_WORDS_S`)."""
        if self._ending is None:
            self._ending = (code, reason)
            self._speak()
            asyncio.get_running_loop().call_later(LAST_WORDS_S, self.abort)

    def abort(self) -> None:
        """Close now."""
        if self._reader is not None and not self._cut:
            self._cut = True
            self._reader.cancel()

    async def _read(self) -> None:
        try:
            while self._ending is None:
                data = await self._socket.receive()
                if data is None:
                    return
                messages = self.channel.receive(data)
                if self._later is not None or not messages:
                    self._speak()  # what could wait has waited; or the handshake's reply is to be sealed
                del data  # nothing of it is held on to: the next may be long in coming
                while messages:
                    await self._receive(messages.pop(0))
        except HandshakeFailed as error:
            log.info("connection refused", extra={"peer": self.peer, "reason": error.detail})
            self._ending = self._ending or (1008, error.code)
        except ConnectionError:
            return

    def _hurry(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _speak(self) -> None:
        self._hurry()
        if self._writer is not None or self._soon:
            return
        if self._prompt is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())
        else:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._say, self._prompt)

    def _say(self, socket: PromptSocket) -> None:
        """Say all that waits, at once; what does not go out is a task's."""
        self._soon = False
        try:
            while socket.has_room:
                record = self.channel.next_record()
                if record is None:
                    socket.flush()
                    if self._ending is not None:
                        self.abort()
                    return
                socket.put(record)
        except Exception:
            log.exception("a connection failed", extra={"peer": self.peer})
            self.abort()
        else:
            socket.flush()
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Say all that waits; then, where this was the end, let the reader go."""
        try:
            while (record := self.channel.next_record()) is not None:
                await self._socket.send(record)
            if self._ending is not None:
                self.abort()
        except ConnectionError:
            self.abort()
        except Exception:
            log.exception("a connection failed", extra={"peer": self.peer})
            self.abort()
        finally:
            self._writer = None
