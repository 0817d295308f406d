"""What a kind of job is: plan, cut, run, check, combine. Pure over arrays already opened; never sees a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from moregpu.jobs import Check, Evidence, JobCommon, Planned, Tensor

Array = Any
"""A NumPy array. Named so here because the agent and the SDK import this module, and must not import NumPy."""

NOMINAL_FLOPS = 20e9
"""Float operations a second of a worker that nobody has measured yet."""

NOMINAL_BYTES = 4e9
"""Bytes a second that such a worker moves through an elementwise operation."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What work costs. `speed_key` says which measured speed divides it (`"matmul.float32"`)."""

    flops: float = 0.0
    moved_bytes: float = 0.0
    speed_key: str = ""
    bound_by: str = "flops"  # "flops" or "bytes": the unit of the speed under `speed_key`

    @property
    def amount(self) -> float:
        """The figure that a speed divides."""
        return self.flops if self.bound_by == "flops" else self.moved_bytes


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must have to run a job's tasks."""

    kind: str
    engine: str = "auto"
    device: str | None = None
    group: str | None = None
    memory_bytes: int = 0
    cores: int = 0  # of a CPU
    vram_bytes: int = 0  # of a GPU
    own_code: bool = False
    """It runs its submitter's own code: a worker's owner says whose; a time limit is each grain's, and how long one
    takes is nobody's to foresee; and two owners' workers are believed that a failure is the task's fault."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A job cut into grains, numbered 0 to `grains` − 1. `layout` is the workload's own, plain data."""

    kind: str
    grains: int
    cost: Cost  # of the whole job
    needs: Needs
    layout: dict[str, Any]
    summary: str
    task_memory_bytes: int  # of one task of one grain
    outputs: dict[str, Planned] = {}  # of the whole job: a task may know its part by another shape

    @property
    def grain_amount(self) -> float:
        """Cost of a grain on average, in the plan's unit."""
        return self.cost.amount / self.grains if self.grains else 0.0


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A run of neighbouring grains, cut for one worker: everything its attempts will be assigned with."""

    kind: str
    program: bytes
    parameters: bytes  # canonical msgpack of a dict
    precision: str
    grains: tuple[int, int]  # half-open
    inputs: dict[str, Tensor]  # tensors with regions
    outputs: dict[str, Planned]
    cost: Cost
    seed: int = 0
    once: bool = False  # never run again where it may have run


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The workers there are, as planning sees them. All zero: nobody is here, plan with nominal speeds."""

    workers: int = 0
    median_speed: dict[str, float] = {}
    total_speed: dict[str, float] = {}


class WorkerProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, as cutting sees it."""

    speeds: dict[str, float] = {}
    result_bytes: dict[str, float] = {}  # of one call, by the speed key of its program; where one has been seen
    duty: float = 1.0
    memory_budget_bytes: int = 1 << 30

    def seconds(self, cost: Cost) -> float:
        """Expected wall time of `cost` here."""
        nominal = NOMINAL_FLOPS if cost.bound_by == "flops" else NOMINAL_BYTES
        return cost.amount / (self.speeds.get(cost.speed_key, nominal) * max(self.duty, 0.05))


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """An output that is wrong: proven, not suspected."""

    reason: str
    worst_ratio: float = 0.0  # largest |error| / bound; inf where not comparable


class Inline(NamedTuple):
    """A task whose tensors all travelled in messages, whole: their bytes by name, as long as `task` says."""

    task: TaskSpec
    inputs: Mapping[str, bytes]
    outputs: Mapping[str, bytes]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The accepted outputs of one task, opened on demand: `open()` gives the arrays by name."""

    task: TaskSpec
    open: Callable[[], Mapping[str, Array]]
    shapes: Mapping[str, tuple[int, ...]] = {}  # of its outputs, known without opening them


