"""What a program says to the coordinator, written down; what cannot be written is its own mistake, and told as such.

A number of NumPy's, or whatever else turns into a number, is one.
"""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from moregpu.errors import InvalidRequest


def packed(value: Any) -> bytes:
    """Write it as msgpack. Raises `InvalidRequest`."""
    try:
        return _packer.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise _unwritable(error) from error


def as_json(value: Any) -> bytes:
    """Write it as JSON. Raises `InvalidRequest`, also for numbers that JSON lacks and would write as null."""
    try:
        content = _writer.encode(value)
        if b"null" in content:
            _refuse_no_numbers(
                msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), enc_hook=_plain)
            )
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise _unwritable(error) from error
    return content


def in_path(part: str) -> str:
    """Write it as one part of a path. Raises `InvalidRequest`, also for nothing: that would be another path."""
    if not isinstance(part, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers have no types
        raise InvalidRequest(f"{type(part).__name__} is no name", "names and ids are text: job.id, tensor.name")
    if not part.strip():
        raise InvalidRequest("no name or id was given: it is empty", "was a variable never set?")
    try:
        return quote(part, safe="")
    except UnicodeEncodeError as error:
        raise _unwritable(error) from error


def as_query(fields: dict[str, object]) -> str:
    """Write them as what follows the question mark. Raises `InvalidRequest`."""
    try:
        return urlencode(fields)
    except UnicodeEncodeError as error:
        raise _unwritable(error) from error


def in_header(value: str) -> str:
    """Give it back where a header holds it. Raises `InvalidRequest`."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{value[:60]!r} cannot be sent in a header", "letters and digits can") from error
    if not value.isprintable():
        raise InvalidRequest(f"{value[:60]!r} cannot be sent in a header", "letters and digits can")
    return value


def _plain(value: Any) -> Any:
    """A number that Python has, for one that another library has: `numpy.float32`, a tensor of no axes."""
    if getattr(value, "ndim", 0) == 0:
        if callable(item := getattr(value, "item", None)):
            return item()
        if hasattr(value, "__float__"):
            return float(value)
    raise TypeError(f"{type(value).__name__} is neither text nor a number")


def _refuse_no_numbers(value: Any) -> None:
    """Raise where a number is none: JSON would say null, which is heard as if nothing had been said."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number here")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _refuse_no_numbers(one)


def _unwritable(error: Exception) -> InvalidRequest:
    if isinstance(error, UnicodeEncodeError):
        return InvalidRequest(f"{error.object[:60]!r} is no text: it holds what UTF-8 cannot", "name it otherwise")
    if isinstance(error, OverflowError):
        return InvalidRequest("a whole number is too large", "at most 2**63 - 1")
    return InvalidRequest(f"that cannot be sent: {error}", "give text and finite numbers")


_packer = msgspec.msgpack.Encoder(enc_hook=_plain)
_writer = msgspec.json.Encoder(enc_hook=_plain)
