"""A list of steps, prepared for a device: planned, fused, its tensors placed, its bind groups made."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from moregpu_kernels.arena import Lifetime, assign
from moregpu_kernels.catalogue import Catalogue
from moregpu_kernels.device import Device
from moregpu_kernels.errors import BadBinding, BadShape
from moregpu_kernels.fuse import Step, fuse
from moregpu_kernels.layout import OUT, Plan, Request, Span, size_bytes
from moregpu_kernels.native import Call
from moregpu_kernels.plan import Choices, plan
from moregpu_kernels.program import UNIFORM_STEP, Program, Programs
from moregpu_kernels.transfer import Buffers, Result, Results

Array = NDArray[Any]

_numbers = itertools.count(1)


RELEASED: Final = -2
"""The generation of a tensor that is on no device, and will be on none."""


class Resident:
    """An array that stays on a device until it is released; `generation` is that of the device it lies on."""

    def __init__(self, array: Array):
        self.array = array
        self.number = next(_numbers)
        self.buffer: Any = None
        self.generation = -1
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype

    @property
    def released(self) -> bool:
        """Whether it is not to be on a device any more."""
        return self.generation == RELEASED


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One dispatch, bound: `slot` is its place in the uniform buffer, `group` keeps what `call` names."""

    program: Program
    group: Any
    call: Call
    slot: int
    uniforms: tuple[int | float, ...]
    groups: int
    work: float


Part = tuple[Piece, int, int]
"""Of a piece: its first workgroup in a slice, and how many."""


@dataclass(slots=True, eq=False)
class Compiled:
    """Steps ready to run. `feeds` are the buffers to fill first; `owned` go back to the pool in the end.

    `whole` is one slice of everything, `work` how much there is of each program, and `calls` that slice as it was
    recorded last, as long as the uniforms are still as it needs them. `packed` are these as they lie on the device, a
    step for each piece, and `written` which part of its piece each of them is for.
    """

    pieces: list[Piece]
    whole: list[Part]
    work: dict[str, float]
    feeds: dict[str, Any]
    results: Results
    uniforms: Any
    owned: list[Any]
    residents: frozenset[int]
    plans: list[Plan]
    packed: bytearray
    written: list[tuple[int, int]]
    calls: list[tuple[Call, int, int]] | None = None


def compile_steps(
    device: Device,
    programs: Programs,
    buffers: Buffers,
    steps: Sequence[Step],
    feeds: Mapping[str, Array | Resident],
    outputs: Sequence[str],
    *,
    choices: Choices | None = None,
    catalogue: Catalogue | None = None,
    variant: str | None = None,
    fused: bool = True,
) -> Compiled:
    """Prepare steps. On an error nothing stays allocated.

    Raises
    ------
    BadBinding
        A step reads a tensor that is not there yet, or writes one twice; an output that no step writes.
    BadShape, BadFormula, BadKernel, BudgetExceeded
        As planning and compiling.

    """
    steps, plans, dtypes = _planned(device, steps, feeds, outputs, _Planning(choices, catalogue, variant), fused)
    shapes = {one.output: planned.out_shape for one, planned in zip(steps, plans, strict=True)}
    lifetimes = _lifetimes(steps, plans, feeds, outputs, shapes, dtypes)
    arena = assign(lifetimes)
    owned: list[Any] = []
    try:
        slots: list[Any] = []
        for size in arena.sizes:
            slots.append(buffers.take(size))
            owned.append(slots[-1])
        places = {name: slots[slot] for name, slot in arena.slots.items()}
        places |= {name: feed.buffer for name, feed in feeds.items() if isinstance(feed, Resident)}
        sizes = {life.name: life.size_bytes for life in lifetimes}
        sizes |= {name: _padded(feed.array.nbytes) for name, feed in feeds.items() if isinstance(feed, Resident)}
        count = sum(len(planned.dispatches) for planned in plans)
        uniforms = buffers.take(max(count, 1) * UNIFORM_STEP)
        owned.append(uniforms)
        pieces: list[Piece] = []
        for number, (one, planned) in enumerate(zip(steps, plans, strict=True)):
            for dispatch in planned.dispatches:
                program = programs.get(dispatch.kernel, dispatch.options)
                spans = [_resolve(span, one, number) for span in dispatch.spans]
                slot = len(pieces)
                group = _bind(device, program, (uniforms, slot * UNIFORM_STEP), spans, places, sizes)
                call = device.fast.call(program.pipeline, group)
                pieces.append(
                    Piece(program, group, call, slot, dispatch.uniforms, dispatch.groups, max(dispatch.work, 1.0))
                )
                program.pack(0, dispatch.groups, dispatch.uniforms)
    except BaseException:
        for buffer in owned:
            buffers.give(buffer)
        raise
    results = Results({name: Result(places[name], shapes[name], dtypes[name]) for name in outputs})
    work: dict[str, float] = {}
    for piece in pieces:
        work[piece.program.digest] = work.get(piece.program.digest, 0.0) + piece.work
    return Compiled(
        pieces=pieces,
        whole=[(piece, 0, piece.groups) for piece in pieces],
        work=work,
        feeds={name: places[name] for name, feed in feeds.items() if not isinstance(feed, Resident) and name in places},
        results=results,
        uniforms=uniforms,
        owned=owned,
        residents=frozenset(feed.number for feed in feeds.values() if isinstance(feed, Resident)),
        plans=plans,
        packed=bytearray(len(pieces) * UNIFORM_STEP),
        written=[(-1, -1)] * len(pieces),
    )


@dataclass(frozen=True, slots=True)
class _Planning:
    """What decides between variants."""

    choices: Choices | None
    catalogue: Catalogue | None
    variant: str | None


