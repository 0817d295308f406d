"""A sealed channel between a worker and its coordinator: bytes of one WebSocket message in, messages out. No I/O.

Each WebSocket message is one Noise message of at most 65,535 bytes. The first two are the handshake and carry nothing;
then each record is one message of `moregpu.wire.messages`. Messages wait as plaintext and are sealed when
`next_record` is called, which must be at the moment of writing: a sealed record is written or the connection closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from moregpu.errors import HandshakeFailed
from moregpu.wire.messages import (
    MAX_RECORD_BYTES,
    SUBPROTOCOL,
    Acknowledged,
    Assign,
    Assignment,
    FromCoordinator,
    FromWorker,
    Result,
    ResultEntry,
    Verdict,
)
from moregpu.wire.noise import MAX_MESSAGE_BYTES, Entropy, Initiator, Responder, Transport
from moregpu.wire.text import clean_message

REKEY_RECORDS = 1 << 16
"""Records under one key; then both ends apply Noise's `REKEY()` to that direction."""

MAX_RESULT_ENTRIES = 64

Incoming = TypeVar("Incoming")
Packed = TypeVar("Packed")
_ENCODER = msgspec.msgpack.Encoder()


@cache
def _decoder_of(incoming: Any) -> msgspec.msgpack.Decoder[Any]:
    """One for all channels of a direction: ten thousand need not each have their own."""
    return msgspec.msgpack.Decoder(incoming)


class ConnectionBroken(HandshakeFailed):
    """A record did not open, or held no message: the channel is dead, and its connection is to be closed."""

    code, title = "connection-broken", "The session broke"


def prologue(pool_id: bytes) -> bytes:
    """What both ends must agree on before the first byte: the protocol's version, and the pool that is meant."""
    return b"moregpu\0" + SUBPROTOCOL.encode() + b"\0" + pool_id


class Channel(Generic[Incoming]):
    """One connection's session, from its handshake to its end. Make it by `Channel.initiator` or `.responder`."""

    def __init__(self, handshake: Initiator | Responder, outgoing: Any, incoming: Any) -> None:
        self.established = False
        """Whether both handshake messages have passed. The worker's identity is proven later, by its Hello."""
        self.dead = False
        """Set by the first fault; nothing is delivered or sealed after."""
        self.h = b""
        """Handshake hash, 32 bytes, the same on both ends and unique to this connection; Hello signs it."""
        self.remote_static = b""
        """The other end's X25519 key."""
        self.records_received = 0
        self.records_sent = 0
        self._handshake: Initiator | Responder | None = handshake
        self._outgoing = outgoing
        self._decoder = _decoder_of(incoming)
        self._transport: Transport | None = None
        self._reply: bytes | None = None
        # Lists: they are short, and an empty deque takes as much memory as a session's keys.
        self._control: list[bytes] = []
        self._bulk: list[bytes] = []

    @staticmethod
    def initiator(
        static: X25519PrivateKey,
        remote: bytes,
        pool_id: bytes,
        outgoing: Any = FromWorker,
        incoming: Any = FromCoordinator,
        *,
        entropy: Entropy = os.urandom,
    ) -> Channel[FromCoordinator]:
        """The worker's end; `remote` is the coordinator's `cs_pub`, known from the invite. Begin with `start`."""
        return Channel(Initiator(static, remote, prologue(pool_id), entropy), outgoing, incoming)

    @staticmethod
    def responder(
        statics: Sequence[X25519PrivateKey],
        pool_id: bytes,
        outgoing: Any = FromCoordinator,
        incoming: Any = FromWorker,
        *,
        entropy: Entropy = os.urandom,
    ) -> Channel[FromWorker]:
        """The coordinator's end; `statics` are its `cs` keys, newest first."""
        return Channel(Responder(statics, prologue(pool_id), entropy), outgoing, incoming)

    def start(self) -> bytes:
        """The initiator's first handshake message: send it, then feed what comes to `receive`."""
        if not isinstance(self._handshake, Initiator):
            raise ValueError("only the initiator starts, and only once")
        try:
            return self._handshake.write_message_1()
        except HandshakeFailed:
            self.close()
            raise

    def receive(self, data: bytes) -> list[Incoming]:
        """Take one WebSocket message; returns the messages in it (none during the handshake).

        Raises:
            HandshakeFailed: the handshake did not come off.
            ConnectionBroken: a record did not open or held no message, or the channel was dead already.
        """
        if self.dead:
            raise ConnectionBroken("The session has ended", "Connect again")
        try:
            if self._transport is None:
                self._receive_handshake(data)
                return []
            return [self._open(self._transport, data)]
        except HandshakeFailed:
            self.close()
            raise

    def send(self, message: Any, bulk: bool = False) -> None:
        """Queue a message; `bulk` ones wait until no control message does. On a dead channel it is dropped.

        Raises:
            ValueError: it does not fit a record (see the `pack_` functions).
            TypeError: this end does not send such messages.
        """
        if not isinstance(message, self._outgoing):
            raise TypeError(f"this end does not send {type(message).__name__}")
        plain = _ENCODER.encode(message)
        if len(plain) > MAX_RECORD_BYTES:
            raise ValueError(f"{type(message).__name__} takes {len(plain)} bytes; a record holds {MAX_RECORD_BYTES}")
        if not self.dead:
            (self._bulk if bulk else self._control).append(plain)

    def next_record(self) -> bytes | None:
        """Seal the next waiting message, or give the handshake's reply; None when nothing waits.

        Call it only when the bytes can be written at once: the other end counts records.
        """
        if self._reply is not None:
            reply, self._reply = self._reply, None
            return reply
        if self._transport is None or self.dead:
            return None
        queue = self._control or self._bulk
        if not queue:
            return None
        cipher = self._transport.sending
        if self.records_sent and self.records_sent % REKEY_RECORDS == 0:
            cipher.rekey()
        self.records_sent += 1
        return cipher.encrypt(queue.pop(0))

    def rest(self) -> None:
        """Nothing is said for a while: hold as little memory as can be. It goes on as if nothing had been."""
        if self._transport is not None:
            self._transport.sending.rest()
            self._transport.receiving.rest()

    @property
    def waiting(self) -> int:
        """Messages that wait to be sealed."""
        return len(self._control) + len(self._bulk)

    def close(self) -> None:
        """End it: what waits is dropped, and nothing more is opened or sealed."""
        self.dead = True
        self._handshake = None
        self._reply = None
        self._control.clear()
        self._bulk.clear()

    def _receive_handshake(self, data: bytes) -> None:
        match self._handshake:
            case Initiator():
                payload, transport = self._handshake.read_message_2(data)
            case Responder():
                payload, _ = self._handshake.read_message_1(data)
                self._reply, transport = self._handshake.write_message_2()
            case None:
                raise ConnectionBroken("The session has ended", "Connect again")
        if payload:
            raise HandshakeFailed("Handshake messages carry nothing")
        self._handshake, self._transport = None, transport
        self.h, self.remote_static = transport.h, transport.remote_static
        self.established = True

    def _open(self, transport: Transport, data: bytes) -> Incoming:
        if len(data) > MAX_MESSAGE_BYTES:
            raise ConnectionBroken(f"A record of {len(data)} bytes; {MAX_MESSAGE_BYTES} are the most")
        cipher = transport.receiving
        if self.records_received and self.records_received % REKEY_RECORDS == 0:
            cipher.rekey()
        try:
            plain = cipher.decrypt(data)
        except HandshakeFailed as error:
            raise ConnectionBroken(error.detail, "Connect again") from error
        self.records_received += 1
        try:
            return clean_message(self._decoder.decode(plain))
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
            raise ConnectionBroken("A record holds no message of this protocol") from error


