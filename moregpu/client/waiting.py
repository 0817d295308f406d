"""Why a job has not ended yet: looked for while somebody waits for it, and said in the same words however they wait."""

from __future__ import annotations

import logging

from moregpu.jobs import JOB_ENDED
from moregpu.wire.api import JobView
from moregpu.wire.text import clean

log = logging.getLogger("moregpu.client")

FIRST_LOOK_S = 2.0
"""A job that has not ended after so long, and waits for something, is worth a word about what."""

SELDOM_S = 60.0
"""The reason may change while somebody waits; looks become as seldom as this."""


class Waiting:
    """What was said of one job. Pure: whoever waits looks after each pause, and tells what was seen."""

    def __init__(self, name: str):
        self._name = name
        self._reason = ""
        self.pause_s = FIRST_LOOK_S
        """How long to wait for the end before the next look."""

    def seldomer(self) -> None:
        """A look was taken: the next one comes later."""
        self.pause_s = min(2 * self.pause_s, SELDOM_S)

    def saw(self, view: JobView) -> None:
        """Take a look at the job: say its reason once, and once that it goes on."""
        self.seldomer()
        ended = view.state in JOB_ENDED
        self.because("" if ended else view.waiting_reason, ended=ended)

    def because(self, reason: str, *, ended: bool = False) -> None:
        """Say what is waited for, unless that was said last."""
        reason = clean(reason, 300)
        if reason == self._reason:
            return
        self._reason = reason
        if reason:
            log.warning("%s waits: %s", self._name, reason)
        elif not ended:
            log.warning("%s goes on", self._name)
