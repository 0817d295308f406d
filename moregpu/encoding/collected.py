"""Containers of Python's `collections`: as a list or a dict, and what makes it again."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

from moregpu.encoding.layout import Malformed, Unencodable

FACTORIES: Mapping[str, Callable[[], Any]] = {
    "bool": bool, "bytes": bytes, "dict": dict, "float": float, "int": int, "list": list, "set": set, "str": str,
    "tuple": tuple,
}  # fmt: skip
"""What fills a `defaultdict` that travels: a stranger's word chooses among these, and calls nothing else."""

_NAMES = {factory: name for name, factory in FACTORIES.items()}
COLLECTED = (collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque)


def taken_apart(value: Any) -> tuple[str, list[Any] | dict[Any, Any], int | str | None]:
    """Its class's name, what is in it, and what else makes it: a deque's length, the name of a dict's factory."""
    if isinstance(value, collections.deque):
        return "deque", list(value), value.maxlen
    return type(value).__name__, dict(value), _factory_of(value) if type(value) is collections.defaultdict else None


def _factory_of(value: collections.defaultdict[Any, Any]) -> str | None:
    factory: Any = value.default_factory
    if factory is None:
        return None
    if factory not in _NAMES:
        raise Unencodable(f"a defaultdict of {factory!r:.60} cannot travel: make it a dict first")
    return _NAMES[factory]


def put_together(name: str, inside: Any, more: Any = None) -> Any:
    """The container. Raises `Malformed`."""
    match name, inside, more:
        case "deque", list(), None | int() if more is None or (type(more) is int and len(inside) <= more):
            return collections.deque(inside, more)
        case "OrderedDict", dict(), None:
            return collections.OrderedDict(inside)
        case "Counter", dict(), None:
            counter: collections.Counter[Any] = collections.Counter()
            dict.update(counter, inside)  # as it was: a count may be anything, and is not added up
            return counter
        case "defaultdict", dict(), None | str() if more is None or more in FACTORIES:
            return collections.defaultdict(None if more is None else FACTORIES[more], inside)
        case _:
            raise Malformed("a container that no one has")
