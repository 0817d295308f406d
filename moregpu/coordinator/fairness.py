"""Whose turn it is: weights, usage that fades, priority that age outgrows. Pure.

Deficit round robin with a quantum of one task: everybody has an account of what they were served, in seconds divided by
their share; whoever is lowest goes next. Who comes back after a while begins level with the others: idleness earns
nothing, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

HALF_LIFE_S = 86_400.0
"""Usage counts half after a day."""

LEAST_SHARE = 1 / 8
"""However much somebody used the pool, this part of their weight stays: nobody starves."""

PRIORITY_S = 3600.0
"""One point of priority goes before jobs of the same submitter that are up to an hour older, and before no others: a
job of low priority is overtaken for a while, not for ever."""

CATCH_UP_S = 60.0
"""Nobody is more than so many seconds of service behind the others."""

LEAST_S = 1e-6
"""What the smallest task costs its submitter, so that turns move on."""


def faded(seconds: float, age_s: float) -> float:
    """What usage of `age_s` ago counts now. A clock that went back makes nothing older."""
    return seconds * 0.5 ** (max(0.0, age_s) / HALF_LIFE_S)


def rank_s(created_at: float, priority: int) -> float:
    """Where a job stands among its submitter's own, lowest first: its birth, earlier by its priority.

    Both sides of a comparison age alike, so the rank never changes and the queue needs no sorting anew.
    """
    return created_at - priority * PRIORITY_S


def shares(weights: Mapping[str, float], used: Mapping[str, float]) -> dict[str, float]:
    """Each submitter's share from weights and faded usage: `weight · 2^−(part of usage ÷ part of weight)`.

    The factor is Slurm's fair-tree "normal" formula (multifactor priority plug-in), bounded below.
    """
    weight_sum = sum(weights.values())
    used_sum = sum(used.get(name, 0.0) for name in weights)
    if not used_sum > 0.0 or len(weights) == 1:
        return dict(weights)
    return {
        name: weight * max(LEAST_SHARE, 2.0 ** -((used.get(name, 0.0) / used_sum) / (weight / weight_sum)))
        for name, weight in weights.items()
    }


class Turns:
    """The accounts of those who have, or lately had, ready work."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._ready: dict[str, bool] = {}  # who has ready work → whether they were served since they have
        self._order: dict[str, None] = {}  # longest without a lease first
        self._now = 0.0  # the highest account that was ever served from

    def enter(self, submitter: str) -> None:
        """Somebody has ready work again: level with the others, unless they are still ahead of them."""
        level = min((self.at(name) for name, served in self._ready.items() if served), default=self._now)
        self._at[submitter] = max(self._at.get(submitter, level), level)
        self._ready.setdefault(submitter, False)
        self._order.setdefault(submitter)

    def leave(self, submitter: str) -> None:
        """Nothing of theirs is ready; what they were served beyond their share is remembered."""
        self._ready.pop(submitter, None)
        if self._at.get(submitter, 0.0) <= self._now:
            self._at.pop(submitter, None)

    def served(self, submitter: str, seconds: float, share: float) -> None:
        """They got a task of so many seconds."""
        at = self.at(submitter)
        self._now = max(self._now, at)
        self._at[submitter] = moved_on(at, seconds, share)
        if submitter in self._ready:
            self._ready[submitter] = True
        self._order.pop(submitter, None)
        self._order[submitter] = None

    def at(self, submitter: str) -> float:
        """Their account: the lowest goes next. Whom no worker fitted for long does not catch up for as long."""
        return max(self._at.get(submitter, self._now), self._now - CATCH_UP_S)

    def in_order(self) -> list[str]:
        """Those with ready work, longest without a lease first."""
        for submitter in [name for name in self._order if name not in self._ready]:
            del self._order[submitter]
        return list(self._order)


def moved_on(at: float, seconds: float, share: float) -> float:
    """An account after a task."""
    return at + max(LEAST_S, seconds) / share