def _planned(
    device: Device,
    steps: Sequence[Step],
    feeds: Mapping[str, Array | Resident],
    outputs: Sequence[str],
    planning: _Planning,
    fused: bool,
) -> tuple[list[Step], list[Plan], dict[str, str]]:
    """Plan every step, and, where steps may be fused, plan what they became."""
    shapes: dict[str, tuple[int, ...]] = {name: tuple(feed.shape) for name, feed in feeds.items()}
    dtypes: dict[str, str] = {name: str(feed.dtype) for name, feed in feeds.items()}
    plans = _plan_each(device, steps, shapes, dtypes, planning)
    missing = [name for name in outputs if name not in {one.output for one in steps}]
    if missing:
        raise BadBinding(f"No step writes {', '.join(missing)}", "Outputs are results of steps")
    if not fused or len(steps) == 1:
        return list(steps), plans, dtypes
    joined = fuse(steps, outputs, shapes)
    if len(joined) == len(steps):
        return list(steps), plans, dtypes
    shapes = {name: tuple(feed.shape) for name, feed in feeds.items()}
    dtypes = {name: str(feed.dtype) for name, feed in feeds.items()}
    return joined, _plan_each(device, joined, shapes, dtypes, planning), dtypes


def _plan_each(
    device: Device,
    steps: Sequence[Step],
    shapes: dict[str, tuple[int, ...]],
    dtypes: dict[str, str],
    planning: _Planning,
) -> list[Plan]:
    plans: list[Plan] = []
    for one in steps:
        for name, tensor in one.inputs.items():
            if tensor not in shapes:
                raise BadBinding(
                    f"{one.operation} reads {tensor!r} as its {name}, which is neither fed nor written before",
                    f"There are: {', '.join(shapes) or 'none'}",
                )
        if one.output in shapes:
            raise BadBinding(f"{one.operation} writes {one.output!r}, which is there already", "Give it another name")
        request = Request(
            one.operation,
            {name: shapes[tensor] for name, tensor in one.inputs.items()},
            _dtype(one, dtypes),
            one.parameters,
        )
        if planning.catalogue is not None and one.operation in planning.catalogue:
            planned = planning.catalogue.plan(request, device.traits)
        else:
            planned = plan(
                request, device.traits, planning.choices, variant=planning.variant, expression=one.expression
            )
        shapes[one.output], dtypes[one.output] = planned.out_shape, planned.out_dtype
        plans.append(planned)
    return plans


def _dtype(one: Step, dtypes: Mapping[str, str]) -> str:
    fixed = {"quants": "uint32", "scales": "float16"} if one.operation.startswith("gemv_") else {}
    kinds: set[str] = set()
    for name, tensor in one.inputs.items():
        if name in fixed:
            if dtypes[tensor] != fixed[name]:
                raise BadShape(f"{one.operation}: {name} must be {fixed[name]}, not {dtypes[tensor]}")
        else:
            kinds.add(dtypes[tensor])
    if len(kinds) != 1:
        raise BadShape(
            f"{one.operation}: the inputs must have one dtype, not {', '.join(sorted(kinds)) or 'none'}",
            "Convert one of them",
        )
    return kinds.pop()


def _lifetimes(
    steps: Sequence[Step],
    plans: Sequence[Plan],
    feeds: Mapping[str, Array | Resident],
    outputs: Sequence[str],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, str],
) -> list[Lifetime]:
    last_read = {tensor: number for number, one in enumerate(steps) for tensor in one.inputs.values()}
    lifetimes = [
        Lifetime(name, _padded(feed.nbytes), -1, last_read[name])
        for name, feed in feeds.items()
        if not isinstance(feed, Resident) and name in last_read
    ]
    for number, (one, planned) in enumerate(zip(steps, plans, strict=True)):
        last = len(steps) if one.output in outputs else last_read.get(one.output, number)
        lifetimes.append(
            Lifetime(one.output, _padded(size_bytes(shapes[one.output], dtypes[one.output])), number, last)
        )
        lifetimes += [Lifetime(f"{number}{name}", _padded(size), number, number) for name, size in planned.temporaries]
    return lifetimes


def _padded(size: int) -> int:
    """Room for the vector that holds the last element."""
    return -(-max(size, 16) // 16) * 16


def _resolve(span: Span, one: Step, number: int) -> Span:
    """A plan's own names become the run's."""
    if span.tensor == OUT:
        name = one.output
    elif span.tensor.startswith("~"):
        name = f"{number}{span.tensor}"
    else:
        name = one.inputs[span.tensor]
    return Span(name, span.offset_bytes, span.size_bytes)


def _bind(
    device: Device,
    program: Program,
    uniforms: tuple[Any, int],
    spans: Sequence[Span],
    places: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> Any:
    if len(spans) != len(program.bindings):
        raise BadBinding(
            f"{program.name} binds {', '.join(b.name for b in program.bindings)}, and is given {len(spans)} tensors",
            "See its front matter",
        )
    # The place of the uniforms is the group's own: Mesa's software adapter makes and maps a new set of descriptors for
    # every dispatch that is given an offset, half of what a small dispatch took.
    entries: list[dict[str, Any]] = [
        {"binding": 0, "resource": {"buffer": uniforms[0], "offset": uniforms[1], "size": UNIFORM_STEP}}
    ]
    for slot, span in enumerate(spans, 1):
        size = span.size_bytes or sizes[span.tensor] - span.offset_bytes
        if span.offset_bytes + size > places[span.tensor].size:
            raise BadBinding(f"{program.name}: {program.bindings[slot - 1].name} is smaller than what the kernel reads")
        entries.append(
            {"binding": slot, "resource": {"buffer": places[span.tensor], "offset": span.offset_bytes, "size": size}}
        )
    return device.native.create_bind_group(layout=program.layout, entries=entries)
