"""The leases of a worker: tasks that it has, results that it keeps until the coordinator's last word on them."""

from __future__ import annotations

import msgspec

from moregpu.jobs import size_bytes
from moregpu.wire.messages import MAX_INLINE_BYTES, Assignment, LeaseRef, ResultEntry

Key = tuple[str, int, bytes]
"""A lease's exact name, hashable: (task, attempt, token)."""


class Held(msgspec.Struct, kw_only=True):
    """A lease without a result yet."""

    assignment: Assignment
    ref: LeaseRef
    is_tiny: bool
    announce_at: float
    announced: bool = False  # Taken was sent
    begun_at: float | None = None
    begun_told: bool = False
    computed: bool = False
    progress_at: float = 0.0


class Kept(msgspec.Struct, kw_only=True):
    """A result without a last word."""

    entry: ResultEntry
    ref: LeaseRef
    made_at: float
    sent_at: float | None = None  # on this connection


def key_of(ref: LeaseRef) -> Key:
    """A lease's name, hashable."""
    return (ref.task, ref.attempt, ref.token)


def is_tiny(assignment: Assignment) -> bool:
    """Whether all values of a task travel inside messages."""
    for tensor in assignment.inputs.values():
        if not isinstance(tensor.data, bytes):
            return False
    outputs = 0
    for planned in assignment.outputs.values():
        if planned.most_bytes is None:
            outputs += size_bytes(planned.dtype, planned.shape)
    return outputs <= MAX_INLINE_BYTES
