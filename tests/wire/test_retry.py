"""Waits between tries double up to a limit, and no two clients wait alike."""

from __future__ import annotations

from itertools import islice

from moregpu.wire.retry import delays


def test_waits_double_up_to_the_most() -> None:
    assert list(islice(delays(0.1, 1.0, lambda _, high: high), 6)) == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_waits_are_spread_over_the_upper_half() -> None:
    drawn = [wait for _ in range(100) for wait in islice(delays(1.0, 1.0), 3)]
    assert all(0.5 <= wait <= 1.0 for wait in drawn)
    assert len(set(drawn)) > 200
