"""What a job would do, in lines."""

from __future__ import annotations

from moregpu.wire.api import PlanView
from moregpu_tui.present.cells import Line
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.units import NOTHING, flops, plural, seconds, size
from moregpu_tui.state.model import PoolState


def plan_lines(plan: PlanView, state: PoolState, manner: Manner) -> list[Line]:
    """Grains, who could compute it, how long, and whether the smallest worker has the memory."""
    fitting = plan.fitting_workers
    lines: list[Line] = [
        ((plan.summary, "strong"),),
        (),
        _fact("work", flops(plan.flops)),
        _fact("moved", size(plan.moved_bytes)),
        _fact("cut into", plural(plan.grains, "grain")),
        (("workers   ", "dim"), (f"{plural(fitting, 'worker')} could compute it", "good" if fitting else "warn")),
        _fact("estimate", f"about {seconds(plan.estimate_s)}" if plan.estimate_s is not None else NOTHING),
        _fact("memory", f"{size(plan.task_memory_bytes)} for one task"),
    ]
    smallest = _smallest(state)
    if smallest is not None:
        name, memory = smallest
        enough = plan.task_memory_bytes <= memory
        sign = manner.glyphs.check if enough else manner.glyphs.cross
        lines.append(
            (("          ", "dim"),
             (f"{sign} the smallest worker, {name}, has {size(memory)}",
              "good" if enough else "warn"))
        )  # fmt: skip
    if plan.waiting_reason:
        lines += [(), ((f"{manner.glyphs.levels['warning']} would wait: {plan.waiting_reason}", "warn"),)]
    return lines


def _smallest(state: PoolState) -> tuple[str, int] | None:
    found = [
        (max(device.memory_bytes for device in worker.devices), worker.name)
        for worker in state.workers.values()
        if worker.takes_work and any(device.memory_bytes for device in worker.devices)
    ]
    if not found:
        return None
    memory, name = min(found)
    return name, memory


def _fact(name: str, value: str) -> Line:
    return ((f"{name:<10}", "dim"), (value, "text"))
