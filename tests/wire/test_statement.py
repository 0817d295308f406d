"""A statement is one byte string for what was given and what came out, and two honest ends write the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moregpu.errors import DigestMismatch, HandshakeFailed
from moregpu.jobs import Blob, Planned, Tensor
from moregpu.wire.identity import WorkerKeys, verify
from moregpu.wire.messages import Assignment
from moregpu.wire.statement import (
    PARALLEL_BYTES,
    Described,
    OutputsDigest,
    Ran,
    batch_message,
    before_ran,
    content_digest,
    described,
    digest,
    read_ran,
    read_ran_and_outputs,
    statement_of,
)

POOL, KEY = bytes(range(16)), bytes(range(32))
BLOB = Blob(digest="ab" * 32, key=bytes(32), size_bytes=24)
ASSIGNMENT = Assignment(
    job="j-1",
    task="t-1",
    attempt=2,
    token=bytes(16),
    kind="kernel",
    program=b"matmul",
    parameters=b"\x81\xa1n\x01",
    precision="float32",
    inputs={
        "b": Tensor(dtype="float32", shape=(2,), data=bytes(8)),
        "a": Tensor(dtype="float32", shape=(2, 3), data=BLOB),
    },
    outputs={"c": Planned(dtype="float32", shape=(2,))},
    digest_key=KEY,
    seed=0,
    time_limit_s=None,
    lease_s=60.0,
)
RAN = Ran(device="cpu", driver="", duty=0.85, seconds=1.5)


def facts(**changes: Any) -> dict[str, Any]:
    inputs = {
        name: described(tensor, content_digest(KEY, "float32", (2,), name.encode()))
        for name, tensor in ASSIGNMENT.inputs.items()
    }
    outputs = {"c": Described(blob_digest="cd" * 32, content=bytes(32), dtype="float32", shape=(2,))}
    return {"pool": POOL, "worker": "w-1", "inputs": inputs, "outputs": outputs, "ran": RAN, **changes}


def test_both_ends_write_the_same_bytes_whatever_the_order_of_names() -> None:
    backwards = facts()
    backwards["inputs"] = dict(reversed(backwards["inputs"].items()))
    assert statement_of(ASSIGNMENT, **facts()) == statement_of(ASSIGNMENT, **backwards)


def test_a_statement_is_the_documented_list() -> None:
    row = msgspec.msgpack.decode(statement_of(ASSIGNMENT, **facts()))
    assert row[:11] == [
        "moregpu/result/1", POOL, "j-1", "t-1", 2, bytes(16), "w-1", "kernel",
        blake3(b"matmul").digest(), blake3(b"\x81\xa1n\x01").digest(), "float32",
    ]  # fmt: skip
    assert [tensor[0] for tensor in row[11]] == ["ab" * 32, ""]  # a travelled in a blob, b inline
    assert row[11][0][2:] == ["float32", [2, 3]]
    assert row[12] == [["cd" * 32, bytes(32), "float32", [2]]]
    assert row[13] == ["cpu", "", 0.85, 1.5]


@pytest.mark.parametrize(
    "change",
    [
        {"job": "j-2"}, {"task": "t-2"}, {"attempt": 3}, {"token": b"x" * 16}, {"kind": "graph"}, {"program": b"relu"},
        {"parameters": b""}, {"precision": "float16"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_field_of_the_assignment_is_covered(change: dict[str, Any]) -> None:
    assert statement_of(replace(ASSIGNMENT, **change), **facts()) != statement_of(ASSIGNMENT, **facts())


def test_pool_worker_inputs_outputs_and_claims_are_covered() -> None:
    plain = statement_of(ASSIGNMENT, **facts())
    other_input = {**facts()["inputs"], "a": replace(facts()["inputs"]["a"], content=b"x" * 32)}
    for change in (
        {"pool": bytes(16)},
        {"worker": "w-2"},
        {"inputs": other_input},
        {"outputs": {}},
        {"ran": replace(RAN, seconds=2.0)},
    ):
        assert statement_of(ASSIGNMENT, **facts(**change)) != plain


def test_the_coordinator_takes_only_outputs_and_claims_from_the_worker() -> None:
    claimed = statement_of(ASSIGNMENT, **facts())
    outputs, ran = read_ran_and_outputs(claimed)
    assert ran == RAN
    assert outputs == [facts()["outputs"]["c"]]
    rebuilt = statement_of(ASSIGNMENT, **facts(outputs=dict(zip(["c"], outputs, strict=True)), ran=ran))
    assert rebuilt == claimed
    lie = statement_of(replace(ASSIGNMENT, attempt=1), **facts())
    outputs, ran = read_ran_and_outputs(lie)
    assert statement_of(ASSIGNMENT, **facts(outputs={"c": outputs[0]}, ran=ran)) != lie


def test_whole_seconds_are_still_floats() -> None:
    claimed = statement_of(ASSIGNMENT, **facts(ran=Ran(device="cpu", driver="", duty=1, seconds=2)))
    assert statement_of(ASSIGNMENT, **facts(ran=read_ran_and_outputs(claimed)[1])) == claimed


@pytest.mark.parametrize(
    ("duty", "seconds"),
    [(1.1, 1.0), (-0.1, 1.0), (float("nan"), 1.0), (0.5, float("nan")), (0.5, float("inf")), (0.5, -1.0)],
)
def test_impossible_claims_are_refused(duty: float, seconds: float) -> None:
    with pytest.raises(DigestMismatch):
        read_ran_and_outputs(
            statement_of(ASSIGNMENT, **facts(ran=Ran(device="", driver="", duty=duty, seconds=seconds)))
        )


@pytest.mark.parametrize("change", [{"dtype": "object"}, {"shape": (-1,)}, {"content": bytes(31)}], ids=str)
def test_impossible_outputs_are_refused(change: dict[str, Any]) -> None:
    outputs = {"c": replace(facts()["outputs"]["c"], **change)}
    with pytest.raises(DigestMismatch):
        read_ran_and_outputs(statement_of(ASSIGNMENT, **facts(outputs=outputs)))


@given(st.binary(max_size=300))
def test_no_claimed_statement_raises_anything_else(claimed: bytes) -> None:
    with pytest.raises(DigestMismatch):
        read_ran_and_outputs(claimed)


@pytest.mark.parametrize("claimed", [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\x9e" + b"\x81\xa0" * 50_000])
def test_deep_or_huge_statements_are_refused(claimed: bytes) -> None:
    with pytest.raises(DigestMismatch):
        read_ran_and_outputs(claimed)


def test_a_batch_signature_covers_the_order_and_the_signer() -> None:
    worker = WorkerKeys.generate()
    digests = [digest(b"one"), digest(b"two")]
    signature = worker.sign(batch_message(POOL, worker.worker_id, digests))
    verify(worker.wi_pub, batch_message(POOL, worker.worker_id, digests), signature)
    for pool, name, order in (
        (POOL, worker.worker_id, digests[::-1]),
        (POOL, worker.worker_id, digests[:1]),
        (bytes(16), worker.worker_id, digests),
        (POOL, "w-2", digests),
    ):
        with pytest.raises(HandshakeFailed):
            verify(worker.wi_pub, batch_message(pool, name, order), signature)


# ---- content digests -------------------------------------------------------------------------------------------------


@given(st.binary(max_size=400), st.integers(0, 400))
def test_a_content_digest_does_not_depend_on_how_the_bytes_are_held(data: bytes, cut: int) -> None:
    whole = content_digest(KEY, "uint8", (len(data),), data)
    assert content_digest(KEY, "uint8", (len(data),), data[:cut], memoryview(data)[cut:]) == whole
    assert content_digest(KEY, "uint8", (len(data),), bytearray(data)) == whole


def test_a_content_digest_covers_key_dtype_shape_and_bytes() -> None:
    base = content_digest(KEY, "float32", (2, 3), bytes(24))
    assert len(base) == 32
    others = {
        content_digest(bytes(32), "float32", (2, 3), bytes(24)),
        content_digest(KEY, "int32", (2, 3), bytes(24)),
        content_digest(KEY, "float32", (3, 2), bytes(24)),
        content_digest(KEY, "float32", (6,), bytes(24)),
        content_digest(KEY, "float32", (2, 3), bytes(23) + b"\x01"),
    }
    assert len(others | {base}) == 6


def test_a_content_digest_is_the_same_with_threads() -> None:
    data = bytes(PARALLEL_BYTES + 1)
    half = PARALLEL_BYTES // 2
    header = msgspec.msgpack.encode(["moregpu/content/1", "uint8", [len(data)]])
    expected = blake3(header + data, key=KEY).digest()
    assert content_digest(KEY, "uint8", (len(data),), data[:half], data[half:]) == expected


def test_a_described_region_has_the_regions_shape() -> None:
    tensor = Tensor(dtype="float32", shape=(4, 6), data=BLOB, region=((0, 2), (3, 6)))
    assert described(tensor, bytes(32)).shape == (2, 3)


def test_the_digest_of_outputs_covers_names_dtypes_shapes_and_bytes() -> None:
    def of(*outputs: tuple[str, str, tuple[int, ...], bytes]) -> str:
        whole = OutputsDigest()
        for name, dtype, shape, data in outputs:
            whole.begin(name, dtype, shape)
            for at in range(0, len(data), 3):
                whole.update(data[at : at + 3])
        return whole.hex()

    base = of(("c", "uint8", (8,), bytes(8)))
    assert len(base) == 64
    assert base == of(("c", "uint8", (8,), bytes(8)))
    assert len({base, of(("d", "uint8", (8,), bytes(8))), of(("c", "int8", (8,), bytes(8))),
                of(("c", "uint8", (2, 4), bytes(8))), of(("c", "uint8", (8,), b"x" * 8))}) == 5  # fmt: skip


# ---- a statement in two parts: what its reader knows, and what only its worker knows ---------------------------------


def known() -> bytes:
    return before_ran(ASSIGNMENT, **{name: fact for name, fact in facts().items() if name != "ran"})


def test_a_statement_is_what_its_reader_knows_followed_by_how_it_ran() -> None:
    whole = statement_of(ASSIGNMENT, **facts())
    assert whole.startswith(known()) and read_ran(whole[len(known()) :]) == RAN
    assert read_ran_and_outputs(whole)[1] == RAN


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        msgspec.msgpack.encode(["cpu", "", 0.5, 1.5]) + b"\x00",
        msgspec.msgpack.encode(["cpu", "", 1, 1.5]),
        b"\x94\xa3cpu\xa0\xca\x3f\x00\x00\x00\xcb" + bytes(8),
        msgspec.msgpack.encode(["cpu", "", 1.5, 1.5]),
        msgspec.msgpack.encode(["cpu", "", 0.5, float("nan")]),
        msgspec.msgpack.encode(["cpu", "", 0.5, 1.5, 0]),
        msgspec.msgpack.encode(["cpu", "", 0.5]),
    ],
    ids=["nothing", "more", "a whole number", "a short float", "too much duty", "no time", "five", "three"],
)
def test_how_it_ran_is_read_from_its_one_spelling_alone(rest: bytes) -> None:
    with pytest.raises(DigestMismatch):
        read_ran(rest)