# ---- entries into messages that fit ----------------------------------------------------------------------------------


def pack_assign(entries: Iterable[Assignment]) -> list[Assign]:
    """As few `Assign` messages as hold the entries; raises `ValueError` for an entry that fits no record."""
    return _pack(entries, lambda part: Assign(entries=part))


def pack_acknowledged(entries: Iterable[Verdict]) -> list[Acknowledged]:
    """As few `Acknowledged` messages as hold the verdicts."""
    return _pack(entries, lambda part: Acknowledged(entries=part))


class SignResults(Protocol):
    """Signs a batch: gives the signature over `statement.batch_message` of its statements."""

    def __call__(self, entries: Sequence[ResultEntry], /) -> bytes:
        """Sign these entries, in this order; 64 bytes."""
        ...


def pack_result(entries: Iterable[ResultEntry], sign: SignResults) -> list[Result]:
    """As few `Result` messages of 1 to 64 entries as hold them, each signed over exactly its own entries."""
    return _pack(entries, lambda part: Result(entries=part, signature=sign(part)), MAX_RESULT_ENTRIES)


_ENVELOPE_BYTES = 128
"""More than any of the three messages needs beside its entries: tag, list header, signature (82 at most)."""


def _pack(entries: Iterable[Any], message: Callable[[list[Any]], Packed], most: int = MAX_RECORD_BYTES) -> list[Packed]:
    entries = list(entries)
    room = MAX_RECORD_BYTES - _ENVELOPE_BYTES
    if 0 < len(entries) <= most and len(_ENCODER.encode(entries)) <= room:
        return [message(entries)]  # as nearly always
    packed: list[Packed] = []
    part: list[Any] = []
    for entry in entries:
        size = len(_ENCODER.encode(entry))
        if size > MAX_RECORD_BYTES - _ENVELOPE_BYTES:
            raise ValueError(f"an entry of {size} bytes fits no record; its data must travel as a blob")
        if part and (size > room or len(part) == most):
            packed.append(message(part))
            part, room = [], MAX_RECORD_BYTES - _ENVELOPE_BYTES
        part.append(entry)
        room -= size
    if part:
        packed.append(message(part))
    return packed
