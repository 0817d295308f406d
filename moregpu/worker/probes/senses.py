"""All that a worker senses of its owner and machine, as one set of signals for the throttle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moregpu.worker.probes.cpu import CpuLoad
from moregpu.worker.probes.gpu import Card
from moregpu.worker.probes.gpu_watch import GpuWatch
from moregpu.worker.probes.seat import Seat, find_seat
from moregpu.worker.probes.surroundings import SurroundingsWatch
from moregpu.worker.probes.watch import SeatWatch
from moregpu.worker.throttle.controller import Signals


class Senses:
    """The probes of one worker, from its start to `close`."""

    def __init__(
        self,
        noticed: Callable[[], None],
        cpu: CpuLoad,
        find: Callable[[], Seat] = find_seat,
        watch: Callable[[Callable[[], None]], SurroundingsWatch] = SurroundingsWatch,
    ):
        """Start looking.

        Args:
            noticed: called, on another thread, at each sign of input and when the surroundings change.
            cpu: measures the load.
            find: finds the seat.
            watch: starts to watch battery, heat and network.
        """
        self._seat = SeatWatch(noticed, find)
        self._surroundings = watch(noticed)
        self._cpu = cpu
        self._gpus: GpuWatch | None = None

    def watch_gpus(self, find: Callable[[], Sequence[Card]]) -> None:
        """Watch the cards that `find` finds, too; it is called on another thread."""
        self._gpus = GpuWatch(find)

    def signals(self) -> Signals:
        """What is known now; the load only when a new sample is due."""
        presence, surroundings = self._seat.presence, self._surroundings.now
        return Signals(
            idle_s=presence.idle_s,
            load=self._cpu.sample(),
            gpu=None if self._gpus is None else self._gpus.sample(),
            full_screen=presence.full_screen,
            on_battery=surroundings.on_battery,
            hot=surroundings.hot,
            metered=surroundings.metered,
        )

    def set_busy(self, busy: bool) -> None:
        """Whether the pool computes here now: look often then."""
        self._seat.set_busy(busy)
        if self._gpus is not None:
            self._gpus.set_busy(busy)

    def close(self) -> None:
        """Stop looking."""
        self._seat.close()
        self._surroundings.close()
        if self._gpus is not None:
            self._gpus.close()
