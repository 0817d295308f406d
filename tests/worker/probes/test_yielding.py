"""The owner touches the machine: the pool's work is cut between slices, for real."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from tests.displays import screen
from tests.drivers import any_adapter
from tests.worker.noise import through_noise
from tests.worker.yielding import input_to_cut


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["cpu", "gpu"])
def test_input_at_a_real_desktop_cuts_the_work_that_runs(tmp_path: Path, engine: Literal["cpu", "gpu"]) -> None:
    if engine == "gpu":
        any_adapter()
    with screen() as x:
        cuts = asyncio.run(input_to_cut(tmp_path, x.name, 2, engine))
    for cut in cuts:
        assert cut.decided_s < 5.0, "the bar of 0.1 s is `benchmarks.throttle`'s: other tests run beside this one"
        assert cut.rested_s < 10.0
        assert cut.share < 0.5, "it computed at 0.8 before, on every core where a CPU plays GPU"


@pytest.mark.acceptance
@pytest.mark.timeout(900)
def test_ten_minutes_of_other_programs_bursts_make_it_hunt_not_once_and_leave_it_most_of_what_is_free(
    tmp_path: Path,
) -> None:
    with screen() as x:
        heard = asyncio.run(through_noise(tmp_path, x.name, 600.0))
    assert heard.reversals_per_min == 0.0, heard.duties
    assert heard.harvested >= 0.80
