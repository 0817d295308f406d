"""The vocabulary of planning, all plain data: what a device can do, what is asked, and the dispatches that do it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moregpu_kernels.errors import BadShape, TooLargeToBind
from moregpu_kernels.template import Kernel, Value

OUT: Final = "out"
"""The name of every operation's output."""

ITEM_BYTES: Final = {"float32": 4, "float16": 2, "uint32": 4}

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device allows. The defaults are WebGPU's, which every device has."""

    max_binding_bytes: int = 128 << 20
    max_buffer_bytes: int = 256 << 20
    max_groups: int = 65_535
    workgroup_bytes: int = 16 << 10
    invocations: int = 256
    offset_alignment: int = 256


@dataclass(frozen=True, slots=True)
class Traits:
    """A device, as planning sees it."""

    kind: str = "unknown"  # discrete, integrated, software or unknown
    vendor: str = ""
    identity: str = ""
    features: frozenset[str] = frozenset()
    limits: Limits = Limits()
    subgroup_size: int = 0  # the smallest it may be; 0: not to be used

    @property
    def is_software(self) -> bool:
        """Whether a CPU plays GPU here."""
        return self.kind == "software"


@dataclass(frozen=True, slots=True)
class Request:
    """One operation on tensors of given shapes. `dtype` is how they are stored; sums are float32 always."""

    operation: str
    shapes: Mapping[str, Shape]
    dtype: str = "float32"
    parameters: Mapping[str, Value] = field(default_factory=dict[str, Value])

    def shape(self, name: str) -> Shape:
        """Shape of an input; BadShape where it is missing."""
        if name not in self.shapes:
            raise BadShape(
                f"{self.operation} needs an input named {name!r}", f"Given: {', '.join(self.shapes) or 'none'}"
            )
        return self.shapes[name]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a tensor that a dispatch binds. Names that begin with `~` are temporary tensors of the plan."""

    tensor: str
    offset_bytes: int = 0
    size_bytes: int = 0  # 0: all of it


@dataclass(frozen=True, slots=True)
class Dispatch:
    """`groups` workgroups of a kernel. Any range of them may be dispatched alone, in order: that is how work is sliced.

    `work` is what it costs, in arbitrary units that add up (float operations plus four a byte moved).
    """

    kernel: Kernel
    options: tuple[tuple[str, Value], ...]
    spans: tuple[Span, ...]
    uniforms: tuple[int | float, ...]
    groups: int
    work: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Dispatches, in order, that compute one operation. No dispatches: the output is empty."""

    variant: str
    out_shape: Shape
    out_dtype: str
    dispatches: tuple[Dispatch, ...]
    temporaries: tuple[tuple[str, int], ...] = ()
    flops: float = 0.0
    moved_bytes: float = 0.0


def size_bytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor, computed in integers of any size; nothing is allocated."""
    return math.prod(shape) * ITEM_BYTES[dtype]


def row_slices(
    rows: int, row_bytes: Sequence[int], limits: Limits, what: str, multiple: int = 1
) -> Iterator[tuple[int, int]]:
    """Cut `rows` so that every bound tensor's part fits a binding, and begins where a binding may begin.

    `row_bytes` are the bytes of one row in each of the tensors; `multiple` is what a slice's first row must be a
    multiple of besides.

    Raises
    ------
    TooLargeToBind
        The fewest rows that may be taken are larger than a binding.

    """
    widest = max(row_bytes, default=0)
    if rows == 0 or widest == 0 or rows * widest <= limits.max_binding_bytes:
        if rows:
            yield 0, rows
        return
    alignment = limits.offset_alignment
    step = math.lcm(multiple, *(alignment // math.gcd(alignment, size) for size in row_bytes if size))
    count = limits.max_binding_bytes // widest // step * step
    if count == 0:
        raise TooLargeToBind(
            f"{what}: {step} row(s) of {widest:,} bytes are more than this device binds ({limits.max_binding_bytes:,})",
            "Cut the tensor into smaller ones",
        )
    for first in range(0, rows, count):
        yield first, min(rows, first + count)


def part(tensor: str, first: int, last: int, row_bytes: int) -> Span:
    """Rows `first` to `last` of a tensor; the size is rounded up to whole vectors (buffers are longer than tensors)."""
    return Span(tensor, first * row_bytes, -(-max((last - first) * row_bytes, 16) // 16) * 16)
