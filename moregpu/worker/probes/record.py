"""A recording of what a machine's owner does: input and the load of others, for tuning and for `benchmarks.throttle`.

It holds shares and seconds, nothing else: no names of programs, no keys.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from moregpu.errors import InvalidRequest
from moregpu.worker.probes.cpu import CpuLoad
from moregpu.worker.probes.seat import Seat, find_seat
from moregpu.worker.probes.watch import SeatWatch

PERIOD_S = 0.25


class Sample(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One moment: seconds since input (None: unknown or nobody), share of all cores that others use."""

    idle_s: float | None
    others: float


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a machine's life."""

    version: int = 1
    system: str
    cores: int
    period_s: float
    samples: list[Sample]
    of: str = "the machine"
    """Whose load it is."""


class Using(Protocol):
    """What others use, as a share of the machine."""

    others: float

    def sample(self) -> object:
        """Measure anew."""
        ...


class GroupUse:
    """What one control group uses of the machine: the owner's session, where others work on the same machine.

    On a system with systemd a person's programs are in `/sys/fs/cgroup/user.slice`.
    """

    def __init__(self, group: Path, cores: int, clock: Callable[[], float] = time.monotonic):
        """Begin. Raises `InvalidRequest` where there is no such group."""
        self._file, self._cores, self._clock = group / "cpu.stat", cores, clock
        self._at, self._used_s = clock(), self._read_s()
        self.others = 0.0

    def sample(self) -> None:
        """Measure what was used since the last time."""
        now, used_s = self._clock(), self._read_s()
        if now > self._at:
            self.others = min(1.0, max(0.0, used_s - self._used_s) / ((now - self._at) * self._cores))
        self._at, self._used_s = now, used_s

    def _read_s(self) -> float:
        try:
            facts = dict(line.split() for line in self._file.read_text().splitlines())
            return int(facts["usage_usec"]) / 1e6
        except (OSError, KeyError, ValueError) as error:
            raise InvalidRequest(
                f"{self._file.parent} tells no CPU time", "name the folder of a control group, version 2"
            ) from error


def record(
    seconds: float,
    system: str,
    cores: int,
    find: Callable[[], Seat] = find_seat,
    wait: Callable[[float], object] = time.sleep,
    group: Path | None = None,
) -> Recording:
    """Record for so long: of the whole machine, or of one control group.

    The pool's own work is none of it when the worker is paused meanwhile. Raises `InvalidRequest` for a group that is
    none.
    """
    using: Using = CpuLoad(list) if group is None else GroupUse(group, cores)
    seat = SeatWatch(lambda: None, find)
    seat.set_busy(True)
    samples: list[Sample] = []
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            wait(PERIOD_S)
            using.sample()
            idle_s = seat.presence.idle_s
            known = idle_s is not None and math.isfinite(idle_s)
            samples.append(
                Sample(idle_s=round(idle_s, 2) if known and idle_s is not None else None, others=round(using.others, 3))
            )
    finally:
        seat.close()
    of = "the machine" if group is None else f"control group {group.name}"
    return Recording(system=system, cores=cores, period_s=PERIOD_S, samples=samples, of=of)
