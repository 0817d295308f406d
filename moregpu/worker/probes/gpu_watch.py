"""A thread that looks at graphics cards, so that a driver that hangs costs a look, never the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from moregpu.worker.probes.gpu import Card, busiest
from moregpu.worker.throttle.controller import Load

_log = logging.getLogger(__name__)

PERIOD_S = 0.5
"""Between looks while the pool computes here. While it does not there are none: there is nothing to step back with."""


class GpuWatch:
    """Looks, and keeps the newest load until it is asked for."""

    def __init__(self, find: Callable[[], Sequence[Card]]):
        """`find` finds the cards, on the watching thread."""
        self._find = find
        self._busy = False
        self._stopped = False
        self._wake = threading.Event()
        self._fresh: Load | None = None
        threading.Thread(target=self._run, name="gpu", daemon=True).start()

    def sample(self) -> Load | None:
        """The load of the card that others use most, if there was a look since the last call."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def set_busy(self, busy: bool) -> None:
        """Whether the pool computes here."""
        woken = busy and not self._busy
        self._busy = busy
        if woken:
            self._wake.set()

    def close(self) -> None:
        """Stop looking. Does not wait: the thread may hang in a look."""
        self._stopped = True
        self._wake.set()

    def _run(self) -> None:
        try:
            cards = self._find()
            while cards and not self._stopped:
                load = busiest([card.load() for card in cards])
                if load is not None:
                    self._fresh = load
                self._wake.wait(PERIOD_S if self._busy else None)
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 — a driver's library may raise anything; the card goes unwatched
            _log.warning("how busy the GPU is cannot be told: %s: %s", type(error).__name__, error)
