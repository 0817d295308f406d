"""What a worker signs: exactly what it was given and exactly what it made of it.

A statement names no session, so a kept result survives reconnects and restarts. Its content digests are keyed with the
job's digest key: two honest workers agree on them though their sealed blobs differ, and who lacks the key learns
nothing. The coordinator writes the same statement from its own store, taking only outputs and `Ran` from the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf

import msgspec
from blake3 import blake3

from moregpu.errors import DigestMismatch
from moregpu.jobs import ITEM_BYTES, Blob, Tensor
from moregpu.wire.canonical import canonical
from moregpu.wire.messages import Assignment

RESULT = "moregpu/result/1"
RESULTS = "moregpu/results/1"
CONTENT = "moregpu/content/1"
PARALLEL_BYTES = 8 << 20
"""Below this, starting threads costs more than they save (and the other cores belong to somebody)."""

JOINED_BYTES = 4096
"""Below this, copying costs less than a second call: a tiny task's digest is most of what is signed for it."""

Buffer = bytes | bytearray | memoryview


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor as a statement names it: the sealed blob it travelled in ("" inline), and what was inside."""

    blob_digest: str
    content: bytes  # content digest, 32 bytes
    dtype: str
    shape: tuple[int, ...]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how it ran: the worker's own claim."""

    device: str
    driver: str
    duty: float
    seconds: float


def content_digest(key: bytes, dtype: str, shape: Sequence[int], *buffers: Buffer) -> bytes:
    """BLAKE3 keyed with the job's `digest_key` over dtype, shape and bytes (row-major, little-endian); 32 bytes.

    `buffers` are the bytes in order; a tensor that is held in pieces needs not be joined.
    """
    about = _about(CONTENT, dtype, tuple(shape))
    if len(buffers) == 1 and type(buffers[0]) is bytes and len(buffers[0]) < JOINED_BYTES:
        return blake3(about + buffers[0], key=key).digest()
    size = sum(memoryview(buffer).nbytes for buffer in buffers)
    digest = blake3(about, key=key, max_threads=blake3.AUTO if size >= PARALLEL_BYTES else 1)
    for buffer in buffers:
        digest.update(buffer)
    return digest.digest()


