"""A pool from one seed, 500 times: nothing that was promised is broken, whatever goes wrong."""

from __future__ import annotations

import pytest

from tests.simulation.found import FOUND
from tests.simulation.history import slow_world
from tests.simulation.many import run, told
from tests.simulation.script import script_of

HISTORIES = 520
PART = 65

QUICK = [0]
"""Parts that `make quick` runs, too."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=() if first in QUICK else pytest.mark.slow)
        for first in range(0, HISTORIES, PART)
    ],
)  # fmt: skip
def test_histories_keep_every_promise(first: int) -> None:
    with slow_world():
        for seed in range(first, first + PART):
            outcome = run(script_of(seed))
            if outcome.problems:
                pytest.fail(told(outcome))


@pytest.mark.parametrize("bug", FOUND)
def test_a_history_that_once_failed_does_so_no_more(bug: str) -> None:
    with slow_world():
        assert run(FOUND[bug]).problems == ()


def test_histories_reach_what_they_are_for() -> None:
    """Crashes, rogues, ciphers, trials, full disks: all of it is drawn within the first hundred seeds."""
    scripts = [script_of(seed) for seed in range(100)]
    faults = {fault.what for script in scripts for fault in script.faults}
    kinds = {machine.kind for script in scripts for machine in script.machines}
    works = [work for script in scripts for work in script.works]
    assert len(faults) >= 20
    assert len(kinds) == 12 - len({"honest", "slow", "hasty"} - kinds)
    assert {work.then for work in works} == {"follow", "cancel", "vanish", "hang up"}
    assert {work.check for work in works} == {"spot", "full", "none", "agree"}
    assert any(script.noise for script in scripts) and any(script.trials for script in scripts)
    calls = [work for work in works if work.operation == "call"]
    assert any(work.once for work in calls) and any(not work.once for work in calls)
    assert {work.then for work in calls} == {"follow", "cancel", "vanish", "hang up"}
    assert len(calls) < len(works) / 2
    assert any(work.after is not None for work in works) and any(work.twice for work in works)
