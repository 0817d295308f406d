"""One seed, one history: whatever Python's hashes and addresses are today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.history import slow_world
from tests.simulation.many import run
from tests.simulation.script import script_of

SEEDS = range(25)
ROOT = Path(__file__).parents[2]

PROGRAM = f"""
from tests.simulation.history import slow_world
from tests.simulation.many import run
from tests.simulation.script import script_of
with slow_world():
    for seed in range({SEEDS.start}, {SEEDS.stop}):
        print(run(script_of(seed)).digest)
"""


def _digests(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.timeout(600)
def test_the_same_seed_is_the_same_history_in_another_process_with_other_hashes() -> None:
    with slow_world():
        here = [run(script_of(seed)).digest for seed in SEEDS]
    assert here == _digests("1")
    assert len(set(here)) == len(here)


def test_different_seeds_are_different_histories() -> None:
    assert len({script_of(seed) for seed in range(1000)}) == 1000
