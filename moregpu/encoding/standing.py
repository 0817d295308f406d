"""Values that stand for others: put in their place, in containers that stay what they were."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any


def replaced(value: Any, stands_for: Callable[[Any], Callable[[], Any] | None]) -> Any:
    """The value, with what others stand for in their place: it itself, and what lists, tuples and dicts of it hold.

    `stands_for` gives what opens the value that another one stands for; None: it stands for itself. Containers that
    can be are changed where they are, so that a Counter stays one, and a list that is there twice is the same twice.
    """
    opened = stands_for(value)
    if opened is not None:
        return opened()
    match value:
        case list() | collections.deque():
            for place, item in enumerate(value):
                value[place] = replaced(item, stands_for)
        case dict():
            for key, item in value.items():
                value[key] = replaced(item, stands_for)  # a key that is there: nothing moves
        case tuple():
            return tuple.__new__(type(value), [replaced(item, stands_for) for item in value])
        case _:
            pass
    return value
