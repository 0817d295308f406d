"""How a worker behaves: honest, slow, lying in several ways, failing everything, claiming the absurd."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from moregpu.wire.messages import Assignment, Device, FromWorker, Result, ResultEntry, TaskError
from moregpu.wire.session import pack_result
from moregpu.worker.engines.numpy_engine import NumpyEngine
from moregpu.workloads import workload
from moregpu.workloads.kernel.run import operands_of
from moregpu.workloads.protocol import NOMINAL_BYTES, NOMINAL_FLOPS
from tests.rogue.workers import CPU, Unthrottled, task_of
from tests.simulation.calls import call_outputs, calls_cost_s

if TYPE_CHECKING:
    from tests.simulation.worker import Agent

SLOWNESS = 2e5
"""Simulated machines are so many times slower than real ones: small arrays make jobs of seconds in many grains."""

FLOPS = NOMINAL_FLOPS / SLOWNESS
BYTES = NOMINAL_BYTES / SLOWNESS
_ENGINE = NumpyEngine()

Arrays = Mapping[str, Any]


def honest_outputs(assignment: Assignment, inputs: Arrays) -> dict[str, Any]:
    """What the real workload computes on the real engine; products in one order of summation.

    BLAS rounds as the addresses of its operands happen to be aligned, and a seed must give the same bytes every time.
    """
    if assignment.kind == "function":
        return call_outputs(assignment, inputs)
    if assignment.program == b"matmul":
        operands = operands_of(task_of(assignment), inputs)
        a, b = operands["a"].astype("float64"), operands["b"].astype("float64")
        return {"out": (a[:, :, None] * b[None]).sum(axis=1).astype("float32")}
    return dict(workload(assignment.kind).run(task_of(assignment), inputs, _ENGINE, Unthrottled()))


def cost_s(assignment: Assignment) -> float:
    """Seconds that a task takes at the nominal speed."""
    if assignment.kind == "function":
        return calls_cost_s(assignment)
    sizes = [math.prod(tensor.part_shape) for tensor in assignment.inputs.values()]
    sizes += [math.prod(planned.shape) for planned in assignment.outputs.values()]
    if assignment.program == b"matmul" and len(sizes) == 3:
        return 2.0 * math.sqrt(float(sizes[0]) * sizes[1] * sizes[2]) / FLOPS
    return 4.0 * sum(sizes) / BYTES


KERNELS = ("kernel",)
"""What those take who hand in other numbers than they computed: nobody could tell it of a function's."""


class Behaviour:
    """An honest worker."""

    lies = False
    kinds: tuple[str, ...] = ("kernel", "function")
    device: Device = CPU

    def assigned(self, agent: Agent, assignment: Assignment) -> None:
        """It was given a task."""

    def fails(self, agent: Agent, assignment: Assignment) -> TaskError | None:
        """An error instead of work."""
        return None

    def seconds(self, agent: Agent, assignment: Assignment) -> float:
        """How long a task takes."""
        return cost_s(assignment) / agent.worker.machine.speed * agent.random.uniform(0.8, 1.5)

    def claimed_s(self, seconds: float) -> float:
        """How long it says that it took."""
        return seconds

    def outputs(self, agent: Agent, assignment: Assignment, honest: dict[str, Any]) -> dict[str, Any]:
        """What it hands in."""
        return honest

    def says(self, agent: Agent, message: FromWorker) -> FromWorker:
        """What it sends instead of a message."""
        return message


class Hasty(Behaviour):
    """Honest, and resends all it holds whenever it can."""

    def says(self, agent: Agent, message: FromWorker) -> FromWorker:
        if isinstance(message, Result) and agent.random.random() < 0.3:
            agent.loop.call_later(agent.random.uniform(0.0, 2.0), agent.resend)
        return message


class Zeros(Behaviour):
    """All zeros."""

    lies = True
    kinds = KERNELS

    def outputs(self, agent: Agent, assignment: Assignment, honest: dict[str, Any]) -> dict[str, Any]:
        return {name: np.zeros_like(array) for name, array in honest.items()}


