"""Answers as MoreGPU 1.x writes them: a field a line, which shell scripts grep and cut; figures without long tails."""

from __future__ import annotations

from typing import Any

import msgspec

from moregpu.coordinator.api.ask import Answer


def shown(value: Any, status: int = 200) -> Answer:
    """An answer for programs and for shell scripts that know no JSON."""
    return Answer(status=status, body=lines_of(value))


def lines_of(value: Any) -> bytes:
    """JSON with a field or item a line, two spaces further in at each level."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def figure(value: float, digits: int) -> float:
    """A figure to so many digits, and whole ones without a point, as JavaScript writes numbers."""
    rounded = round(value, digits)
    return int(rounded) if rounded.is_integer() else rounded
