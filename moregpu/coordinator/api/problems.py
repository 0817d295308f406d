"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

import msgspec

from moregpu.errors import InvalidRequest, MoreGPUError, OutOfSpace, TooManyRequests, Unauthorized, Unavailable
from moregpu.platform.room import is_full
from moregpu.wire.api import Problem

PROBLEM_JSON = "application/problem+json"


class MethodNotAllowed(InvalidRequest):
    """The path exists, with other verbs."""

    code, title, status = "method-not-allowed", "That verb is not for this path", 405


class SlowSender(InvalidRequest):
    """A body did not come in time."""

    code, title, status = "too-slow", "The body did not arrive in time", 408


class LengthRequired(InvalidRequest):
    """A body of unknown length where the length is checked first."""

    code, title, status = "length-required", "The length must be said first", 411


class NotSatisfiable(InvalidRequest):
    """A Range outside the blob."""

    code, title, status = "range-not-satisfiable", "That range is not in it", 416


class NotAcceptable(InvalidRequest):
    """No form that was asked for can hold the result."""

    code, title, status = "not-acceptable", "The result has no such form", 406


def problem(error: MoreGPUError, status: int | None = None) -> Problem:
    """The document of an error; `status` where a door answers otherwise than the class says."""
    return Problem(
        type=f"about:moregpu/{error.code}",
        title=error.title,
        status=status if status is not None else error.status,
        detail=error.detail,
        hint=error.hint,
    )


def failed(error: Exception, mark: str) -> MoreGPUError:
    """What a caller is told of an error that no part of the coordinator understood; its log has it under this mark."""
    if isinstance(error, OSError) and is_full(error):
        return OutOfSpace(
            "the disk of the coordinator's state folder is full; nothing of this was kept",
            "free some space there, then try again",
        )
    return MoreGPUError("the coordinator failed at this", f"its log has it: {mark}")


def problem_headers(error: MoreGPUError) -> list[tuple[bytes, bytes]]:
    """What some statuses are to carry beside the document (RFC 9110: 401, 405, 429, 503)."""
    if isinstance(error, Unauthorized):
        return [(b"www-authenticate", b'Bearer realm="moregpu"')]
    if isinstance(error, TooManyRequests):
        return [(b"retry-after", b"%d" % (error.retry_after_s or 60))]
    if isinstance(error, Unavailable):
        return [(b"retry-after", b"%d" % (error.retry_after_s or 2))]
    if isinstance(error, MethodNotAllowed):
        return [(b"allow", error.hint.removeprefix("use ").encode())]
    return []


def encoded(document: Problem) -> bytes:
    """Compact JSON."""
    return msgspec.json.encode(document)