class Scaled(Behaviour):
    """One per cent too large."""

    lies = True
    kinds = KERNELS

    def outputs(self, agent: Agent, assignment: Assignment, honest: dict[str, Any]) -> dict[str, Any]:
        return {name: (array * array.dtype.type(1.01)).astype(array.dtype) for name, array in honest.items()}


class NaN(Behaviour):
    """One NaN among what is right."""

    lies = True
    kinds = KERNELS

    def outputs(self, agent: Agent, assignment: Assignment, honest: dict[str, Any]) -> dict[str, Any]:
        for array in honest.values():
            if array.size:
                array.reshape(-1)[agent.random.randrange(array.size)] = np.nan
        return honest


class Yesterday(Behaviour):
    """Honest at first, then hands in an earlier result again and again."""

    lies = True
    kinds = KERNELS

    def __init__(self) -> None:
        self.earlier: list[dict[str, Any]] = []

    def outputs(self, agent: Agent, assignment: Assignment, honest: dict[str, Any]) -> dict[str, Any]:
        if len(self.earlier) < 3:
            self.earlier.append({name: array.copy() for name, array in honest.items()})
            return honest
        return {name: np.resize(self.earlier[0][name], array.shape) for name, array in honest.items()}


class BlackHole(Behaviour):
    """Fails everything at once, and says whose fault it was."""

    lies = True

    def fails(self, agent: Agent, assignment: Assignment) -> TaskError | None:
        fault = agent.random.choice(("engine", "engine", "task"))
        return TaskError(code="engine-error", message="no", fault=fault)


class Unsigned(Behaviour):
    """Signs its results with 64 bytes that are no signature."""

    lies = True

    def says(self, agent: Agent, message: FromWorker) -> FromWorker:
        return Result(entries=message.entries, signature=bytes(64)) if isinstance(message, Result) else message


class Replays(Behaviour):
    """Honest work, but every old result is sent again beside the new ones, long after its last word."""

    lies = True

    def __init__(self) -> None:
        self.old: list[ResultEntry] = []

    def says(self, agent: Agent, message: FromWorker) -> FromWorker:
        if not isinstance(message, Result):
            return message
        fresh = {(entry.task, entry.attempt, entry.token) for entry in message.entries}
        again = [entry for entry in self.old[-6:] if (entry.task, entry.attempt, entry.token) not in fresh]
        self.old += message.entries
        return _packed(agent, [*again, *message.entries]) or message


class Steals(Behaviour):
    """Claims every task that any worker of this pool was ever given, as its own."""

    lies = True

    def says(self, agent: Agent, message: FromWorker) -> FromWorker:
        if not isinstance(message, Result):
            return message
        stolen = [
            ResultEntry(
                task=other.task,
                attempt=other.attempt,
                token=other.token,
                statement=message.entries[0].statement,
                outputs=message.entries[0].outputs,
            )
            for other in agent.history.watch.seen[-3:]
        ]
        return _packed(agent, [*message.entries, *stolen]) or message


class Absurd(Behaviour):
    """Answers at once, and claims a petabyte and a thousand cores."""

    device = Device(
        id="cpu", kind="cpu", name="wonder", driver="1", engine="numpy", memory_bytes=1 << 52, cores=1 << 40
    )

    def seconds(self, agent: Agent, assignment: Assignment) -> float:
        return 0.0

    def claimed_s(self, seconds: float) -> float:
        return 0.0


KINDS: dict[str, type[Behaviour]] = {
    "honest": Behaviour,
    "slow": Behaviour,
    "hasty": Hasty,
    "zeros": Zeros,
    "scaled": Scaled,
    "yesterday": Yesterday,
    "nan": NaN,
    "black hole": BlackHole,
    "unsigned": Unsigned,
    "replays": Replays,
    "steals": Steals,
    "absurd": Absurd,
}


def _packed(agent: Agent, entries: Sequence[ResultEntry]) -> Result | None:
    """One signed message of all entries, where they fit."""
    packed = pack_result(entries, agent.session._sign)
    return packed[0] if len(packed) == 1 else None
