"""Which buffer each tensor of a run lives in: tensors that are never alive together share one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moregpu_kernels.errors import KernelError


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor is written at step `first` (−1: before the run) and read until step `last`, both included."""

    name: str
    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """Slot of every tensor, and each slot's size."""

    slots: dict[str, int]
    sizes: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all slots."""
        return sum(self.sizes)


def assign(lifetimes: Iterable[Lifetime]) -> Arena:
    """Give each tensor a slot, best fit first: the smallest free slot that holds it, else the largest, grown.

    A step's output never shares with its inputs: kernels read while they write.
    """
    slots: dict[str, int] = {}
    sizes: list[int] = []
    busy_until: list[int] = []
    for life in sorted(lifetimes, key=lambda life: (life.first, -life.size_bytes, life.name)):
        if life.name in slots:
            raise KernelError(f"The tensor {life.name!r} is written twice")
        free = [slot for slot, until in enumerate(busy_until) if until < life.first]
        fitting = [slot for slot in free if sizes[slot] >= life.size_bytes]
        if fitting:
            slot = min(fitting, key=lambda slot: sizes[slot])
        elif free:
            slot = max(free, key=lambda slot: sizes[slot])
            sizes[slot] = life.size_bytes
        else:
            slot = len(sizes)
            sizes.append(life.size_bytes)
            busy_until.append(-2)
        slots[life.name] = slot
        busy_until[slot] = life.last
    return Arena(slots, tuple(sizes))
