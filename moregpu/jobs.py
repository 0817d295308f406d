"""The vocabulary of jobs: data, common fields, states and the only legal moves between them.

The kinds of job live in their workload's `spec.py`; `moregpu.workloads` builds their union. Everything here is frozen
data that is wire message, HTTP body, configuration and form at once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

DType = Literal["float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]

ITEM_BYTES: dict[str, int] = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float64": 8,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes an element takes; the only table that sizes are computed from. A dtype's text never reaches `np.dtype`."""

MAX_ELEMENTS = 1 << 40
MAX_AXES = 8


# ---- data ------------------------------------------------------------------------------------------------------------


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """Sealed bytes kept beside the messages: the name of the sealed bytes, and the key that opens them."""

    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="BLAKE3 of the sealed bytes, in hex")]
    key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    size_bytes: Annotated[int, Meta(ge=0, description="length of the plain bytes")]


class Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """An array: the only way that data is named, anywhere. Row-major, little-endian.

    `data` holds the bytes themselves (small tensors, inline) or names a blob. With `region` it means a part of the
    array: one half-open range for each axis of `shape`.
    """

    dtype: DType
    shape: Annotated[tuple[Annotated[int, Meta(ge=0, le=MAX_ELEMENTS)], ...], Meta(max_length=MAX_AXES)]
    data: Blob | bytes
    region: tuple[tuple[int, int], ...] | None = None

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Shape of what is meant: the region's, or the whole."""
        return self.shape if self.region is None else tuple(stop - start for start, stop in self.region)

    @property
    def part_bytes(self) -> int:
        """Bytes of what is meant."""
        return size_bytes(self.dtype, self.part_shape)

    @property
    def whole_bytes(self) -> int:
        """Bytes of the whole array."""
        return size_bytes(self.dtype, self.shape)


class Planned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An output that a task is to produce, known before it runs.

    With `most_bytes` its size is open: a line (one axis) of any length up to so many bytes, and `shape` says nothing.
    """

    dtype: DType
    shape: tuple[int, ...]
    most_bytes: Annotated[int, Meta(ge=0)] | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes it takes; of an open output, at most."""
        return size_bytes(self.dtype, self.shape) if self.most_bytes is None else self.most_bytes

    def admits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Whether an array of that dtype and shape is what was planned."""
        if self.most_bytes is None:
            return dtype == self.dtype and shape == self.shape
        return dtype == self.dtype and len(shape) == 1 and 0 <= size_bytes(dtype, shape) <= self.most_bytes


def size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of an array, in Python integers: checked before anything is allocated."""
    size = ITEM_BYTES[dtype]
    for length in shape:
        size *= length
    return size


# ---- what every job says ---------------------------------------------------------------------------------------------

Check = Literal["none", "spot", "full", "agree"]
Engine = Literal["auto", "gpu", "cpu"]
WEEK_S = 7 * 86400.0
MAX_COUNT = (1 << 53) - 1
"""Of bytes: what every reader of JSON tells apart, and more than any machine has."""