@lru_cache(256)
def _about(what: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """What goes before a tensor's bytes: the same for most tensors of jobs that are alike."""
    return canonical([what, dtype, list(shape)])


def scattered_digest(key: bytes, dtype: str, shape: Sequence[int], windows: Iterable[Buffer]) -> bytes:
    """The same of bytes that are brought together a window at a time, each read before the next is asked for."""
    digest = blake3(_about(CONTENT, dtype, tuple(shape)), key=key)
    for window in windows:
        digest.update(window)
    return digest.digest()


def described(tensor: Tensor, content: bytes) -> Described:
    """Describe a tensor (its region, where it has one) by the content digest of its plain bytes."""
    blob = tensor.data.digest if isinstance(tensor.data, Blob) else ""
    return Described(blob_digest=blob, content=content, dtype=tensor.dtype, shape=tensor.part_shape)


def before_ran(
    assignment: Assignment,
    *,
    pool: bytes,
    worker: str,
    inputs: Mapping[str, Described],
    outputs: Mapping[str, Described],
) -> bytes:
    """A statement about an assignment up to what only its worker knows: how it ran. `read_ran` reads the rest."""
    known = [
        RESULT,
        pool,
        assignment.job,
        assignment.task,
        assignment.attempt,
        assignment.token,
        worker,
        assignment.kind,
        _digest_again(assignment.program),
        _digest_again(assignment.parameters),
        assignment.precision,
        [_row(tensor) for tensor in _in_order(inputs)],
        [_row(tensor) for tensor in _in_order(outputs)],
    ]
    return _LIST_OF_14 + canonical(known)[1:]


def read_ran(rest: bytes) -> Ran:
    """How a task ran, from what follows `before_ran` in a claimed statement; raises `DigestMismatch` if it is no more.

    The rest is canonical, too: with what stands before it, byte for byte what `statement_of` writes.
    """
    try:
        device, driver, duty, seconds = row = _RAN_DECODER.decode(rest)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise DigestMismatch("A signed statement cannot be read") from error
    _refuse_impossible(duty, seconds)
    if canonical(row) != rest:
        raise DigestMismatch("A signed statement is not in its canonical form")
    return Ran(device=device, driver=driver, duty=duty, seconds=seconds)


def statement_of(
    assignment: Assignment,
    *,
    pool: bytes,
    worker: str,
    inputs: Mapping[str, Described],
    outputs: Mapping[str, Described],
    ran: Ran,
) -> bytes:
    """The bytes whose BLAKE3 a worker signs, with tensors by name; both ends call it, so that both write the same."""
    before = before_ran(assignment, pool=pool, worker=worker, inputs=inputs, outputs=outputs)
    return before + canonical([ran.device, ran.driver, float(ran.duty), float(ran.seconds)])


def _in_order(tensors: Mapping[str, Described]) -> list[Described]:
    """By sorted names (of code points), which is how statements list them."""
    return [tensors[name] for name in sorted(tensors)] if len(tensors) != 1 else list(tensors.values())


def digest(data: Buffer) -> bytes:
    """Plain BLAKE3, 32 bytes: of a statement, a program, parameters."""
    return blake3(data).digest()


@lru_cache(256)
def _digest_again(data: bytes) -> bytes:
    """The digest of what comes with every task of a job, and of jobs that are alike."""
    return digest(data)


def batch_message(pool: bytes, worker: str, digests: Sequence[bytes]) -> bytes:
    """What the signature of a `Result` covers: the digests of its statements, in order (b"" digests of errors too)."""
    return canonical([RESULTS, pool, worker, list(digests)])


def read_ran_and_outputs(claimed: bytes) -> tuple[list[Described], Ran]:
    """Take from a claimed statement the two lists that only its worker knows; raises `DigestMismatch`.

    Nothing else in it is looked at: whoever verifies writes the whole statement anew and compares the bytes.
    """
    try:
        row = _DECODER.decode(claimed)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise DigestMismatch("A signed statement cannot be read") from error
    device, driver, duty, seconds = row[-1]
    _refuse_impossible(duty, seconds)
    outputs = [_described(*output) for output in row[-2]]
    return outputs, Ran(device=device, driver=driver, duty=duty, seconds=seconds)


def _refuse_impossible(duty: float, seconds: float) -> None:
    if not (0.0 <= duty <= 1.0 and 0.0 <= seconds < inf):
        raise DigestMismatch("A signed statement claims an impossible duty or time")


class OutputsDigest:
    """Plain BLAKE3 over a job's outputs, for `ResultManifest.digest`: names in sorted order, dtypes, shapes, bytes."""

    def __init__(self) -> None:
        self._digest = blake3()

    def begin(self, name: str, dtype: str, shape: Sequence[int]) -> None:
        """The next output; its bytes follow by `update`."""
        self._digest.update(_about(name, dtype, tuple(shape)))

    def update(self, data: Buffer) -> None:
        """Bytes of the output, in order, in pieces of any size."""
        self._digest.update(data)

    def hex(self) -> str:
        """64 characters."""
        return self._digest.hexdigest()


_LIST_OF_14 = b"\x9e"
"""How msgpack begins a list of 14; one of 13 takes one byte as well."""

_TensorRow = tuple[str, bytes, str, list[int]]
_RanRow = tuple[str, str, float, float]
_RAN_DECODER = msgspec.msgpack.Decoder(_RanRow)
_DECODER = msgspec.msgpack.Decoder(
    tuple[
        str,
        bytes,
        str,
        str,
        int,
        bytes,
        str,
        str,
        bytes,
        bytes,
        str,
        list[_TensorRow],
        list[_TensorRow],
        _RanRow,
    ]
)


def _row(tensor: Described) -> list[str | bytes | list[int]]:
    return [tensor.blob_digest, tensor.content, tensor.dtype, list(tensor.shape)]


def _described(blob_digest: str, content: bytes, dtype: str, shape: list[int]) -> Described:
    if len(content) != 32 or dtype not in ITEM_BYTES or any(length < 0 for length in shape):
        raise DigestMismatch("A signed statement describes a tensor that cannot be")
    return Described(blob_digest=blob_digest, content=content, dtype=dtype, shape=tuple(shape))
