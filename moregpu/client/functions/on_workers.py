"""What runs on workers around somebody's function: found there by its name, so this module goes into every sandbox.

An environment of named packages holds msgspec and cloudpickle beside those and nothing else of what this program has:
only Python's own modules and `moregpu.encoding` may be imported here.
"""

from __future__ import annotations

import ast
import linecache
import pickle
from collections.abc import Callable
from typing import Any

from moregpu.encoding import Unencodable, encode

MOST_TEXT = 20_000
"""Of the text of a value that does not travel."""


class Opening:
    """Calls a function with what a pickle holds."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, content: bytes) -> Any:
        args, kwargs = pickle.loads(content)  # noqa: S301 — runs in the sandbox alone
        return self.function(*args, **kwargs)


class Spread:
    """Calls a function with positional and named arguments that came as one value."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.function(*args, **kwargs)


def run_items(content: bytes) -> list[Any]:
    """Make joblib's calls."""
    return [function(*args, **kwargs) for function, args, kwargs in pickle.loads(content)]  # noqa: S301 — as above


def itself(function: Callable[..., Any]) -> Callable[..., Any]:
    """What an accelerated function is on a worker: the function alone."""
    return function


def enum_made(kind: Any, state: tuple[Callable[[Any, Any], Any], Any, dict[str, dict[str, Any]]]) -> Any:
    """Finish an enum: its methods, and what its constructor had set on each member."""
    put, what, set_on = state
    put(kind, what)
    for name, attributes in set_on.items():
        kind.__members__[name].__dict__.update(attributes)
    return kind


def run_cell(cell: str, known: dict[str, Any], bound: list[str]) -> tuple[dict[str, Any], Any, str | None]:
    """Run a notebook's cell.

    Gives what it bound, its last expression's value, and the text of one that does not travel.
    """
    names = {"__name__": "__main__", **known}
    tree = ast.parse(cell)
    linecache.cache["<cell>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell>")  # for tracebacks
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102
    value = None
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307
    given = {name: names[name] for name in bound if name in names and _travels(names[name])}
    return (given, value, None) if _travels(value) else (given, None, repr(value)[:MOST_TEXT])


def _travels(value: Any) -> bool:
    try:
        encode(value)
    except Unencodable:
        return False
    return True
