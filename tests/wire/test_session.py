"""A channel delivers whole messages in order from who holds the keys, or it dies."""

from __future__ import annotations

import os
import random
import tracemalloc
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from noise.connection import Keypair, NoiseConnection

from moregpu.errors import HandshakeFailed
from moregpu.jobs import Blob, Planned, Tensor
from moregpu.wire import session as session_module
from moregpu.wire.messages import (
    MAX_RECORD_BYTES,
    Acknowledged,
    Assign,
    Assignment,
    Bye,
    FromCoordinator,
    FromWorker,
    Heartbeat,
    LeaseRef,
    Pulse,
    Result,
    ResultEntry,
    Taken,
    Verdict,
    Welcome,
)
from moregpu.wire.noise import public
from moregpu.wire.session import (
    Channel,
    ConnectionBroken,
    pack_acknowledged,
    pack_assign,
    pack_result,
    prologue,
)

POOL = bytes(range(16))
CS = X25519PrivateKey.from_private_bytes(b"c" * 32)
WS = X25519PrivateKey.from_private_bytes(b"w" * 32)
NAME = b"Noise_IK_25519_AESGCM_SHA256"


def pair() -> tuple[Channel[FromCoordinator], Channel[FromWorker]]:
    worker, coordinator = Channel.initiator(WS, public(CS), POOL), Channel.responder([CS], POOL)
    assert coordinator.receive(worker.start()) == []
    reply = coordinator.next_record()
    assert reply is not None
    assert worker.receive(reply) == []
    return worker, coordinator


def carry(sender: Channel[Any], receiver: Channel[Any]) -> list[Any]:
    arrived: list[Any] = []
    while (record := sender.next_record()) is not None:
        arrived += receiver.receive(record)
    return arrived


# ---- the good road ---------------------------------------------------------------------------------------------------


def test_after_the_handshake_both_ends_know_each_other_and_the_same_hash() -> None:
    worker, coordinator = pair()
    assert worker.established
    assert coordinator.established
    assert worker.h == coordinator.h
    assert len(worker.h) == 32
    assert coordinator.remote_static == public(WS)
    assert worker.remote_static == public(CS)


def test_both_handshake_messages_are_empty() -> None:
    worker, coordinator = Channel.initiator(WS, public(CS), POOL), Channel.responder([CS], POOL)
    first = worker.start()
    coordinator.receive(first)
    second = coordinator.next_record()
    assert second is not None
    assert (len(first), len(second)) == (96, 48)


def test_control_goes_before_bulk_and_each_keeps_its_order() -> None:
    worker, coordinator = pair()
    coordinator.send(Pulse(echo=1.0, now=0.0), bulk=True)
    coordinator.send(Pulse(echo=2.0, now=0.0), bulk=True)
    coordinator.send(Pulse(echo=3.0, now=0.0))
    coordinator.send(Pulse(echo=4.0, now=0.0))
    assert coordinator.waiting == 4
    assert [pulse.echo for pulse in carry(coordinator, worker)] == [3.0, 4.0, 1.0, 2.0]


def test_messages_queued_before_the_handshake_wait_for_it() -> None:
    worker, coordinator = Channel.initiator(WS, public(CS), POOL), Channel.responder([CS], POOL)
    worker.send(Bye())
    first = worker.start()
    assert worker.next_record() is None
    coordinator.receive(first)
    coordinator.send(Pulse(echo=0.0, now=0.0))
    reply = coordinator.next_record()
    assert reply is not None
    assert len(reply) == 48
    worker.receive(reply)
    assert carry(worker, coordinator) == [Bye()]


def test_sealing_happens_when_asked_and_not_before() -> None:
    """A control message that is sent after a bulk one was queued still goes first: nothing was sealed ahead."""
    worker, coordinator = pair()
    worker.send(Bye(reason="bulk"), bulk=True)
    before = worker.records_sent
    worker.send(Bye(reason="control"))
    assert worker.records_sent == before == 0
    assert [bye.reason for bye in carry(worker, coordinator)] == ["control", "bulk"]


# ---- another implementation on the other end -------------------------------------------------------------------------


def noise_end(role: str) -> Any:
    noise = NoiseConnection.from_name(NAME)
    noise.set_prologue(b"moregpu\0moregpu.1\0" + POOL)
    if role == "worker":
        noise.set_as_initiator()
        noise.set_keypair_from_private_bytes(Keypair.STATIC, WS.private_bytes_raw())
        noise.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, public(CS))
    else:
        noise.set_as_responder()
        noise.set_keypair_from_private_bytes(Keypair.STATIC, CS.private_bytes_raw())
    noise.start_handshake()
    return noise


