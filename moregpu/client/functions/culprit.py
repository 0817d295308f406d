"""What keeps a function from travelling: the name of the thing, which pickle does not say."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

MOST_STEPS = 8
MOST_TRIED = 2000
"""Things that are looked at. Each is pickled for it, so what a large one takes is taken again at each step."""


def place_of(value: Any, travels: Callable[[Any], bool], names_of: Callable[[Any], Iterator[str]]) -> str:
    """Where in a value the thing lies that does not travel: `its table → lock (_thread.lock)`; empty for itself."""
    steps: list[str] = []
    seen: set[int] = set()
    while len(steps) < MOST_STEPS and len(seen) < MOST_TRIED:
        for name, inside in _inside(value, names_of):
            if id(inside) in seen:
                continue
            seen.add(id(inside))
            if not travels(inside):
                steps.append(name)
                value = inside
                break
        else:
            break
    kind = type(value)
    return f"{' → '.join(steps)} ({kind.__module__}.{kind.__qualname__})" if steps else ""


def _inside(value: Any, names_of: Callable[[Any], Iterator[str]]) -> Iterator[tuple[str, Any]]:
    match value:
        case FunctionType():
            own = value.__globals__
            yield from ((name, own[name]) for name in dict.fromkeys(names_of(value.__code__)) if name in own)
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                try:
                    yield name, cell.cell_contents
                except ValueError:  # empty yet
                    continue
            defaults = value.__defaults__ or ()
            arguments = value.__code__.co_varnames[: value.__code__.co_argcount]
            yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
            yield from (value.__kwdefaults__ or {}).items()
            yield from vars(value).items()
        case MethodType():
            yield "self", value.__self__
            yield value.__name__, value.__func__
        case functools.partial():
            yield "func", value.func
            yield from ((f"args[{place}]", item) for place, item in enumerate(value.args))
            yield from value.keywords.items()
        case dict():
            yield from ((f"[{key!r:.60}]", item) for key, item in value.items())
        case list() | tuple():
            yield from ((f"[{place}]", item) for place, item in enumerate(value))
        case ModuleType() | type():
            yield from vars(value).items()
        case _:
            yield from getattr(value, "__dict__", {}).items()
