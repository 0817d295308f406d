"""The kind `function`: calls are cut into tasks, run in a sandbox of the worker's, and joined in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from moregpu.encoding.failures import Failure, packed
from moregpu.encoding.records import RecordCounter, Status, record
from moregpu.errors import EngineError
from moregpu.jobs import Check, Evidence
from moregpu.workloads.function.cut import cut_task
from moregpu.workloads.function.plan import make_plan, refuse_invalid
from moregpu.workloads.function.spec import RESULTS, FunctionSpec
from moregpu.workloads.protocol import (
    Array,
    FleetSummary,
    Inline,
    KernelEngine,
    OutputWriter,
    Part,
    Plan,
    Rejected,
    Slicer,
    TaskSpec,
    WorkerProfile,
    Workload,
)

PARTED_BYTES = 1 << 20
MAX_PARTS = 500
_UNCHECKED = Evidence(kind="unchecked")


class FunctionWorkload:
    """`Workload[FunctionSpec]`."""

    kind = "function"
    by_digest = True

    def validate(self, spec: FunctionSpec) -> None:
        """See `plan.refuse_invalid`."""
        refuse_invalid(spec)

    def plan(self, spec: FunctionSpec, fleet: FleetSummary) -> Plan:
        """See `plan.make_plan`."""
        return make_plan(spec)

    def cut(self, spec: FunctionSpec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> TaskSpec:
        """See `cut.cut_task`."""
        return cut_task(spec, plan, cursor, worker, budget_s)

    def run(
        self, task: TaskSpec, inputs: Mapping[str, Array], engine: KernelEngine, slicer: Slicer
    ) -> Mapping[str, Array]:
        """Never in a compute child: a submitter's code runs in a sandbox alone (`moregpu.worker.functions`)."""
        raise EngineError("a function is not run beside kernels", "the worker gave it to the wrong child")

    def check(
        self,
        task: TaskSpec,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        level: Check,
        entropy: Callable[[int], bytes],
    ) -> Evidence | Rejected:
        """Nobody here may run a submitter's code, so nobody knows: `check="agree"` asks a second owner's worker."""
        return _UNCHECKED

    def check_alike(self, tasks: Sequence[Inline]) -> Sequence[Evidence | None]:
        """Of many nobody knows better than of one."""
        return [_UNCHECKED] * len(tasks)

    def tally(self) -> RecordCounter:
        """Of records, those of a failure."""
        return RecordCounter()

    def agree(
        self, task: TaskSpec, inputs: Mapping[str, Array], one: Mapping[str, Array], other: Mapping[str, Array]
    ) -> bool:
        """Whether two workers' records are the same bytes: of each, its digest."""
        return one.keys() == other.keys() and all(bytes(one[name]) == bytes(other[name]) for name in one)

    def combine(self, plan: Plan, parts: Sequence[Part], out: OutputWriter) -> None:
        """Join the records. A part that is not one for each call of its task would move those behind it."""
        sizes = [_size(part) for part in parts]
        instead = [b"" if size is not None else _unreadable(part.task) for size, part in zip(sizes, parts, strict=True)]
        out.begin(RESULTS, "uint8", (sum(size or 0 for size in sizes) + sum(map(len, instead)),))
        for part, size, failures in zip(parts, sizes, instead, strict=True):
            if size is None:
                out.write(failures)
                continue
            for window in part.open()[RESULTS]:
                out.write(window)

    def place(self, plan: Plan, task: TaskSpec) -> dict[str, tuple[tuple[int, int], ...]]:
        """Nobody knows before all are there; a part's `grains` say which calls it holds."""
        return {}

    def hands_through(self, size_bytes: int, parts: int) -> bool:
        """Records of a stream in parts are the stream; only small ones are joined, so that they need no blob each."""
        return size_bytes > PARTED_BYTES and parts <= MAX_PARTS

    def registered(self, spec: FunctionSpec) -> str:
        """A function is its submitter's."""
        return ""

    def keeps_outputs(self, spec: FunctionSpec) -> bool:
        """Always."""
        return True


def _size(part: Part) -> int | None:
    """Bytes of a part's records; None where they are not one for each call."""
    counter = RecordCounter()
    for window in part.open()[RESULTS]:
        counter.add(window)
    start, stop = part.task.grains
    return counter.size_bytes if counter.count == stop - start else None


def _unreadable(task: TaskSpec) -> bytes:
    """For each call of a task a record that says why there is none."""
    failure = Failure(cause="unencodable", text="the worker's answer cannot be read")
    start, stop = task.grains
    return b"".join(record(Status.FAILURE, packed(failure))) * (stop - start)


WORKLOAD: Workload[FunctionSpec] = FunctionWorkload()