@pytest.mark.parametrize("records", [5, 300])
def test_a_whole_session_replays_with_noiseprotocol_as_the_worker(
    records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "REKEY_RECORDS", 128)
    noise, coordinator = noise_end("worker"), Channel.responder([CS], POOL)
    coordinator.receive(bytes(noise.write_message()))
    reply = coordinator.next_record()
    assert reply is not None
    noise.read_message(reply)
    assert noise.get_handshake_hash() == coordinator.h
    for number in range(records):
        if number and number % 128 == 0:
            noise.rekey_outbound_cipher()
            noise.rekey_inbound_cipher()
        message = Heartbeat(sent=float(number))
        assert coordinator.receive(bytes(noise.encrypt(msgspec.msgpack.encode(message)))) == [message]
        coordinator.send(Pulse(echo=float(number), now=0.0))
        record = coordinator.next_record()
        assert record is not None
        assert bytes(noise.decrypt(record)) == msgspec.msgpack.encode(Pulse(echo=float(number), now=0.0))


@pytest.mark.parametrize("records", [5, 300])
def test_a_whole_session_replays_with_noiseprotocol_as_the_coordinator(
    records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "REKEY_RECORDS", 128)
    noise, worker = noise_end("coordinator"), Channel.initiator(WS, public(CS), POOL)
    noise.read_message(worker.start())
    assert worker.receive(bytes(noise.write_message())) == []
    assert noise.get_handshake_hash() == worker.h
    for number in range(records):
        if number and number % 128 == 0:
            noise.rekey_outbound_cipher()
            noise.rekey_inbound_cipher()
        worker.send(Heartbeat(sent=float(number)))
        record = worker.next_record()
        assert record is not None
        assert bytes(noise.decrypt(record)) == msgspec.msgpack.encode(Heartbeat(sent=float(number)))
        pulse = Pulse(echo=float(number), now=1.0)
        assert worker.receive(bytes(noise.encrypt(msgspec.msgpack.encode(pulse)))) == [pulse]


def test_the_key_changes_after_exactly_2_to_the_16_records() -> None:
    worker, coordinator = pair()
    noise, ours = noise_end("worker"), Channel.responder([CS], POOL)
    ours.receive(bytes(noise.write_message()))
    reply = ours.next_record()
    assert reply is not None
    noise.read_message(reply)
    plain = msgspec.msgpack.encode(Bye())
    for _ in range(1 << 16):
        ours.receive(bytes(noise.encrypt(plain)))
    noise.rekey_outbound_cipher()
    assert ours.receive(bytes(noise.encrypt(plain))) == [Bye()]
    # and our own two ends do it together, in both directions
    for _ in range((1 << 16) + 2):
        worker.send(Bye())
        record = worker.next_record()
        assert record is not None
        coordinator.receive(record)
    assert coordinator.records_received == (1 << 16) + 2


# ---- replayed, dropped, reordered, truncated, flipped ----------------------------------------------------------------


def three_records() -> tuple[Channel[FromWorker], list[bytes]]:
    worker, coordinator = pair()
    records: list[bytes] = []
    for number in range(3):
        worker.send(Heartbeat(sent=float(number)))
        record = worker.next_record()
        assert record is not None
        records.append(record)
    return coordinator, records


@pytest.mark.parametrize(
    ("fault", "order"), [("repeated", [0, 0]), ("dropped", [0, 2]), ("reordered", [1, 0])], ids=lambda value: str(value)
)
def test_a_record_repeated_dropped_or_reordered_kills_the_channel(fault: str, order: list[int]) -> None:
    coordinator, records = three_records()
    delivered: list[Any] = []
    with pytest.raises(ConnectionBroken):
        for index in order:
            delivered += coordinator.receive(records[index])
    assert coordinator.dead, fault
    assert len(delivered) == (0 if order[0] else 1)
    with pytest.raises(ConnectionBroken):
        coordinator.receive(records[1])  # even the right one comes too late


