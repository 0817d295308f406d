"""A thread that looks at the seat, so that a window system that hangs costs a look, never the worker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from moregpu.worker.probes.presence import UNKNOWN, Presence
from moregpu.worker.probes.seat import Seat, find_seat

_log = logging.getLogger(__name__)

BUSY_PERIOD_S = 0.05
"""Between looks while the pool computes here: input is seen within it, half of what is promised (100 ms)."""

IDLE_PERIOD_S = 0.5
"""Between looks while there is nothing to step back with."""

STALE_S = 1.0
"""A look that is older by so much than it should be tells nothing any more."""

RETRY_S = 5.0
"""Between two tries to open a seat that failed."""

YOUNG_S = 0.15
"""An idle counter below this means input since the look before."""


class SeatWatch:
    """Looks, and calls `noticed` (on its own thread) at each sign of input."""

    def __init__(self, noticed: Callable[[], None], find: Callable[[], Seat] = find_seat):
        self._noticed = noticed
        self._find = find
        self._busy = False
        self._stopped = False
        self._wake = threading.Event()
        self._seen: tuple[float, Presence] = (time.monotonic(), UNKNOWN)
        # A daemon: a seat that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="seat", daemon=True)
        self._thread.start()

    @property
    def presence(self) -> Presence:
        """The last look, or `UNKNOWN` when it is too old."""
        at, presence = self._seen
        return presence if time.monotonic() - at <= self._period_s + STALE_S else UNKNOWN

    def set_busy(self, busy: bool) -> None:
        """Whether the pool computes here: look often then."""
        woken = busy and not self._busy
        self._busy = busy
        if woken:
            self._wake.set()

    def close(self) -> None:
        """Stop looking. Does not wait: the thread may hang in a look."""
        self._stopped = True
        self._wake.set()

    @property
    def _period_s(self) -> float:
        return BUSY_PERIOD_S if self._busy else IDLE_PERIOD_S

    def _run(self) -> None:
        seat: Seat | None = None
        said = ""
        while not self._stopped:
            try:
                if seat is None:
                    seat = self._find()
                self._look(seat.presence())
                wait_s, said = self._period_s, ""
            except Exception as error:  # noqa: BLE001 — X, D-Bus and ctypes raise errors of their own; all mean: unknown
                if str(error) != said:
                    said = str(error)
                    _log.warning("cannot tell whether the owner is here: %s: %s", type(error).__name__, error)
                self._look(UNKNOWN)
                seat, wait_s = _closed(seat), RETRY_S
            self._wake.wait(wait_s)
            self._wake.clear()
        _closed(seat)

    def _look(self, presence: Presence) -> None:
        before = self._seen[1].idle_s
        self._seen = (time.monotonic(), presence)
        idle_s = presence.idle_s
        if idle_s is not None and (idle_s <= YOUNG_S or (before is not None and idle_s < before)):
            self._noticed()


def _closed(seat: Seat | None) -> None:
    if seat is not None:
        try:
            seat.close()
        except Exception as error:  # noqa: BLE001 — it failed before; this is its end either way
            _log.debug("closing a seat: %s", error)
