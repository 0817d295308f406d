"""One connection to the coordinator: WebSocket, TLS, Noise. Carries messages; decides nothing.

A message is heard in the very turn of the loop in which its bytes came, and one that is sent is written in that turn:
tasks, queues and futures in between would cost a tiny task more than its sealing does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidStatus,
    NegotiationError,
)
from websockets.frames import Frame, Opcode
from websockets.protocol import Event, State
from websockets.typing import Subprotocol

from moregpu.errors import HandshakeFailed, MoreGPUError, Unavailable, Unreachable, VersionMismatch
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.messages import SUBPROTOCOL, FromCoordinator, FromWorker, Result
from moregpu.wire.noise import MAX_MESSAGE_BYTES
from moregpu.wire.session import Channel
from moregpu.wire.tls import advisory_context, connection_error, leaf_pin

OPEN_S = 10.0
CLOSE_S = 1.0


_DATA = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)


class _Socket(ClientConnection):
    """A WebSocket whose messages are told to `hear` once that is set; until then they wait for `recv`, as usual."""

    hear: Callable[[bytes | str], None] | None = None
    room: Callable[[], None] | None = None
    """Called when there is room again for what is to be written."""

    def process_event(self, event: Event) -> None:
        """Take one frame."""
        if self.hear is None or not isinstance(event, Frame) or event.opcode not in _DATA:
            super().process_event(event)
        elif event.opcode is Opcode.BINARY and event.fin:
            self.hear(bytes(event.data))
        else:
            self._gather(event, self.hear)

    def _gather(self, frame: Frame, hear: Callable[[bytes | str], None]) -> None:
        """What stands between may have cut a message; the protocol has seen to their order and their size."""
        if frame.opcode is not Opcode.CONT:
            self._opcode, self._pieces = frame.opcode, bytearray()
        self._pieces += frame.data
        if frame.fin:
            hear("" if self._opcode is Opcode.TEXT else bytes(self._pieces))

    def resume_writing(self) -> None:
        """Most of what was written is on its way."""
        super().resume_writing()
        if self.room is not None:
            self.room()


class Link:
    """An open connection whose Noise handshake has passed. Make it by `Link.open`."""

    def __init__(self, socket: _Socket, channel: Channel[FromCoordinator], leaf: bytes):
        self.h = channel.h
        """Handshake hash."""
        self.leaf = leaf
        """SHA-256 of the TLS leaf that was seen."""
        self._socket = socket
        self._channel = channel
        self._is_over = False

    @classmethod
    async def open(cls, address: str, keys: WorkerKeys, cs_pub: bytes, pool_id: bytes) -> Link:
        """Connect to "host:port" and prove that the pool is there. No secret of the worker leaves before.

        Raises:
            Unreachable: nobody answers, or no coordinator. `Unavailable`: it has no time now.
            VersionMismatch: no common version of the protocol.
            HandshakeFailed: somebody answers who does not hold the pool's key.
        """
        try:
            socket = await connect(
                f"wss://{address}/v1/worker",
                ssl=advisory_context(),
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                max_size=MAX_MESSAGE_BYTES,
                max_queue=64,
                ping_interval=None,
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                create_connection=_Socket,
                user_agent_header=None,
                proxy=None,
            )
        except InvalidStatus as error:
            raise _refused(address, error.response.status_code) from error
        except NegotiationError as error:
            raise _other_version(address) from error
        except (InvalidHandshake, ConnectionClosed, EOFError) as error:
            raise Unreachable(f"{address} is no coordinator of MoreGPU ({error})") from error
        except OSError as error:
            raise connection_error(address, error) from error
        try:
            return await cls._shake_hands(address, cast("_Socket", socket), keys, cs_pub, pool_id)
        except BaseException:
            socket.transport.abort()
            raise

    @classmethod
    async def _shake_hands(cls, address: str, socket: _Socket, keys: WorkerKeys, cs_pub: bytes, pool_id: bytes) -> Link:
        if socket.subprotocol != SUBPROTOCOL:
            raise _other_version(address)
        channel = Channel.initiator(keys.ws, cs_pub, pool_id)
        try:
            async with asyncio.timeout(OPEN_S):
                await socket.send(channel.start())
                channel.receive(_binary(await socket.recv()))
        except TimeoutError as error:
            raise Unreachable(f"{address} does not answer the handshake") from error
        except (ConnectionClosed, OSError) as error:
            if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code in (1012, 1013):
                raise Unavailable(f"{address} has no time for a new worker now", "It is tried again") from error
            raise HandshakeFailed(
                f"{address} could not prove that it is this pool",
                "Somebody else may listen there, or its key was changed: ask its admin for a new invite; moregpu join "
                "--invite-file FILE takes it",
            ) from error
        secure = socket.transport.get_extra_info("ssl_object")
        der = secure.getpeercert(binary_form=True) if secure is not None else None
        return cls(socket, channel, leaf_pin(der) if der else b"")

    def listen(self, hear: Callable[[bytes | str], None], room: Callable[[], None]) -> None:
        """From now on `hear` is told each record (give it to `opened`), and `room` when the link is not full any more.

        Neither may raise.
        """

        def has_room() -> None:
            self._pump()
            room()

        self._socket.hear, self._socket.room = hear, has_room

    def opened(self, record: bytes | str) -> list[FromCoordinator]:
        """What the coordinator says in a record; raises `HandshakeFailed` for one that does not open."""
        return self._channel.receive(_binary(record))

    @property
    def is_full(self) -> bool:
        """Whether what was written has not gone out yet: nothing more should be sent before `room` is called."""
        return self._socket.paused

    def send(self, messages: list[FromWorker]) -> None:
        """Seal and write. What there is no room for is sealed when there is."""
        for message in messages:
            self._channel.send(message, bulk=isinstance(message, Result))
        self._pump()

    def _pump(self) -> None:
        socket = self._socket
        if socket.protocol.state is not State.OPEN:
            self._let_end()
            return
        while not socket.paused and (record := self._channel.next_record()) is not None:
            socket.protocol.send_binary(record)
            socket.transport.write(b"".join(socket.protocol.data_to_send()))

    def _let_end(self) -> None:
        """The other end has said goodbye: it closes within a moment, or is cut off."""
        if not self._is_over:
            self._is_over = True
            asyncio.get_running_loop().call_later(CLOSE_S, self._socket.transport.abort)

    async def closed(self) -> None:
        """Wait for the end of the connection; raises `Unreachable` unless it was closed as it should be."""
        await self._socket.wait_closed()
        error = self._socket.protocol.close_exc
        if not isinstance(error, ConnectionClosedOK):
            raise Unreachable(f"the connection broke ({error})") from error

    async def close(self) -> None:
        """Close it; waits a second at most for the other end's farewell."""
        self._channel.close()
        await self._socket.close()


def _binary(data: str | bytes) -> bytes:
    if isinstance(data, str):
        raise HandshakeFailed("The coordinator sent text where records are expected")
    return data


def _refused(address: str, status: int) -> MoreGPUError:
    if status == VersionMismatch.status:
        return _other_version(address)
    if status in (429, 503):
        return Unavailable(f"{address} has no time for a new worker now", "It is tried again")
    return Unreachable(f"{address} answers, but not as a coordinator of MoreGPU (HTTP {status})", "Is the port right?")


def _other_version(address: str) -> VersionMismatch:
    return VersionMismatch(f"{address} does not speak {SUBPROTOCOL}", "Update MoreGPU on the older of the two machines")
