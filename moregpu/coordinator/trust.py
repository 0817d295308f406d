"""What follows for a worker from results that were checked: probation, then quarantine. Pure.

Only *proven* wrong results count: outputs that we compared with what we know to be right. A result that other workers
disagree with is suspect, and costs nothing: else a job with `random()` in it could ruin honest workers.
"""

from __future__ import annotations

from msgspec.structs import replace

from moregpu.coordinator.store.protocol import Trust

PROBATION = 100
"""After a proven wrong result, so many of the worker's next results are checked whatever their job says."""

SECOND_WITHIN_S = 30 * 86_400.0
"""A second proven wrong result within this time ends in quarantine."""

MOST_WRONG = 1 / 1000
"""So does a larger part of wrong ones among all checked, from the second one on."""


def after(trust: Trust, *, right: int = 0, wrong: int = 0, suspected: int = 0, wall: float) -> Trust:
    """The trust in a worker after some of its results were judged. Unchanged (the same object) when none were."""
    if right == wrong == suspected == 0:
        return trust
    recent = tuple(at for at in trust.wrong_at if at > wall - SECOND_WITHIN_S) + (wall,) * wrong
    now = replace(
        trust,
        version=trust.version + 1,
        right=trust.right + right,
        wrong=trust.wrong + wrong,
        wrong_at=recent[-2:],
        suspected=trust.suspected + suspected,
        probation_left=PROBATION if wrong else max(0, trust.probation_left - right),
    )
    return replace(now, quarantined=trust.quarantined or (wrong > 0 and _is_too_much(now)))


def _is_too_much(trust: Trust) -> bool:
    if len(trust.wrong_at) >= 2:
        return True
    return trust.wrong >= 2 and trust.wrong > MOST_WRONG * (trust.right + trust.wrong)


def pardoned(trust: Trust) -> Trust:
    """The admin lets a quarantined worker work again: on probation, its past forgiven but not forgotten."""
    if not trust.quarantined:
        return trust
    return replace(trust, version=trust.version + 1, wrong_at=(), probation_left=PROBATION, quarantined=False)


def is_on_probation(trust: Trust) -> bool:
    """Whether the worker's results are checked in full whatever their job says."""
    return trust.probation_left > 0 or trust.quarantined


def newer(one: Trust, other: Trust) -> Trust:
    """Of two readings of one worker, the later."""
    return one if one.version >= other.version else other
