"""Cut a task for one worker: a rectangle of the output, and the regions of the inputs that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from moregpu_kernels.operations import OUTPUT

from moregpu.jobs import ITEM_BYTES, Planned, Tensor
from moregpu.workloads.kernel.custom import CUSTOM, numbers_of, read_kernel
from moregpu.workloads.kernel.plan import TASK_BYTES, Grid, grid_of
from moregpu.workloads.protocol import Cost, Plan, TaskSpec, WorkerProfile

if TYPE_CHECKING:
    from collections.abc import Callable

    from moregpu.workloads.kernel.form import Form
    from moregpu.workloads.kernel.formulas import FormulaForm
    from moregpu.workloads.kernel.spec import KernelSpec

Range = tuple[int, int]

_canonical = msgspec.msgpack.Encoder(order="deterministic")


def cut_task(spec: KernelSpec, plan: Plan, cursor: int, worker: WorkerProfile, budget_s: float) -> TaskSpec:
    """Cut from grain `cursor` on what `worker` does in about `budget_s` seconds.

    At least one grain; otherwise no longer than the budget, no more bytes than 64 MiB or than the worker has. A task
    lies within one strip or is whole strips, so it is always a rectangle.
    """
    if not 0 <= cursor < plan.grains:
        raise ValueError(f"grain {cursor} of {plan.grains}")
    grid = grid_of(plan)
    grains = (cursor, cursor + _count(grid, cursor, plan, worker, budget_s))
    form = grid.form
    rows, columns, outputs, cost = _tile_of(plan, grid, grains)
    return TaskSpec(
        kind="kernel",
        program=_program(spec, form),
        parameters=_canonical.encode(_parameters(spec, form, rows, columns)),
        precision=form.dtype,  # how arrays are stored; sums are float32 always
        grains=grains,
        inputs={} if form.benchmark else _operands(spec, form, rows, columns),
        outputs=outputs,
        cost=cost,
        seed=spec.seed or 0,
    )


class _Tile(NamedTuple):
    """What a run of grains comes to in any job of a plan."""

    rows: Range
    columns: Range
    outputs: dict[str, Planned]
    cost: Cost


_latest: tuple[Plan | None, Range, _Tile | None] = (None, (0, 0), None)
"""Jobs that are alike share their plan, and most of those that come by the thousand have one task."""


def _tile_of(plan: Plan, grid: Grid, grains: Range) -> _Tile:
    global _latest
    known, of_grains, tile = _latest
    if known is not plan or of_grains != grains or tile is None:
        form, (rows, columns) = grid.form, grid.span(grains)
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        tile = _Tile(
            rows,
            columns,
            {OUTPUT: Planned(dtype=form.dtype, shape=form.operand_shape(OUTPUT, height, width))},
            Cost(
                flops=form.tile_flops(height, width),
                moved_bytes=float(form.tile_bytes(height, width)),
                speed_key=plan.cost.speed_key,
                bound_by=plan.cost.bound_by,
            ),
        )
        _latest = plan, grains, tile
    return tile


def _program(spec: KernelSpec, form: Form) -> bytes:
    """What a statement names as computed: the operation, and of a registered kernel exactly which."""
    if form.operation != CUSTOM:
        return form.operation.encode()
    return f"{CUSTOM}:{read_kernel(spec.source).digest}".encode()


def _count(grid: Grid, cursor: int, plan: Plan, worker: WorkerProfile, budget_s: float) -> int:
    """How many grains from `cursor` on."""
    if plan.grains - cursor == 1:
        return 1
    memory = min(TASK_BYTES, worker.memory_budget_bytes)
    unit = Cost(flops=1.0, moved_bytes=1.0, speed_key=plan.cost.speed_key, bound_by=plan.cost.bound_by)
    amount = budget_s / worker.seconds(unit)

    def fits(count: int) -> bool:
        rows, columns = grid.span((cursor, cursor + count))
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        return grid.form.tile_amount(height, width) <= amount and grid.form.tile_bytes(height, width) <= memory

    at = cursor % grid.width
    if at == 0:
        strips = _largest(fits, grid.strips - cursor // grid.width, grid.width)
        if strips:
            return strips
    return max(1, _largest(fits, grid.width - at, 1))


def _largest(fits: Callable[[int], bool], limit: int, step: int) -> int:
    """Largest multiple of `step`, up to `limit` of them, that fits; 0 for none. Cost and bytes grow with the count."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle - 1)
    return low * step


def _parameters(spec: KernelSpec, form: Form, rows: Range, columns: Range) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    if form.formula is not None:
        parameters["text"] = spec.formula
    if form.operation == CUSTOM:
        registered = read_kernel(spec.source)
        parameters |= {"text": registered.reference, "kernel": registered.source}
        parameters["numbers"] = numbers_of(registered, spec.numbers)
    if form.about.takes_scalar:
        parameters["scalar"] = spec.scalar
    if form.benchmark:
        # The data is made where it is needed: the region says which.
        parameters |= {"inner": form.inner, "rows": rows, "columns": columns}
    return parameters


def _operands(spec: KernelSpec, form: Form, rows: Range, columns: Range) -> dict[str, Tensor]:
    operands: dict[str, Tensor] = {}
    if form.formula is not None:
        return _formula_operands(spec, form.formula, rows)
    for name in form.about.inputs:
        tensor = spec.inputs[name]
        region: tuple[Range, ...]
        if form.about.form == "elements":
            region = (rows,)
        elif form.about.form == "rows":
            region = (rows, columns)
        else:
            region = (rows, (0, form.inner)) if name == "a" else ((0, form.inner), columns)
        whole = form.operand_shape(name, form.rows, form.columns)
        operands[name] = _part(
            tensor if tensor.shape == whole else msgspec.structs.replace(tensor, shape=whole), region
        )
    return operands


def _formula_operands(spec: KernelSpec, formula: FormulaForm, rows: Range) -> dict[str, Tensor]:
    operands: dict[str, Tensor] = {}
    for name, shape in formula.operands.items():
        tensor = msgspec.structs.replace(spec.inputs[name], shape=shape)
        if name in formula.cut and rows != (0, shape[0]):
            region = (rows, *((0, length) for length in shape[1:]))
            if isinstance(tensor.data, bytes):
                step = tensor.whole_bytes // shape[0] if shape[0] else 0
                data = tensor.data[rows[0] * step : rows[1] * step]
                tensor = Tensor(dtype=tensor.dtype, shape=(rows[1] - rows[0], *shape[1:]), data=data)
            else:
                tensor = msgspec.structs.replace(tensor, region=region)
        operands[name] = tensor
    return operands


def _part(tensor: Tensor, region: tuple[Range, ...]) -> Tensor:
    """The part of a tensor: a region of its blob, or exactly its own bytes when they travel inline."""
    if region == tuple((0, length) for length in tensor.shape):
        return tensor
    if not isinstance(tensor.data, bytes):
        return msgspec.structs.replace(tensor, region=region)
    item = ITEM_BYTES[tensor.dtype]
    (start, stop), rest = region[0], region[1:]
    if not rest:
        data = tensor.data[start * item : stop * item]
    else:
        row = tensor.shape[1] * item
        first, last = rest[0][0] * item, rest[0][1] * item
        data = b"".join(tensor.data[at * row + first : at * row + last] for at in range(start, stop))
    return Tensor(dtype=tensor.dtype, shape=tuple(end - begin for begin, end in region), data=data)
