"""The throttle of all devices of a worker: CPU and GPUs apart.

Each follows what others use of it. Where that cannot be told of a GPU (see `probes.gpu`), its duty follows the owner's
input, full screen, battery and heat alone, and keeps to the ceiling. A busy processor is no reason for a GPU to rest.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec.structs import replace

from moregpu.wire.messages import Limits
from moregpu.worker.throttle.controller import Signals
from moregpu.worker.throttle.duty import Decision
from moregpu.worker.throttle.governor import Governor
from moregpu.worker.throttle.mean import ToldDuty

Kind = Literal["cpu", "gpu"]


class Throttle:
    """One governor for the CPU, one for the GPUs, and what of each was told to the pool."""

    def __init__(self):
        self._governors: dict[Kind, Governor] = {"cpu": Governor(), "gpu": Governor()}
        self._tellers: dict[Kind, ToldDuty] = {"cpu": ToldDuty(), "gpu": ToldDuty()}
        self.decisions: dict[Kind, Decision] = {}

    def decide(self, owner: Limits, admin: Limits, local: datetime, signals: Signals, now: float) -> None:
        """Decide for both; `decisions` holds the outcome. Raises as `Governor.decide`."""
        self.decisions = {
            "cpu": self._governors["cpu"].decide(owner, admin, local, signals, now),
            "gpu": self._governors["gpu"].decide(owner, admin, local, replace(signals, load=signals.gpu), now),
        }

    def tell(self, kind: Kind, now: float) -> Decision:
        """What the pool is to believe of such a device now: it changes seldom."""
        teller = self._tellers[kind]
        fresh = teller.tell(self.decisions[kind], now)
        return fresh or teller.told or self.decisions[kind]
