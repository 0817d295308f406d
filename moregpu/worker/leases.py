"""The leases of a worker: tasks that it has, results that it keeps until the coordinator's last word on them."""

from __future__ import annotations

import math

import msgspec

from moregpu.jobs import size_bytes
from moregpu.wire.messages import MAX_INLINE_BYTES, Assignment, LeaseRef, ResultEntry

Key = tuple[str, int, bytes]
"""A lease's exact name, hashable: (task, attempt, token)."""

HAND_BACK_S = 60.0
"""A task that is frozen by a pause for so long is handed back: somebody waits for it."""

LAST_S = 600.0
"""What may run only once and has begun stays for so long. Then it is given up, and is lost when its lease runs out: who
waits for it can be told, and only they know what it did."""


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

    @property
    def must_stay(self) -> bool:
        """Whether nobody else may run it any more: it may run only once, and did so here at least in part."""
        return self.assignment.once and self.begun_at is not None

    @property
    def patience_s(self) -> float:
        """How long it stays here, frozen by a pause."""
        if self.computed:
            return math.inf
        return LAST_S if self.must_stay else HAND_BACK_S


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
