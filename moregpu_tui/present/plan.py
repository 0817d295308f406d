"""What a job would do, in lines."""

from __future__ import annotations

from moregpu.wire.api import PlanView
from moregpu_tui.present.cells import Line, Piece
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.units import NOTHING, flops, plural, seconds, size
from moregpu_tui.state.model import PoolState


def plan_lines(plan: PlanView, state: PoolState, manner: Manner, *, short: bool = False) -> list[Line]:
    """Grains, who could compute it, how long, and whether the smallest worker has the memory. `short`: five lines."""
    fitting = plan.fitting_workers
    if short:
        return _short(plan, state, manner)
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
        lines.append((("          ", "dim"), _enough(plan, smallest, manner)))
    if plan.waiting_reason:
        lines += [(), ((f"{manner.glyphs.levels['warning']} would wait: {plan.waiting_reason}", "warn"),)]
    return lines


def _short(plan: PlanView, state: PoolState, manner: Manner) -> list[Line]:
    fitting = plan.fitting_workers
    smallest = _smallest(state)
    lines: list[Line] = [
        ((plan.summary, "strong"),),
        (("work ", "dim"), (flops(plan.flops), "text"), ("   moved ", "dim"), (size(plan.moved_bytes), "text"),
         ("   cut into ", "dim"), (plural(plan.grains, "grain"), "text")),
        (("time ", "dim"), (f"about {seconds(plan.estimate_s)}" if plan.estimate_s is not None else NOTHING, "text"),
         ("   on ", "dim"), (plural(fitting, "worker"), "good" if fitting else "warn"),
         ("   memory of a task ", "dim"), (size(plan.task_memory_bytes), "text")),
    ]  # fmt: skip
    if smallest is not None:
        lines.append((_enough(plan, smallest, manner),))
    if plan.waiting_reason:
        lines.append(((f"{manner.glyphs.levels['warning']} would wait: {plan.waiting_reason}", "warn"),))
    return lines


def _enough(plan: PlanView, smallest: tuple[str, int], manner: Manner) -> Piece:
    name, memory = smallest
    enough = plan.task_memory_bytes <= memory
    sign = manner.glyphs.check if enough else manner.glyphs.cross
    return (f"{sign} the smallest, {name}, has {size(memory)}", "good" if enough else "warn")


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
