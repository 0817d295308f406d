"""Functions in a history: jobs of calls, what a sandbox would give for each, and how often each was made.

A call's argument is its own name, so that whoever runs it can say so. What it gives follows from the name alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from blake3 import blake3

from moregpu.encoding import Malformed
from moregpu.encoding.records import Status, read_records, record
from moregpu.jobs import Tensor
from moregpu.wire.messages import Assignment
from moregpu.workloads.function.plan import CALL_S
from moregpu.workloads.function.spec import ARGUMENTS, PROGRAM, RESULTS, CallPlan, FunctionSpec
from tests.simulation.script import Work

if TYPE_CHECKING:
    from tests.simulation.history import History

CALL = "call"
"""The operation of a work that is a function's."""

_ONCE = b"once "
_PROGRAM = b"the name of the call, hashed"


def names_of(work: Work, number: int) -> list[bytes]:
    """The calls of a piece of work."""
    head = _ONCE if work.once else b"call "
    return [head + f"{number}/{index}".encode() for index in range(work.size)]


def call_spec(work: Work, arguments: Tensor, number: int, **fields: Any) -> FunctionSpec:
    """The job."""
    program = Tensor(dtype="uint8", shape=(len(_PROGRAM),), data=_PROGRAM)
    return FunctionSpec(
        calls=tuple(map(len, names_of(work, number))),
        inputs={PROGRAM: program, ARGUMENTS: arguments},
        idempotent=not work.once,
        retries=work.retries,
        **fields,
    )


def results_of(names: list[bytes]) -> bytes:
    """The records of calls."""
    return b"".join(part for name in names for part in record(Status.VALUE, [blake3(name).digest(32)]))


def calls_in(assignment: Assignment, arguments: Any) -> list[bytes]:
    """The names of the calls that a task makes."""
    plan = msgspec.msgpack.decode(assignment.parameters, type=CallPlan)
    whole, place, names = bytes(arguments), 0, []
    for size in plan.calls:
        names.append(whole[place : place + size])
        place += size
    return names


def call_outputs(assignment: Assignment, inputs: Any) -> dict[str, Any]:
    """What a sandbox would give."""
    return {RESULTS: np.frombuffer(results_of(calls_in(assignment, inputs[ARGUMENTS])), "uint8")}


def calls_cost_s(assignment: Assignment) -> float:
    """Seconds that a task takes at the nominal speed."""
    return CALL_S * len(msgspec.msgpack.decode(assignment.parameters, type=CallPlan).calls)


class Runs:
    """How often each call was begun, on any machine."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._begun: dict[bytes, int] = {}

    def began(self, worker: str, names: list[bytes]) -> None:
        """A worker runs calls."""
        for name in names:
            times = self._begun[name] = self._begun.get(name, 0) + 1
            if times > 1 and name.startswith(_ONCE):
                self._history.watch.broken(f"9: {name.decode()!r} may run once, and runs again on {worker}")

    def times(self, name: bytes) -> int:
        """How often one was begun."""
        return self._begun.get(name, 0)


def wrong_results(history: History, work: Work, number: int, outputs: dict[str, Tensor]) -> str:
    """What is wrong with the results that a submitter was given; "" for nothing."""
    names = names_of(work, number)
    parts = [outputs[name] for name in sorted(outputs)]  # one, or one for each task under its first call
    whole = b"".join(history.coordinator.plain(part) for part in parts)
    try:
        made = list(_values(whole))
    except Malformed as error:
        return f"cannot be read: {error}"
    if made != [blake3(name).digest(32) for name in names]:
        return f"are wrong: {len(made)} of {len(names)}"
    never = [name for name in names if not history.watch.runs.times(name)]
    return f"are there, and {never[0].decode()!r} never ran" if never else ""


def _values(whole: bytes) -> Iterator[bytes]:
    for status, content in read_records(whole):
        if status is not Status.VALUE:
            raise Malformed("a call failed")
        yield bytes(content)
