"""What a client of MoreGPU 1.x sends: JSON whatever the content type, sizes as any number, arrays as base64."""

from __future__ import annotations

import math
from typing import Any, TypeVar, cast

import msgspec

from moregpu.coordinator.api.ask import Ask
from moregpu.errors import InvalidRequest, TooLarge

T = TypeVar("T")

MAX_BODY_BYTES = 512 << 20
"""Two inputs of 48 million float32 each, as base64."""
_PIECE_BYTES = 1 << 20
"""A body of more is decoded on a thread."""
_BASE64 = "send little-endian float32 as standard base64"
_ARRAYS = ("a", "b", "data")
"""Fields that hold base64."""

Number = int | float | str | None
"""JavaScript read "512" as a number, and scripts rely on it."""


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, rename={"at_once": "async"}):
    """POST /submit. What 1.x did not know is left alone, as it was there."""

    kernel: str | None = None
    size: Number = None
    a: bytes | None = None
    b: bytes | None = None
    bRef: str | None = None  # noqa: N815 — their name
    scalar: Number = None
    M: Number = None
    N: Number = None
    K: Number = None
    at_once: Any = None


class WeightBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /weights."""

    id: str
    data: bytes
    rows: Number
    cols: Number
    dtype: str | None = None
    worker: str | None = None


class ControlBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /workers/{id}/control."""

    action: str | None = None
    ceil: Number = None
    schedule: str | None = None
    nick: str | None = None


async def read_body(ask: Ask, type: type[T]) -> T:
    """The body, however it is labelled; none at all is an empty object. Raises `InvalidRequest`, `TooLarge`."""
    if (ask.content_length or 0) > MAX_BODY_BYTES:
        raise TooLarge(f"the body is larger than {MAX_BODY_BYTES:,} bytes", "cut the arrays in parts, or use /v1/blobs")
    data = bytearray()
    async for part in ask.body_parts():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise TooLarge(f"the body is larger than {MAX_BODY_BYTES:,} bytes", "cut the arrays in parts")
    if not data:
        data += b"{}"
    if len(data) > _PIECE_BYTES:
        return await ask.services.offload(lambda: _decoded(data, type))
    return _decoded(data, type)


def _decoded(data: bytearray, type: type[T]) -> T:
    try:
        try:
            return msgspec.json.decode(data, type=type)
        except msgspec.ValidationError as error:
            if "base64" not in str(error):
                raise
            return msgspec.convert(_tidied(cast("dict[str, Any]", msgspec.json.decode(data))), type)
    except msgspec.ValidationError as error:
        raise _misfit(error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"the body is no JSON: {error}", "send a JSON object, whatever the content type"
        ) from error


def _tidied(body: dict[str, Any]) -> dict[str, Any]:
    """Its base64 without line ends (`base64` writes them) and with its padding: JavaScript reads it either way."""
    for name in _ARRAYS:
        if isinstance(text := body.get(name), str):
            # At once: in pieces, a body of single letters and blanks would take 24 times its size.
            joined = text.encode("ascii", "replace").translate(None, b" \t\r\n\f\v").decode()
            body[name] = joined if joined.endswith("=") else joined + "=" * (-len(joined) % 4)
    return body


def _misfit(error: msgspec.ValidationError) -> InvalidRequest:
    if "base64" in str(error):
        return InvalidRequest(f"bad base64: {error}", _BASE64)
    hint = _BASE64 if "bytes" in str(error) else "GET /help shows the calls"
    return InvalidRequest(f"the body is not what was expected: {error}", hint)


def whole(value: Number, name: str, default: int | None = None) -> int:
    """A size: a whole number from 0 on. Raises `InvalidRequest`, also for NaN."""
    if value is None:
        if default is None:
            raise InvalidRequest(f"{name} is missing")
        return default
    read = _finite(value, name)
    if not (read >= 0 and read == int(read)):
        raise InvalidRequest(f"{name}={said(value)} is no whole number from 0 on")
    return int(read)


def number(value: Number, name: str, default: float) -> float:
    """Any finite number. Raises `InvalidRequest`."""
    return default if value is None else float(_finite(value, name))


def _finite(value: int | float | str, name: str) -> int | float:
    try:
        read = float(value) if isinstance(value, str) else value
    except ValueError:
        read = math.nan
    if not math.isfinite(read):
        raise InvalidRequest(f"{name}={said(value)} is no finite number")
    return read


def said(value: Any) -> str:
    """A stranger's text in a message of ours."""
    return repr(value)[:80]
