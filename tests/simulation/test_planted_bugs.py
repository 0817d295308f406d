"""The simulation finds bugs: each of these, planted on purpose, within 500 seeds."""

from __future__ import annotations

import pytest

from tests.simulation.history import slow_world
from tests.simulation.many import run, shrunk
from tests.simulation.planted import PLANTED
from tests.simulation.script import script_of

WITHIN = 500

SAYS = {
    "fencing off": ("3:", "2:"),
    "acceptance check off": ("a wrong output", "the result of"),
    "acknowledged before commit": ("1:", "2:"),
    "lease never reaped": ("900 s after the last fault",),
    "accepted again after replay": ("2:",),
    "once forgotten": ("9:",),
}
"""What the finding is about: the invariant that is broken, not some accident on the way."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_within_500_seeds(bug: str) -> None:
    with slow_world(), PLANTED[bug]():
        for seed in range(WITHIN):
            outcome = run(script_of(seed))
            if any(problem.startswith(SAYS[bug]) for problem in outcome.problems):
                return
    pytest.fail(f"{bug}: not found within {WITHIN} seeds")


@pytest.mark.timeout(600)
def test_a_finding_shrinks_to_what_it_needs_and_can_be_replayed() -> None:
    bug = "accepted again after replay"
    with slow_world(), PLANTED[bug]():
        outcome = next(each for each in (run(script_of(seed)) for seed in range(WITHIN)) if each.problems)
        whole = script_of(outcome.seed)
        short = shrunk(whole, outcome.problems)
        assert len(short.faults) <= len(whole.faults) and len(short.works) <= len(whole.works)
        assert len(short.faults) + len(short.works) < len(whole.faults) + len(whole.works)
        again = script_of(short.seed).with_parts(short.faults_kept, short.works_kept)
        assert again == short
        assert run(again).problems == run(short).problems != ()
    assert f"--seed {outcome.seed}" in short.replay
