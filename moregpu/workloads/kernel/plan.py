"""Cut a kernel job into a grid of grains.

Grains are numbered row-major. A strip is one row of the grid: all columns of a band of rows. Elementwise and row-wise
jobs have one grain a strip.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from moregpu_kernels.operations import OUTPUT

from moregpu.jobs import Engine, Planned
from moregpu.workloads.kernel.form import Form, form_of
from moregpu.workloads.protocol import NOMINAL_BYTES, NOMINAL_FLOPS, Cost, FleetSummary, Needs, Plan

if TYPE_CHECKING:
    from moregpu.workloads.kernel.spec import KernelSpec

GRAIN_S = 0.1
"""Longest grain on the median worker …"""
GRAIN_MIN_S = 0.002
"""… and shortest, while there are fewer than …"""
GRAINS_WANTED = 16

TASK_BYTES = 64 << 20
"""Inputs and outputs of one task, unless a single grain is larger; also a whole strip of the output, so that
combining never holds more."""

GRAIN_BYTES = 16 << 20
"""Inputs and outputs of one grain: a quarter of a task, so that tasks can follow the speed of workers."""

RECORD_BYTES = 1 << 20
"""Blobs are sealed in records of this size (`moregpu.blobs.format`); grains that end on them share no record."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The layout of a plan: a form, and the size of its tiles."""

    form: Form
    tile_rows: int
    tile_columns: int

    @property
    def strips(self) -> int:
        """Rows of the grid; at least one, so that an empty job too has its task."""
        return max(1, -(-self.form.rows // self.tile_rows))

    @property
    def width(self) -> int:
        """Columns of the grid."""
        return max(1, -(-self.form.columns // self.tile_columns))

    def span(self, grains: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows and columns of the output that a run of grains covers: within one strip, or whole strips."""
        first, last = grains[0], grains[1] - 1
        strip, stop_strip = first // self.width, last // self.width
        column, stop_column = (first % self.width, last % self.width) if strip == stop_strip else (0, self.width - 1)
        return (
            (strip * self.tile_rows, min((stop_strip + 1) * self.tile_rows, self.form.rows)),
            (column * self.tile_columns, min((stop_column + 1) * self.tile_columns, self.form.columns)),
        )


def grid_of(plan: Plan) -> Grid:
    """Read a plan's layout."""
    known = _GRIDS.get(id(plan))
    if known is not None and known[0] is plan:
        return known[1]
    grid = msgspec.convert(plan.layout, Grid)
    if len(_GRIDS) >= _GRIDS_KEPT:
        _GRIDS.clear()
    _GRIDS[id(plan)] = plan, grid
    return grid


_GRIDS: dict[int, tuple[Plan, Grid]] = {}
_GRIDS_KEPT = 64
"""A plan is read for every task that is cut from it, and jobs that are alike share theirs. By identity: a layout is a
dictionary, which no cache can look up, and nobody changes one."""


def place_of(plan: Plan, grains: tuple[int, int]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Where the outputs of a run of grains belong: ranges of elements, or of rows and columns."""
    grid = grid_of(plan)
    rows, columns = grid.span(grains)
    if grid.form.about.form != "elements":
        return {OUTPUT: (rows, columns)}
    step = grid.form.columns  # more than 1 where a formula is cut along its first axis
    return {OUTPUT: ((rows[0] * step, rows[1] * step),)}


def make_plan(spec: KernelSpec, fleet: FleetSummary) -> Plan:
    """Plan a job for a fleet, or for nominal workers when nobody is there.

    Grains take about 0.1 s on the median worker, less (down to 2 ms) until there are 16 of them. Raises `InvalidJob`
    and `TooLarge` as `form_of` does.
    """
    form = form_of(spec)
    key = f"{spec.kernel or form.operation}.{form.dtype}"
    by_flops = form.about.bound_by == "flops"
    speed = fleet.median_speed.get(key, 0.0) or (NOMINAL_FLOPS if by_flops else NOMINAL_BYTES)
    plan_of = _plan_of if form.formula is None else _plan_of.__wrapped__  # a formula's operands cannot be looked up
    return plan_of(form, key, speed, spec.engine, spec.device, spec.group, spec.memory_bytes)


@lru_cache(64)
def _plan_of(
    form: Form, key: str, speed: float, engine: Engine, device: str | None, group: str | None, memory_bytes: int | None
) -> Plan:
    """The plan of all jobs that are alike: one object, worked out once."""
    total = form.tile_amount(form.rows, form.columns)
    aim = min(max(total / GRAINS_WANTED, GRAIN_MIN_S * speed), GRAIN_S * speed)
    rows, columns = _product_tile(form, aim) if form.about.form == "product" else (_band(form, aim), form.columns)
    grid = Grid(form=form, tile_rows=max(1, rows), tile_columns=max(1, columns))
    grains = grid.strips * grid.width
    (row, stop_row), (column, stop_column) = grid.span((0, 1))
    memory = form.tile_bytes(stop_row - row, stop_column - column)
    return Plan(
        kind="kernel",
        grains=grains,
        cost=Cost(
            flops=form.tile_flops(form.rows, form.columns),
            moved_bytes=float(form.tile_bytes(form.rows, form.columns)),
            speed_key=key,
            bound_by=form.about.bound_by,
        ),
        needs=Needs(
            kind="kernel",
            engine=engine,
            device=device,
            group=group,
            memory_bytes=max(memory_bytes or 0, memory),
        ),
        layout=msgspec.json.decode(msgspec.json.encode(grid)),  # lists, as the store gives them back
        summary=_summary(grid, grains),
        task_memory_bytes=memory,
        outputs={OUTPUT: Planned(dtype=form.dtype, shape=form.shape)},
    )


def _band(form: Form, aim: float) -> int:
    """Rows of a grain of an elementwise or row-wise job whose cost is about `aim` bytes."""
    row_bytes = max(1, form.tile_bytes(1, form.columns))
    rows = max(1, int(min(aim, GRAIN_BYTES) // row_bytes))
    record = max(1, RECORD_BYTES // max(1, form.item_bytes * form.columns))
    step = record if rows >= record else min(1024, rows)
    rows = -(-rows // step) * step
    if form.tile_bytes(rows, form.columns) > TASK_BYTES:
        rows = max(1, TASK_BYTES // row_bytes)
    return min(rows, max(1, form.rows))


def _product_tile(form: Form, aim: float) -> tuple[int, int]:
    """Tile of a product that costs about `aim` flops: near a square (least input for its work), evenly divided."""
    area = max(1.0, min(aim / (2.0 * max(form.inner, 1)), GRAIN_BYTES / form.item_bytes))
    side = math.sqrt(area)
    rows = min(max(form.rows, 1), area / min(side, max(form.columns, 1)))
    columns = min(max(form.columns, 1), area / rows)
    tile_rows, tile_columns = _even(form.rows, rows), _even(form.columns, columns)
    # A strip of the output is what `combine` holds at once.
    tile_rows = min(tile_rows, max(1, TASK_BYTES // max(1, form.columns * form.item_bytes)))
    while form.tile_bytes(tile_rows, tile_columns) > TASK_BYTES and max(tile_rows, tile_columns) > 1:
        if tile_rows >= tile_columns:
            tile_rows = -(-tile_rows // 2)
        else:
            tile_columns = -(-tile_columns // 2)
    return tile_rows, tile_columns


def _even(length: int, aim: float) -> int:
    """Length near `aim` that divides an axis into equal parts, up to multiples of 16 (a vector register's worth)."""
    parts = max(1, round(length / max(aim, 1.0)))
    size = -(-length // parts)
    return min(max(length, 1), -(-size // 16) * 16 if size > 16 else max(size, 1))


def _summary(grid: Grid, grains: int) -> str:
    form = grid.form
    if form.about.form == "product":
        what = f"({form.rows}, {form.inner}) @ ({form.inner}, {form.columns})"
        tile = f"{min(grid.tile_rows, form.rows)} × {min(grid.tile_columns, form.columns)}"
    else:
        what = " × ".join(f"{length:,}" for length in form.shape) or "1"
        by_rows = form.about.form == "rows" or form.columns > 1
        tile = f"{min(grid.tile_rows, form.rows):,} " + ("rows" if by_rows else "elements")
    mode = ", made by the pool" if form.benchmark else ""
    return f"{form.operation} {form.dtype} {what}{mode}: {grains:,} grain{'s' * (grains != 1)} of {tile}"
