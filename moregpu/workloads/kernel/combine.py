"""Write a job's output from its tasks' outputs, in row-major order, holding one strip at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from moregpu_kernels.operations import OUTPUT

from moregpu.workloads.arrays import NUMPY, as_bytes
from moregpu.workloads.kernel.plan import Grid, grid_of
from moregpu.workloads.protocol import OutputWriter, Part, Plan, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WINDOW_BYTES = 1 << 20
"""Rows of a strip are laid side by side in a buffer of about this size before they are written."""


def combine_parts(plan: Plan, parts: Sequence[Part], out: OutputWriter) -> None:
    """Write output "out". Holds the parts of one strip (at most 64 MiB) and 1 MiB, whatever the size of the job.

    Raises `ValueError` unless the parts are exactly the plan's grains, each once.
    """
    grid = grid_of(plan)
    out.begin(OUTPUT, grid.form.dtype, grid.form.shape)
    for group in _strips(grid, plan.grains, in_order(parts)):
        if len(group) == 1:
            out.write(as_bytes(group[0].open()[OUTPUT]))
        else:
            _write_strip(grid, group, out)


def _strips(grid: Grid, grains: int, parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Group parts so that each group is whole strips: one part of many strips, or the parts of one."""
    at = 0
    group: list[Part] = []
    for part in parts:
        first, stop = part.task.grains
        if first != at or stop <= first:
            raise ValueError(f"the part from grain {first} to {stop} does not follow grain {at}")
        at = stop
        group.append(part)
        if at % grid.width == 0:
            yield group
            group = []
    if group or at != grains:
        raise ValueError(f"parts end at grain {at} of {grains}")


def _write_strip(grid: Grid, group: Sequence[Part], out: OutputWriter) -> None:
    arrays: list[np.ndarray[Any, Any]] = [part.open()[OUTPUT] for part in group]
    height, width = arrays[0].shape[0], grid.form.columns
    window = np.empty((max(1, WINDOW_BYTES // (width * grid.form.item_bytes)), width), NUMPY[grid.form.dtype])
    for row in range(0, height, len(window)):
        rows = window[: min(len(window), height - row)]
        np.concatenate([array[row : row + len(rows)] for array in arrays], axis=1, out=rows)
        out.write(as_bytes(rows))
