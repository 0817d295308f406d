"""Arguments that cannot travel as data, by pickle: opened on the worker, in the sandbox that the function runs in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moregpu.client.functions.on_workers import Opening
from moregpu.client.functions.options import THIS_PYTHON
from moregpu.client.functions.program import dumps
from moregpu.encoding import Buffers, encode


def as_pickled(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], python: str = THIS_PYTHON
) -> tuple[Callable[..., Any], Buffers]:
    """A function that opens pickled arguments first, and its encoded arguments. Raises what `dumps` raises."""
    return Opening(function), encode(((dumps((args, kwargs), python),), {}))