class JobCommon(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that every kind of job has."""

    name: Annotated[str, Meta(title="Name", description="Shown in lists", max_length=200)] = ""
    group: (
        Annotated[str, Meta(title="Group", description="Run only on workers of this group", max_length=100)] | None
    ) = None
    priority: Annotated[
        int,
        Meta(
            title="Priority",
            description="A point goes before your own jobs that are up to an hour older",
            ge=-100,
            le=100,
        ),
    ] = 0
    after: Annotated[
        tuple[str, ...], Meta(title="After", description="Jobs that must be done first", max_length=64)
    ] = ()
    check: Annotated[
        Check, Meta(title="Check", description="How results are checked", extra_json_schema={"widget": "select"})
    ] = "spot"
    engine: Annotated[Engine, Meta(title="Engine", extra_json_schema={"widget": "select"})] = "auto"
    device: Annotated[str, Meta(title="Device", description="Part of the device's name", max_length=200)] | None = None
    memory_bytes: Annotated[int, Meta(title="Memory", description="What one task needs", ge=0, le=MAX_COUNT)] | None = (
        None
    )
    time_limit_s: Annotated[float, Meta(title="Time limit", description="Seconds for one task", gt=0)] | None = None
    retries: Annotated[int, Meta(title="Retries", description="Failed attempts before a task fails", ge=0, le=20)] = 4
    keep_s: Annotated[float, Meta(title="Keep", description="Seconds that outputs are kept after the end", ge=0)] = (
        WEEK_S
    )
    seed: Annotated[int, Meta(title="Seed", ge=0, le=(1 << 63) - 1)] | None = None


# ---- states and the only legal moves ---------------------------------------------------------------------------------


class JobState(StrEnum):
    """Where a job stands."""

    QUEUED = "queued"  # accepted and durable; no task has been leased yet
    RUNNING = "running"  # at least one task was leased
    DONE = "done"  # every task's output was accepted, and the result is there
    FAILED = "failed"  # a task failed for good; the error says why
    CANCELLED = "cancelled"  # its submitter or an admin ended it


class TaskState(StrEnum):
    """Where a task stands. A task exists from its first lease on; before, it is grains of a plan."""

    WAITING = "waiting"  # handed back or lost: to be leased again
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """Where one lease of a task stands."""

    ASSIGNED = "assigned"  # sent; not confirmed by the worker
    STARTED = "started"  # taken; queued or running on the worker
    RETURNED = "returned"  # a result came and is being checked
    ACCEPTED = "accepted"
    REJECTED = "rejected"  # failed, or its output was wrong
    LOST = "lost"  # lease expired, socket gone, handed back, superseded


JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED}),
    JobState.DONE: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}
TASK_MOVES: dict[TaskState, frozenset[TaskState]] = {
    TaskState.WAITING: frozenset({TaskState.LEASED, TaskState.FAILED, TaskState.CANCELLED}),
    TaskState.LEASED: frozenset({TaskState.WAITING, TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED}),
    TaskState.DONE: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELLED: frozenset(),
}
ATTEMPT_MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.ASSIGNED: frozenset({AttemptState.STARTED, AttemptState.RETURNED, AttemptState.LOST}),
    AttemptState.STARTED: frozenset({AttemptState.RETURNED, AttemptState.LOST}),
    AttemptState.RETURNED: frozenset({AttemptState.ACCEPTED, AttemptState.REJECTED, AttemptState.LOST}),
    AttemptState.ACCEPTED: frozenset(),
    AttemptState.REJECTED: frozenset(),
    # An expired lease is honoured until its token is replaced: its result counts, and its worker may hold it again.
    AttemptState.LOST: frozenset({AttemptState.RETURNED, AttemptState.STARTED}),
}
JOB_ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})
TASK_ENDED = frozenset({TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED})


class IllegalMove(AssertionError):
    """The program tried a move that the tables above do not know: a bug, never a user's mistake."""


_TABLES: tuple[dict[StrEnum, frozenset[StrEnum]], ...] = ({**JOB_MOVES}, {**TASK_MOVES}, {**ATTEMPT_MOVES})
_LEGAL = frozenset((id(old), id(new)) for table in _TABLES for old, states in table.items() for new in states)
"""The same by identity, which every member of an enum has to itself: six moves are looked up for each task, and hashing
a member runs a function of Python."""


def check_move(old: StrEnum, new: StrEnum) -> None:
    """Raise `IllegalMove` unless `old` may become `new`."""
    if (id(old), id(new)) not in _LEGAL:
        raise IllegalMove(f"{type(old).__name__}: {old} → {new}")


# ---- evidence --------------------------------------------------------------------------------------------------------

EvidenceKind = Literal["recomputed", "freivalds", "sampled", "agreed", "audited", "unchecked", "suspect"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """How a result was checked (`docs/architecture.md`, Evidence). `checked` is derived, never claimed."""

    kind: EvidenceKind
    vectors: int = 0  # freivalds: how many
    rows: int = 0  # sampled, freivalds: rows judged
    probability: float = 0.0  # sampled: the chance to have found what it looks for
    workers: tuple[str, ...] = ()  # agreed
    worst_ratio: float = 0.0  # largest |error| / bound that was seen; at most 1 when checked

    @property
    def checked(self) -> bool:
        """Whether this counts as checked, as every face of the pool shows it."""
        if self.kind == "sampled":
            return self.probability >= 0.99
        return self.kind in ("recomputed", "freivalds", "agreed", "audited")
