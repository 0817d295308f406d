"""A job's result in a few lines. Everything of it came from a worker: it is data here, and its text is cleaned."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from typing import Any

from moregpu.encoding import Malformed, decode
from moregpu.encoding.failures import unpacked
from moregpu.encoding.records import Status, read_records
from moregpu.wire.text import clean

MOST_CALLS = 100
WIDEST = 200

_short = reprlib.Repr()
_short.maxstring = _short.maxother = WIDEST
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = 12


def call_lines(arrays: dict[str, Any]) -> list[str]:
    """What each call gave, or why it gave nothing."""
    lines: list[str] = []
    more = 0
    try:
        for number, (status, content) in enumerate(_records(arrays)):
            if number >= MOST_CALLS:
                more += 1
            elif status is Status.VALUE:
                lines.append(f"call {number}: {_value(content)}")
            else:
                lines.append(f"call {number}: {_failure(content)}")
    except Malformed as error:
        lines.append(f"the rest cannot be read: {clean(str(error), WIDEST)}")
    return [*lines, f"and {more:,} more calls"] if more else lines


def array_lines(name: str, array: Any) -> list[str]:
    """What an array is, and its corner."""
    import numpy as np

    if not array.size:
        return [f"{name}: {array.dtype} {list(array.shape)}, empty"]
    finite = array[np.isfinite(array)]
    lines = [f"{name}: {array.dtype} {' × '.join(str(length) for length in array.shape)}, {array.nbytes:,} bytes"]
    if finite.size:
        values = finite.astype(np.float64)
        lines.append(f"  from {values.min():.6g} to {values.max():.6g}, mean {values.mean():.6g}")
    odd = array.size - finite.size
    if odd:
        lines.append(f"  {odd:,} elements are not finite")
    corner = np.atleast_2d(array[tuple(slice(0, 6) for _ in array.shape)])
    for row in corner.reshape(-1, corner.shape[-1])[:6]:
        lines.append("  " + "  ".join(f"{float(value):>12.6g}" for value in row[:6]))
    return lines


def _records(arrays: dict[str, Any]) -> Iterator[tuple[Status, memoryview]]:
    for name in sorted(arrays, key=lambda name: int(name.partition("/")[2] or 0)):
        yield from read_records(memoryview(arrays[name]))


def _value(content: memoryview) -> str:
    try:
        return clean(_short.repr(decode(content, views=True)), WIDEST)
    except Malformed as error:
        return f"cannot be shown: {clean(str(error), WIDEST)}"


def _failure(content: memoryview) -> str:
    failure = unpacked(content)
    what = failure.type.partition(":")[2] or failure.cause
    return clean(f"{what}: {failure.text}", WIDEST)
