"""Arguments that cannot travel as data, by pickle: opened on the worker, in the sandbox that the function runs in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moregpu.client.functions.options import THIS_PYTHON
from moregpu.client.functions.program import dumps
from moregpu.encoding import Buffers, encode


def as_pickled(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], python: str = THIS_PYTHON
) -> tuple[Callable[..., Any], Buffers]:
    """A function that opens pickled arguments first, and its encoded arguments. Raises what `dumps` raises."""
    return _Opening(function), encode(((dumps((args, kwargs), python),), {}))


class _Opening:
    """Calls a function with what a pickle holds."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)

    def __call__(self, content: bytes) -> Any:
        import pickle

        args, kwargs = pickle.loads(content)  # noqa: S301 — runs in the sandbox alone
        return self.function(*args, **kwargs)
