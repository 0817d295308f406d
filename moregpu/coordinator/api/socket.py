"""A WebSocket as the routes see it, refused by a plain HTTP answer where it may not open; and the workers' door."""

from __future__ import annotations

from starlette.types import Message, Receive, Scope, Send

from moregpu.coordinator.api.ask import Asked
from moregpu.coordinator.api.problems import PROBLEM_JSON, encoded, problem, problem_headers
from moregpu.coordinator.api.services import Services
from moregpu.coordinator.protocol import WORDS, Words
from moregpu.errors import MoreGPUError, VersionMismatch
from moregpu.wire.messages import SUBPROTOCOL

_GONE = "the other end of the WebSocket is gone"


class SocketAsk(Asked):
    """A WebSocket from its opening request on."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, services: Services):
        super().__init__(scope, services)
        self.answered = False
        """Whether it was accepted or refused."""
        self._receive = receive
        self._send = send

    async def accept(self, subprotocol: str | None = None) -> None:
        """Open it."""
        self.answered = True
        await self._send({"type": "websocket.accept", "subprotocol": subprotocol, "headers": []})

    async def refuse(self, error: MoreGPUError) -> None:
        """Answer the opening request with a problem document instead."""
        self.answered = True
        body = encoded(problem(error))
        headers = [
            (b"content-type", PROBLEM_JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            *problem_headers(error),
        ]
        if isinstance(error, VersionMismatch):
            headers.append((b"upgrade", b"websocket"))
        await self._send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
        await self._send({"type": "websocket.http.response.body", "body": body, "more_body": False})

    @property
    def words(self) -> Words:
        """What tells and takes its messages right away. Once it is listened to, `receive` tells of the end alone."""
        return self.scope["extensions"][WORDS]

    async def receive(self) -> Message:
        """The next message of the server: `websocket.receive` or `websocket.disconnect`."""
        while True:
            message = await self._receive()
            if message["type"] != "websocket.connect":
                return message

    async def gone(self) -> None:
        """Return when the other end closed; what it sends meanwhile is dropped."""
        while (await self.receive())["type"] != "websocket.disconnect":
            pass

    async def send_text(self, text: str) -> None:
        """Send a text; raises `ConnectionError` when the socket is gone."""
        await self._sent({"type": "websocket.send", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes; raises `ConnectionError` when the socket is gone."""
        await self._sent({"type": "websocket.send", "bytes": data})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it; closing what is closed does nothing."""
        try:
            await self._sent({"type": "websocket.close", "code": code, "reason": reason[:100]})
        except ConnectionError:
            pass

    async def _sent(self, message: Message) -> None:
        try:
            await self._send(message)
        except ConnectionError:
            raise
        except (OSError, RuntimeError) as error:  # how the server says that the socket is closed
            raise ConnectionError(_GONE) from error


async def worker(ask: SocketAsk) -> None:
    """Open a worker's session: Noise inside decides who it is. No common version: 426, saying which side to update.

    Nearly all are opened at the threshold (`workers_door`); here come those whose request it does not take.
    """
    offered = [str(name) for name in ask.scope.get("subprotocols", [])]
    if SUBPROTOCOL not in offered:
        raise _no_common_version(offered)
    await ask.accept(SUBPROTOCOL)
    await ask.services.desk.serve_worker(_WorkerLink(ask))


class _WorkerLink:
    """The hub's `WorkerSocket` over an ASGI WebSocket."""

    def __init__(self, ask: SocketAsk):
        self.peer = ask.peer
        self._ask = ask

    async def receive(self) -> bytes | None:
        """The next binary message; None when the other end closed, or sent text, which nobody does."""
        message = await self._ask.receive()
        if message["type"] != "websocket.receive":
            return None
        data = message.get("bytes")
        if data is None:
            await self._ask.close(1003, "binary messages only")
        return data

    async def send(self, data: bytes) -> None:
        """Write one message."""
        await self._ask.send_bytes(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close it."""
        await self._ask.close(code, reason)


def _no_common_version(offered: list[str]) -> VersionMismatch:
    ours = int(SUBPROTOCOL.rpartition(".")[2])
    versions = [
        int(tail)
        for head, _, tail in (name.rpartition(".") for name in offered)
        if head == "moregpu" and tail.isdecimal()
    ]
    if versions and min(versions) > ours:
        hint = "update the coordinator: the worker is newer"
    elif versions:
        hint = "update MoreGPU on the worker: it is older than this coordinator"
    else:
        hint = "connect with `moregpu join`"
    said = ", ".join(name[:20] for name in offered[:4]) or "nothing"
    return VersionMismatch(f"this coordinator speaks {SUBPROTOCOL}, the other end offers {said}", hint)
