"""A result before its judge: the rows that it is judged by, what can be wrong with it, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moregpu.coordinator.decisions import Held
from moregpu.coordinator.store.protocol import Completed, JobRow, TaskRow
from moregpu.errors import DigestMismatch
from moregpu.jobs import Blob, Evidence, Planned, Tensor
from moregpu.wire.messages import Assignment, LeaseRef, ResultEntry
from moregpu.wire.statement import Described, Ran, read_ran_and_outputs


class Wrong(Exception):
    """An entry that must not be accepted.

    `proven`: the outputs themselves are wrong, and by nobody's fault but the worker's. `doubtful`: they are, but the
    task's program may be why.
    """

    def __init__(self, code: str, message: str, *, proven: bool = False, doubtful: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.proven = proven
        self.doubtful = doubtful


class InputLost(Exception):
    """An input cannot be opened any more: no worker can mend that."""


class Sound(msgspec.Struct, frozen=True, kw_only=True):
    """What a judged entry came to when nothing was wrong with it."""

    evidence: Evidence
    ran: Ran
    content: str  # digest over the plain outputs, as a job's result names it
    plain: Mapping[str, Any]
    voters: tuple[str, ...] | None = None
    """Where two owners must agree: those whose earlier results say the same; none yet when empty."""
    failed_calls: int = 0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One entry with the rows that it is judged by: from the store, or a trial's own."""

    entry: ResultEntry
    index: int
    seconds: float
    job: JobRow
    task: TaskRow
    assignment: Assignment
    held: Held | None
    is_blamed: bool = False
    """Whether a worker of another owner blamed the task before, in the same words as this entry."""

    @property
    def is_whole(self) -> bool:
        """Whether the task is all of its job."""
        return self.task.spec.grains == (0, self.job.plan.grains)

    @property
    def ref(self) -> LeaseRef:
        """The lease."""
        return LeaseRef(task=self.entry.task, attempt=self.entry.attempt, token=self.entry.token)


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one entry."""

    ref: LeaseRef
    completed: Completed
    failed: bool = False  # counts against the worker
    amount: float = 0.0
    speed_key: str = ""
    seconds: float = 0.0
    worked_s: float = 0.0  # as its worker says: set-up left out
    duty: float = 1.0
    fresh: bool = False  # accepted now, not long ago: counts once
    units: int = 0  # elements of its outputs
    made_bytes: int = 0  # of outputs whose size nobody knew before
    flops: float = 0.0
    device: str = ""  # as its worker says


def claims(entry: ResultEntry) -> tuple[list[Described], Ran]:
    """What an entry's statement says of its outputs and of how they were made. Raises `Wrong`."""
    try:
        return read_ran_and_outputs(entry.statement)
    except DigestMismatch as error:
        raise Wrong("wrong-statement", error.detail) from error


def refuse_unplanned(name: str, planned: Planned, given: Tensor | None) -> None:
    """Raise `Wrong` for an output that is missing, or of another type, shape or length than was planned."""
    if given is None:
        raise Wrong("wrong-outputs", f"the output {name!r} is missing")
    if not planned.admits(given.dtype, given.shape) or given.region is not None:
        wanted = planned.shape if planned.most_bytes is None else f"at most {planned.most_bytes} bytes"
        raise Wrong(
            "wrong-outputs",
            f"{name!r} is {given.dtype} of shape {given.shape}; {planned.dtype} of {wanted} was planned",
        )
    length = given.data.size_bytes if isinstance(given.data, Blob) else len(given.data)
    if length != given.whole_bytes:
        raise Wrong("wrong-outputs", f"{name!r} holds {length} bytes")
