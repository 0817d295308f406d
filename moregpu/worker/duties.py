"""What each device of a worker may do now: limits, clock and senses go in; duties come out, for engines and people.

    duties = Duties(owner, yields=True, changed=look_again)
    duties.watch(kinds, aside, own_processes, noticed, gpus)
    duties.look(workers)

Lives on the agent's event loop; how fast to look is its to say (`period_s`), when is the agent's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from moregpu.wire.messages import Limits
from moregpu.worker.limits import WorkerLimits
from moregpu.worker.probes.cpu import CpuLoad
from moregpu.worker.probes.gpu import find_cards
from moregpu.worker.probes.senses import Senses
from moregpu.worker.throttle.controller import to_others
from moregpu.worker.throttle.devices import Kind, Throttle
from moregpu.worker.throttle.duty import Decision, fixed_duty

DECIDE_S = 0.5
"""Period of the look at clock, limits and load."""

BUSY_DECIDE_S = 0.1
"""The same while tasks are there and the owner is to be given way to; each sign of input is a look of its own."""

SAME_DUTY = 0.005
"""A change by less is not worth a word to the compute process."""

Sense = Callable[[Callable[[], None], CpuLoad], Senses]
"""Starts the probes."""


class Obedient(Protocol):
    """Whoever computes with a device: its compute process, or the functions' room."""

    device: str

    def set_duty(self, duty: float) -> None:
        """Obey this share from now on."""
        ...


class Duties:
    """The throttle of one worker."""

    def __init__(self, owner: Limits, changed: Callable[[], None], *, yields: bool, sense: Sense = Senses):
        """Prepare it.

        Args:
            owner: the owner's limits.
            changed: called after each change of a limit.
            yields: whether to give way to the owner; else the limits alone hold.
            sense: starts the probes.
        """
        self.limits = WorkerLimits(owner, changed, self._decide)
        self._throttle = Throttle() if yields else None
        self._sense = sense
        self._senses: Senses | None = None
        self._cpu: CpuLoad | None = None
        self._aside: Collection[str] = ()
        self._kinds: Mapping[str, Kind] = {}
        self._in_force: dict[str, float] = {}  # the duty that each compute process was told

    def watch(
        self,
        kinds: Mapping[str, Kind],
        aside: Collection[str],
        own: Callable[[], Iterable[int]],
        noticed: Callable[[], None],
        gpus: Sequence[str],
    ) -> None:
        """Begin to look.

        Args:
            kinds: what each device is, the best first.
            aside: devices that are put aside now.
            own: names the pool's processes.
            noticed: called, on another thread, at each sign of the owner.
            gpus: the names of the cards among the devices.
        """
        self._kinds, self._aside = kinds, aside
        self._cpu = CpuLoad(own)
        if self._throttle is not None:
            self._senses = self._sense(noticed, self._cpu)
            if gpus:
                self._senses.watch_gpus(lambda: find_cards(gpus, own))

    def close(self) -> None:
        """Stop looking."""
        if self._senses is not None:
            self._senses.close()
        self.limits.close()

    # -- looking

    @property
    def others(self) -> float:
        """Share of the machine that other programs use."""
        return 0.0 if self._cpu is None else self._cpu.others

    def period_s(self, *, busy: bool) -> float:
        """Seconds until the next look."""
        return BUSY_DECIDE_S if busy and self._senses is not None else DECIDE_S

    def set_busy(self, busy: bool) -> None:
        """Whether the pool computes here now: look often then."""
        if self._senses is not None:
            self._senses.set_busy(busy)

    def look(self, workers: Iterable[tuple[str, Obedient]]) -> None:
        """Decide anew; each of the workers (by a name of its own) whose duty is another now is told."""
        if self._senses is None and self._cpu is not None:
            self._cpu.sample()  # for people to see; the senses do it else
        self.limits.look()
        for name, worker in workers:
            duty, before = self.of(worker.device).value, self._in_force.get(name, -1.0)
            if abs(duty - before) >= SAME_DUTY or (duty == 0.0) != (before == 0.0):
                self._in_force[name] = duty
                worker.set_duty(duty)

    # -- what was decided

    @property
    def decision(self) -> Decision:
        """What the worker as a whole may do, for people."""
        return self.limits.decision

    def of(self, device: str) -> Decision:
        """What one device may do now."""
        return self.decision if self._throttle is None else self._throttle.decisions[self._kind(device)]

    def _kind(self, device: str) -> Kind:
        """Functions are the CPU's load, also where it is not lent to kernels."""
        return self._kinds.get(device, "cpu")

    def told(self, now: float) -> tuple[dict[str, float], str]:
        """What the pool is to believe: the share of each device that is not put aside, and why as people read it."""
        usable = self._usable()
        if self._throttle is None:
            return dict.fromkeys(usable, self.decision.value), to_others(self.decision.reason)
        means = {device: self._throttle.tell(self._kinds[device], now) for device in usable}
        best = max(means.values(), key=lambda mean: mean.value, default=self.decision)
        return {device: mean.value for device, mean in means.items()}, to_others(best.reason)

    def _usable(self) -> list[str]:
        return [device for device in self._kinds if device not in self._aside]

    def _decide(self, owner: Limits, admin: Limits, local: datetime) -> Decision:
        """Limits alone, or with all that is sensed: then the best device speaks for all."""
        if self._throttle is None or self._senses is None:
            return fixed_duty(owner, admin, local)
        self._throttle.decide(owner, admin, local, self._senses.signals(), time.monotonic())
        usable = self._usable() or list(self._kinds)
        return max((self._throttle.decisions[self._kinds[each]] for each in usable), key=lambda each: each.value)
