"""Waiting for a coordinator that does not answer, or asks for time: how long, and what is said meanwhile.

Every door of the SDK waits by this one: the retry policy, `Retry-After` where the coordinator sends it, and one word to
whoever looks on that it is away, and one that it is back.
"""

from __future__ import annotations

import logging
from time import monotonic, sleep

from moregpu.errors import MoreGPUError
from moregpu.wire.retry import AWAY, BACK, delays

log = logging.getLogger("moregpu.client")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_SAY_S = 0.5
"""A pause as long as this is worth a word."""


class Patience:
    """One call's: `pause` between its tries, `over` when it went through."""

    def __init__(self, seconds: float):
        self._until = monotonic() + seconds
        self._pauses = delays(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._said = False

    def pause(self, error: MoreGPUError) -> None:
        """Sleep before the next try, or raise `error` when the time is up.

        A coordinator that asks for more time than is left is not asked again: it would say the same.
        """
        left_s = self._until - monotonic()
        asked_s = error.retry_after_s
        if not (left_s > 0.0 and asked_s < left_s):
            raise error
        pause_s = asked_s + next(self._pauses)  # not all at once, when the time has come
        if not self._said and pause_s > _SAY_S:
            self._said = True
            log.warning(AWAY, error.detail, left_s)
        sleep(min(left_s, pause_s))

    def over(self) -> None:
        """Say that it went through, where the opposite was said."""
        if self._said:
            self._said = False
            log.warning(BACK)
