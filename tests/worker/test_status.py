"""The line that a worker shows."""

from __future__ import annotations

import pytest

from moregpu.worker.status import Status
from moregpu.worker.throttle.controller import Reason


@pytest.mark.parametrize("reason", [Reason.FREE, Reason.CEILING])
def test_a_worker_that_nothing_holds_back_is_about_to_begin(reason: Reason) -> None:
    assert Status(state="paused", pool_name="attic", reason=reason).line == "online in attic, about to begin"


def test_a_worker_that_is_held_back_says_by_what() -> None:
    line = Status(state="paused", pool_name="attic", reason=Reason.BATTERY).line
    assert line == "online in attic, but paused: on battery"
