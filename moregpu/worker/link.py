"""One connection to the coordinator: WebSocket, TLS, Noise. Carries messages; decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    NegotiationError,
    WebSocketException,
)
from websockets.typing import Subprotocol

from moregpu.errors import HandshakeFailed, MoreGPUError, Unavailable, Unreachable, VersionMismatch
from moregpu.wire.identity import WorkerKeys
from moregpu.wire.messages import SUBPROTOCOL, FromCoordinator, FromWorker, Result
from moregpu.wire.noise import MAX_MESSAGE_BYTES
from moregpu.wire.session import Channel
from moregpu.wire.tls import advisory_context, connection_error, leaf_pin

OPEN_S = 10.0
CLOSE_S = 1.0


class Link:
    """An open connection whose Noise handshake has passed. Make it by `Link.open`."""

    def __init__(self, socket: ClientConnection, channel: Channel[FromCoordinator], leaf: bytes):
        self.h = channel.h
        """Handshake hash."""
        self.leaf = leaf
        """SHA-256 of the TLS leaf that was seen."""
        self._socket = socket
        self._channel = channel

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
            return await cls._shake_hands(address, socket, keys, cs_pub, pool_id)
        except BaseException:
            socket.transport.abort()
            raise

    @classmethod
    async def _shake_hands(
        cls, address: str, socket: ClientConnection, keys: WorkerKeys, cs_pub: bytes, pool_id: bytes
    ) -> Link:
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
                "Somebody else may listen there, or the pool was set up anew: ask its admin for a new invite",
            ) from error
        secure = socket.transport.get_extra_info("ssl_object")
        der = secure.getpeercert(binary_form=True) if secure is not None else None
        return cls(socket, channel, leaf_pin(der) if der else b"")

    async def messages(self) -> AsyncIterator[list[FromCoordinator]]:
        """What the coordinator says, until it closes. Raises `HandshakeFailed` for a record that does not open."""
        try:
            async for data in self._socket:
                yield self._channel.receive(_binary(data))
        except WebSocketException as error:
            raise Unreachable(f"the connection broke ({error})") from error

    async def send(self, messages: list[FromWorker]) -> None:
        """Seal and write. Must not be called again before it has returned: the order of records is their counter."""
        for message in messages:
            self._channel.send(message, bulk=isinstance(message, Result))
        try:
            while (record := self._channel.next_record()) is not None:
                await self._socket.send(record)
        except (WebSocketException, OSError) as error:
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
