"""The kind `kernel`: nine operations, cut into rectangles, checked in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from moregpu.jobs import Check, Evidence
from moregpu.workloads.kernel.agree import agree
from moregpu.workloads.kernel.alike import check_alike
from moregpu.workloads.kernel.check import check_task
from moregpu.workloads.kernel.combine import combine_parts
from moregpu.workloads.kernel.custom import CUSTOM
from moregpu.workloads.kernel.cut import cut_task
from moregpu.workloads.kernel.form import form_of
from moregpu.workloads.kernel.plan import make_plan, place_of
from moregpu.workloads.kernel.run import run_task
from moregpu.workloads.kernel.spec import KernelSpec
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


class KernelWorkload:
    """`Workload[KernelSpec]`; each method is the module of its name."""

    kind = "kernel"
    by_digest = False

    def validate(self, spec: KernelSpec) -> None:
        """See `form.form_of`."""
        form_of(spec)

    def plan(self, spec: KernelSpec, fleet: FleetSummary) -> Plan:
        """See `plan.make_plan`."""
        return make_plan(spec, fleet)

    def cut(self, spec: KernelSpec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> TaskSpec:
        """See `cut.cut_task`."""
        return cut_task(spec, plan, cursor, worker, budget_s)

    def run(
        self, task: TaskSpec, inputs: Mapping[str, Array], engine: KernelEngine, slicer: Slicer
    ) -> Mapping[str, Array]:
        """See `run.run_task`."""
        return run_task(task, inputs, engine, slicer)

    def check(
        self,
        task: TaskSpec,
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        level: Check,
        entropy: Callable[[int], bytes],
    ) -> Evidence | Rejected:
        """See `check.check_task`."""
        return check_task(task, inputs, outputs, level, entropy)

    def check_alike(self, tasks: Sequence[Inline]) -> Sequence[Evidence | None]:
        """See `alike.check_alike`."""
        return check_alike(tasks)

    def tally(self) -> None:
        """A kernel makes no calls."""

    def agree(
        self, task: TaskSpec, inputs: Mapping[str, Array], one: Mapping[str, Array], other: Mapping[str, Array]
    ) -> bool:
        """See `agree.agree`."""
        return agree(task, inputs, one, other)

    def combine(self, plan: Plan, parts: Sequence[Part], out: OutputWriter) -> None:
        """See `combine.combine_parts`."""
        combine_parts(plan, parts, out)

    def place(self, plan: Plan, task: TaskSpec) -> dict[str, tuple[tuple[int, int], ...]]:
        """See `plan.place_of`."""
        return place_of(plan, task.grains)

    def hands_through(self, size_bytes: int, parts: int) -> bool:
        """An array is one array."""
        return False

    def registered(self, spec: KernelSpec) -> str:
        """WGSL that an admin registered; CPUs compute its reference, which is ours."""
        return spec.kernel if spec.operation == CUSTOM else ""

    def keeps_outputs(self, spec: KernelSpec) -> bool:
        """Benchmark outputs are checked and dropped."""
        return spec.size is None


WORKLOAD: Workload[KernelSpec] = KernelWorkload()
