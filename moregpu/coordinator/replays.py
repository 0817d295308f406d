"""Whether a submit under an idempotency key that was used before means the job that the key stands for.

A spec says the same when its fields do and its inputs hold the same values: a client that sends again may have sealed
and uploaded them anew, under another digest and key.
"""

from __future__ import annotations

import msgspec
from blake3 import blake3

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.opening import windows
from moregpu.coordinator.store.protocol import JobRow
from moregpu.errors import DigestMismatch
from moregpu.jobs import Tensor
from moregpu.workloads import JobSpec

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def wording(spec: JobSpec) -> bytes:
    """What a spec says beside its data, in 16 bytes: kept with its job, whose own spec is completed and may change."""
    bare = {name: msgspec.structs.replace(tensor, data=b"") for name, tensor in spec.inputs.items()}
    return blake3(_encode(msgspec.structs.replace(spec, inputs=bare) if bare else spec)).digest(16)


def says_the_same(row: JobRow, spec: JobSpec) -> bool:
    """Whether a spec says what the job's did, its data aside. Of a job of an earlier version nobody knows."""
    return not row.wording or row.wording == wording(spec)


def data_must_be_read(row: JobRow, spec: JobSpec) -> bool:
    """Whether only a look into the inputs tells if they are the same. Of a job that was purged nobody can tell."""
    return not row.purged and dict(row.spec.inputs) != dict(spec.inputs)


def holds_the_same(row: JobRow, spec: JobSpec, blobs: BlobFiles) -> bool:
    """Whether the inputs hold the same values. Blocks."""
    before, now = row.spec.inputs, spec.inputs
    return before.keys() == now.keys() and all(_alike(before[name], now[name], blobs) for name in now)


def _alike(before: Tensor, now: Tensor, blobs: BlobFiles) -> bool:
    if before == now:
        return True
    try:
        return _content(before, blobs) == _content(now, blobs)
    except DigestMismatch:  # one is gone, or damaged: they cannot be said to be the same
        return False


def _content(tensor: Tensor, blobs: BlobFiles) -> bytes:
    digest = blake3()
    for window in windows(tensor, blobs):
        digest.update(window)
    return digest.digest()
