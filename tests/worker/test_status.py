"""The line that a worker shows."""

from __future__ import annotations

import pytest

from moregpu.worker.status import REMIND_S, Lines, Status
from moregpu.worker.throttle.controller import Reason


@pytest.mark.parametrize("reason", [Reason.FREE, Reason.CEILING])
def test_a_worker_that_nothing_holds_back_is_about_to_begin(reason: Reason) -> None:
    assert Status(state="paused", pool_name="attic", reason=reason).line == "online in the pool attic, about to begin"


def test_a_worker_that_is_held_back_says_by_what() -> None:
    line = Status(state="paused", pool_name="attic", reason=Reason.BATTERY).line
    assert line == "online in the pool attic, but paused: on battery"


def test_a_worker_that_leaves_room_says_how_not_to() -> None:
    line = Status(state="paused", pool_name="attic", reason=Reason.SHARED).line
    assert line.startswith("online in the pool attic, but leaving room for your programs (")
    assert "--no-yield" in line and "MOREGPU_YIELD=off" in line


def test_a_worker_whose_functions_stay_off_says_why() -> None:
    line = Status(state="online", pool_name="attic", computes_on="the CPU", functions_off="functions stay off: no").line
    assert line.endswith(", on the CPU; functions stay off: no")


ONLINE = Status(state="online", pool_name="attic", name="anna", worker="w-1")
TRYING = Status(state="connecting", pool_name="attic")


def away(retry_s: float, reason: str = "it cannot be reached") -> Status:
    return Status(state="connecting", pool_name="attic", reason=reason, retry_s=retry_s)


def test_a_pool_that_is_away_is_said_once_and_then_rarely() -> None:
    lines = Lines()
    assert lines.next(TRYING, 0.0) == "connecting to the pool attic"
    assert "does not answer" in (lines.next(away(1.0), 1.0) or "")
    said = [lines.next(status, 2.0 + at) for at in range(500) for status in (TRYING, away(1.0 + at % 60))]
    assert set(said) == {None}
    assert "does not answer" in (lines.next(away(60.0), 1.0 + REMIND_S) or "")
    assert lines.next(away(60.0), 2.0 + REMIND_S) is None


def test_another_reason_and_coming_back_are_said() -> None:
    lines = Lines()
    lines.next(away(1.0), 0.0)
    assert "another certificate" in (lines.next(away(2.0, "it shows another certificate"), 1.0) or "")
    assert lines.next(ONLINE, 2.0) == ONLINE.line
    assert lines.next(ONLINE, 3.0) is None
    assert "does not answer" in (lines.next(away(1.0), 4.0) or "")


def test_a_connection_that_is_back_at_once_is_not_worth_a_line() -> None:
    lines = Lines()
    lines.next(ONLINE, 0.0)
    assert [lines.next(status, 1.0) for status in (TRYING, ONLINE)] == [None, None]