@given(st.data())
@settings(max_examples=200)
def test_any_changed_cut_or_longer_record_kills_the_channel(data: st.DataObject) -> None:
    coordinator, records = three_records()
    record = bytearray(records[0])
    match data.draw(st.sampled_from(["flip", "cut", "longer"])):
        case "flip":
            bit = data.draw(st.integers(0, 8 * len(record) - 1))
            record[bit // 8] ^= 1 << bit % 8
        case "cut":
            del record[data.draw(st.integers(0, len(record) - 1)) :]
        case _:
            record += data.draw(st.binary(min_size=1, max_size=20))
    with pytest.raises(ConnectionBroken):
        coordinator.receive(bytes(record))
    assert coordinator.dead


def test_a_recorded_session_means_nothing_to_a_new_one() -> None:
    worker, first = Channel.initiator(WS, public(CS), POOL), Channel.responder([CS], POOL)
    message_1 = worker.start()
    first.receive(message_1)
    reply = first.next_record()
    assert reply is not None
    worker.receive(reply)
    worker.send(Bye())
    record = worker.next_record()
    assert record is not None
    assert first.receive(record) == [Bye()]
    # The thief repeats message 1, which cannot be told from a fresh one, and then the record: that is refused.
    victim = Channel.responder([CS], POOL)
    victim.receive(message_1)
    assert victim.established
    assert victim.h != first.h
    with pytest.raises(ConnectionBroken):
        victim.receive(record)


def test_a_dead_channel_seals_nothing_more() -> None:
    worker, coordinator = pair()
    coordinator.send(Pulse(echo=0.0, now=0.0))
    with pytest.raises(ConnectionBroken):
        coordinator.receive(b"noise")
    coordinator.send(Pulse(echo=0.0, now=0.0))
    assert coordinator.next_record() is None
    assert coordinator.waiting == 0
    worker.close()
    worker.send(Bye())
    assert worker.next_record() is None


def test_a_send_cancelled_in_mid_record_leaves_the_other_end_with_nothing() -> None:
    """Row 52: the shell must close; going on after a lost record delivers nothing, never something wrong."""
    worker, coordinator = pair()
    worker.send(Heartbeat(sent=1.0))
    worker.send(Heartbeat(sent=2.0))
    assert worker.next_record() is not None  # sealed, its write was cancelled
    following = worker.next_record()
    assert following is not None
    with pytest.raises(ConnectionBroken):
        coordinator.receive(following)


# ---- strangers -------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_a_stranger_only_ever_sees_the_handshake_fail(data: list[bytes]) -> None:
    coordinator = Channel.responder([CS], POOL)
    with pytest.raises(HandshakeFailed):
        for message in data:
            coordinator.receive(message)
    assert coordinator.dead
    assert coordinator.next_record() is None


def test_a_handshake_message_with_a_payload_is_refused() -> None:
    noise = noise_end("worker")
    coordinator = Channel.responder([CS], POOL)
    with pytest.raises(HandshakeFailed):
        coordinator.receive(bytes(noise.write_message(b"early data")))
    assert coordinator.dead
    assert coordinator.next_record() is None


def test_another_pool_or_key_is_refused() -> None:
    for remote, pool in ((public(WS), POOL), (public(CS), bytes(16))):
        coordinator = Channel.responder([CS], POOL)
        with pytest.raises(HandshakeFailed):
            coordinator.receive(Channel.initiator(WS, remote, pool).start())


def test_a_weak_coordinator_key_is_refused_before_anything_is_sent() -> None:
    worker = Channel.initiator(WS, bytes(32), POOL)
    with pytest.raises(HandshakeFailed):
        worker.start()
    assert worker.dead
    with pytest.raises(ValueError, match="only the initiator"):
        worker.start()


def plain_to(coordinator: Channel[FromWorker], noise: Any, plain: bytes) -> list[Any]:
    return coordinator.receive(bytes(noise.encrypt(plain)))


def insider() -> tuple[Any, Channel[FromWorker]]:
    """A peer with good keys that may put anything into a record."""
    noise, coordinator = noise_end("worker"), Channel.responder([CS], POOL)
    coordinator.receive(bytes(noise.write_message()))
    reply = coordinator.next_record()
    assert reply is not None
    noise.read_message(reply)
    return noise, coordinator


HOSTILE = {
    "empty": b"",
    "deep nesting": b"\x91" * 65_000 + b"\xc0",
    "deep nesting in an unknown field": b"\x93\xa3bye\xa0" + b"\x91" * 65_000 + b"\xc0",
    "deep maps": b"\x93\xa3bye\xa0" + b"\x81\xa0" * 30_000 + b"\xc0",
    "array of 2^32-1": b"\xdd\xff\xff\xff\xff",
    "leases 2^32-1": b"\x92\xa5taken\xdd\xff\xff\xff\xff",
    "map of 2^32-1": b"\x93\xa9heartbeat\xcb" + bytes(8) + b"\xdf\xff\xff\xff\xff",
    "text of 4 GiB": b"\x92\xa3bye\xdb\xff\xff\xff\xff",
    "bytes of 4 GiB": b"\x92\xa5hello\xc6\xff\xff\xff\xff",
    "extension of 4 GiB": b"\x92\xa3bye\xc9\xff\xff\xff\xff\x00",
    "reserved byte": b"\xc1",
    "trailing bytes": msgspec.msgpack.encode(Bye()) + b"\x00",
    "bad UTF-8": b"\x92\xa3bye\xa2\xff\xfe",
    "unknown tag": b"\x91\xa7upgrade",
    "the other end's message": msgspec.msgpack.encode(Pulse(echo=0.0, now=0.0)),
    "share above one": msgspec.msgpack.encode(["heartbeat", 0.0, {"cpu": 1.5}]),
    "share not a number": msgspec.msgpack.encode(["heartbeat", 0.0, {"cpu": float("nan")}]),
    "short token": msgspec.msgpack.encode(["taken", [["t-1", 1, b"short"]]]),
    "an id with an escape": msgspec.msgpack.encode(["taken", [["t-\x1b[2J", 1, bytes(16)]]]),
    "no entries": msgspec.msgpack.encode(["result", [], bytes(64)]),
    "65 entries": msgspec.msgpack.encode(["result", [["t", 1, bytes(16)]] * 65, bytes(64)]),
    "huge integer": b"\x92\xa5taken\x91\x93\xa1t\xcf" + b"\xff" * 8 + b"\xc4\x10" + bytes(16),
}


@pytest.mark.parametrize("plain", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_record_that_holds_no_message_kills_the_channel_in_bounded_memory(plain: bytes) -> None:
    noise, coordinator = insider()
    tracemalloc.start()
    with pytest.raises(ConnectionBroken):
        plain_to(coordinator, noise, plain)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert coordinator.dead


@given(st.binary(max_size=400))
def test_no_plaintext_raises_anything_but_connection_broken(plain: bytes) -> None:
    noise, coordinator = insider()
    try:
        plain_to(coordinator, noise, plain)
    except ConnectionBroken:
        assert coordinator.dead


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=80),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
TAGS = ["hello", "heartbeat", "taken", "started", "progress", "output", "result", "refused", "bye"]


@given(st.sampled_from(TAGS), st.lists(JSON_LIKE, max_size=8))
@settings(max_examples=150)
def test_no_well_formed_nonsense_raises_anything_but_connection_broken(tag: str, fields: list[Any]) -> None:
    noise, coordinator = insider()
    try:
        messages = plain_to(coordinator, noise, msgspec.msgpack.encode([tag, *fields]))
    except ConnectionBroken:
        assert coordinator.dead
    else:
        assert isinstance(messages[0], FromWorker)


def test_a_newer_version_may_append_fields() -> None:
    noise, coordinator = insider()
    assert plain_to(coordinator, noise, msgspec.msgpack.encode(["bye", "tired", {"new": [1, 2]}])) == [
        Bye(reason="tired")
    ]


def test_a_record_above_the_limit_is_refused_unopened() -> None:
    _, coordinator = insider()
    with pytest.raises(ConnectionBroken, match="65536"):
        coordinator.receive(bytes(65_536))


def test_text_is_cleaned_where_it_is_decoded() -> None:
    noise, coordinator = insider()
    evil = "\x1b]52;c;cm0gLXJm\x07 tired\u202e\u200b\x9b31m"
    assert plain_to(coordinator, noise, msgspec.msgpack.encode(["bye", evil])) == [
        Bye(reason="]52;c;cm0gLXJm tired31m")
    ]


# ---- what this end may send ------------------------------------------------------------------------------------------


def test_a_message_that_fits_no_record_is_an_error_of_its_sender() -> None:
    worker, coordinator = pair()
    with pytest.raises(ValueError, match="65519"):
        coordinator.send(Assign(entries=[assignment(bytes(70_000))]))
    assert not coordinator.dead
    coordinator.send(Pulse(echo=1.0, now=0.0))
    assert carry(coordinator, worker) == [Pulse(echo=1.0, now=0.0)]


def test_the_largest_record_arrives() -> None:
    worker, coordinator = pair()
    overhead = len(msgspec.msgpack.encode(Assign(entries=[assignment(bytes(60_000))]))) - 60_000
    message = Assign(entries=[assignment(bytes(MAX_RECORD_BYTES - overhead))])
    assert len(msgspec.msgpack.encode(message)) == MAX_RECORD_BYTES
    coordinator.send(message)
    record = coordinator.next_record()
    assert record is not None
    assert len(record) == 65_535
    assert worker.receive(record) == [message]


def test_an_end_sends_only_its_own_messages() -> None:
    worker, coordinator = pair()
    with pytest.raises(TypeError):
        worker.send(Pulse(echo=0.0, now=0.0))
    with pytest.raises(TypeError):
        coordinator.send(Bye())


# ---- packing ---------------------------------------------------------------------------------------------------------


def assignment(data: bytes = b"") -> Assignment:
    return Assignment(
        job="j-1",
        task="t-1",
        attempt=1,
        token=bytes(16),
        kind="kernel",
        program=b"relu",
        parameters=b"",
        precision="float32",
        inputs={"a": Tensor(dtype="uint8", shape=(len(data),), data=data)},
        outputs={"c": Planned(dtype="float32", shape=(1,))},
        digest_key=bytes(32),
        seed=0,
        time_limit_s=None,
        lease_s=60.0,
    )


def entry(number: int, size: int) -> ResultEntry:
    blob = Blob(digest="0" * 64, key=bytes(32), size_bytes=4)
    return ResultEntry(
        task=f"t-{number}",
        attempt=1,
        token=bytes(16),
        statement=bytes(size),
        outputs={"c": Tensor(dtype="float32", shape=(1,), data=blob)},
    )


@given(st.lists(st.integers(0, 20_000), max_size=40))
def test_packed_assignments_keep_their_order_and_each_message_fits(sizes: list[int]) -> None:
    entries = [assignment(bytes(size)) for size in sizes]
    messages = pack_assign(entries)
    assert [entry for message in messages for entry in message.entries] == entries
    assert all(message.entries for message in messages)
    assert all(len(msgspec.msgpack.encode(message)) <= MAX_RECORD_BYTES for message in messages)
    assert len(messages) <= 1 + sum(sizes) // 30_000 + len(sizes) // 100


@given(st.lists(st.integers(0, 5_000), max_size=200))
def test_packed_results_have_at_most_64_entries_and_their_own_signatures(sizes: list[int]) -> None:
    entries = [entry(number, size) for number, size in enumerate(sizes)]
    signed: list[int] = []

    def sign(part: Any) -> bytes:
        signed.append(len(part))
        return bytes([len(part)]) * 64

    messages = pack_result(entries, sign)
    assert [one for message in messages for one in message.entries] == entries
    assert signed == [len(message.entries) for message in messages]
    assert all(1 <= len(message.entries) <= 64 for message in messages)
    assert all(message.signature[0] == len(message.entries) for message in messages)
    assert all(len(msgspec.msgpack.encode(message)) <= MAX_RECORD_BYTES for message in messages)


def test_many_small_results_go_64_to_a_message() -> None:
    messages = pack_result([entry(number, 10) for number in range(150)], lambda part: bytes(64))
    assert [len(message.entries) for message in messages] == [64, 64, 22]


def test_packed_acknowledgements_go_through_a_channel() -> None:
    worker, coordinator = pair()
    verdicts = [
        Verdict(task=f"t-{n}", attempt=1, token=os.urandom(16), verdict="accepted", ledger=("a", n, os.urandom(32)))
        for n in range(2_000)
    ]
    for message in pack_acknowledged(verdicts):
        coordinator.send(message, bulk=True)
    arrived = carry(coordinator, worker)
    assert len(arrived) > 1
    assert [verdict for message in arrived for verdict in message.entries] == verdicts
    assert all(isinstance(message, Acknowledged) for message in arrived)


def test_an_entry_that_fits_no_record_is_an_error() -> None:
    with pytest.raises(ValueError, match="blob"):
        pack_assign([assignment(bytes(66_000))])


def test_the_prologue_names_version_and_pool() -> None:
    assert prologue(POOL) == b"moregpu\x00moregpu.1\x00" + POOL


def test_many_random_messages_arrive_as_they_were_sent() -> None:
    worker, coordinator = pair()
    chance = random.Random(7)
    sent: list[Any] = []
    for _ in range(300):
        refs = [
            LeaseRef(task=f"t-{chance.randrange(9)}", attempt=chance.randrange(4), token=chance.randbytes(16))
            for _ in range(chance.randrange(5))
        ]
        message = chance.choice([Taken(leases=refs), Heartbeat(sent=chance.random(), held=refs), Bye(reason="x")])
        worker.send(message)
        sent.append(message)
    assert carry(worker, coordinator) == sent


def test_every_message_of_the_coordinator_reaches_the_worker() -> None:
    worker, coordinator = pair()
    welcome = Welcome(worker="w-1", pool=POOL, pool_name="home", ci_pub=bytes(32), blob_token="x")
    coordinator.send(welcome)
    assert carry(coordinator, worker) == [welcome]
    assert Result in FromWorker.__args__
