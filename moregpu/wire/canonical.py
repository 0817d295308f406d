"""The one byte string that stands for a list of values, so that two programs sign and hash the same thing.

msgpack with the shortest form of every value, no maps, byte strings as `bin`, text as `str`, floats always as float64:
what msgspec writes for lists of `bytes`, `str`, `int`, `float` and lists.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

Value = bytes | str | int | float | Sequence["Value"]

_ENCODER = msgspec.msgpack.Encoder()


def canonical(values: Sequence[Value]) -> bytes:
    """Encode a list. Whoever means a number with a fraction passes a `float`, even where it is whole."""
    return _ENCODER.encode(values)