class OutputWriter(Protocol):
    """Where `combine` writes a job's outputs, in order, streaming."""

    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Start an output; the bytes that follow are its row-major content."""
        ...

    def write(self, data: Any) -> None:
        """Append bytes (any buffer) to the output begun last."""
        ...


class Slicer(Protocol):
    """The throttle, as an engine sees it."""

    slice_s: float  # aim: work between two calls of `pause_point` takes no longer (at most 0.05)

    def pause_point(self, share_done: float | None = None) -> None:
        """Between two slices: sleeps for the duty, blocks while paused, raises `TaskStopped` when cancelled."""
        ...


class TaskStopped(Exception):
    """The attempt was cancelled or its time is up; raised from `Slicer.pause_point`."""


class KernelEngine(Protocol):
    """Runs kernels on one device."""

    device: str
    memory_budget_bytes: int

    def run(
        self, operation: str, arrays: Mapping[str, Array], parameters: Mapping[str, Any], slicer: Slicer
    ) -> Mapping[str, Array]:
        """Run one operation. Raises `moregpu.errors.EngineError`, or `TaskStopped` from the slicer."""
        ...


class Tally(Protocol):
    """Counts the calls that failed in a task's outputs, which pass it piece by piece."""

    @property
    def failed(self) -> int:
        """How many failed."""
        ...

    def add(self, piece: bytes | bytearray | memoryview) -> None:
        """Take the next piece."""
        ...


Spec = TypeVar("Spec", bound=JobCommon, contravariant=True)


class Workload(Protocol[Spec]):
    """One kind of job. The first four are pure; `combine` streams."""

    kind: str
    by_digest: bool
    """Nobody looks into what its workers made, so nobody holds it: in place of arrays, `check` and `agree` get content
    digests, and a `Part` opens to iterables of buffers, each overwritten by the next."""

    def validate(self, spec: Spec) -> None:
        """Raise `moregpu.errors.InvalidJob` unless the job can run: shapes, dtypes, sizes, parameters."""
        ...

    def plan(self, spec: Spec, fleet: FleetSummary) -> Plan:
        """Cut a job into grains; works with nobody there."""
        ...

    def cut(self, spec: Spec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> TaskSpec:
        """Cut a task of about `budget_s` seconds on `worker` from grain `cursor` on: at least one grain."""
        ...

    def run(
        self, task: TaskSpec, inputs: Mapping[str, Array], engine: KernelEngine, slicer: Slicer
    ) -> Mapping[str, Array]:
        """Compute a task's outputs, in the worker's compute child."""
        ...

    def check(
        self,
        task: TaskSpec,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        level: Check,
        entropy: Callable[[int], bytes],
    ) -> Evidence | Rejected:
        """Judge a task's outputs against its inputs."""
        ...

    def check_alike(self, tasks: Sequence[Inline]) -> Sequence[Evidence | None]:
        """Evidence for those of many tiny tasks that are seen to be right when they are looked at together.

        None for each that must be judged alone, by `check`: nobody is found wrong here.
        """
        ...

    def tally(self) -> Tally | None:
        """What counts the calls that failed, for people: such outputs are as good as any. None: there are no calls."""
        ...

    def agree(
        self, task: TaskSpec, inputs: Mapping[str, Array], one: Mapping[str, Array], other: Mapping[str, Array]
    ) -> bool:
        """Whether two workers' outputs say the same: the judge of `check="agree"`, which knows no better answer."""
        ...

    def combine(self, plan: Plan, parts: Sequence[Part], out: OutputWriter) -> None:
        """Write the job's outputs from its tasks' outputs (in the order of their grains), opening few at a time."""
        ...

    def place(self, plan: Plan, task: TaskSpec) -> dict[str, tuple[tuple[int, int], ...]]:
        """Where a task's outputs belong in the job's: half-open ranges over one axis, or over rows × last axis."""
        ...

    def hands_through(self, size_bytes: int, parts: int) -> bool:
        """Whether a job's outputs stay in so many parts of so many bytes together, instead of being joined."""
        ...

    def registered(self, spec: Spec) -> str:
        """The name of the program that a person of this pool registered for its GPUs, if that is what a job runs.

        Such a program may be wrong itself, so nothing that comes of it on a GPU proves its worker wrong. Empty: the
        program is the pool's own, which is tested, or its submitter's (`Needs.own_code`).
        """
        ...

    def keeps_outputs(self, spec: Spec) -> bool:
        """Whether outputs are kept after the check (benchmark mode drops them)."""
        ...


def in_order(parts: Iterable[Part]) -> list[Part]:
    """Parts by their first grain."""
    return sorted(parts, key=lambda part: part.task.grains[0])
