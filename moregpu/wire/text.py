"""Text that strangers wrote, made safe to show: cleaned once, where it is decoded.

Terminal escapes (ESC, C1, OSC 52), bidirectional overrides and other invisible characters can rewrite what a person
sees; length can push everything else off the screen. Markup (`[/`) is the business of whoever renders it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from moregpu.wire.messages import (
    Acknowledged,
    Assign,
    Bye,
    Cancel,
    Device,
    Heartbeat,
    Hello,
    LeaseRef,
    Limits,
    Output,
    Policy,
    Progress,
    Pulse,
    Refused,
    Reject,
    Result,
    Started,
    Taken,
    TaskError,
    Welcome,
)

NAME_LIMIT = 100
LINE_LIMIT = 2_000

UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0 (with ESC, tab, newlines), DEL, C1
    "\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # soft hyphen, Arabic letter mark, fillers
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, line separators, bidirectional marks and overrides
    "\ufe00-\ufe0f\ufeff\ufff0-\ufffb"  # variation selectors, byte order mark, interlinear marks
    "\ud800-\udfff"  # surrogates that JSON smuggled in
    "\U000e0000-\U000e0fff"  # tags
    "]"
)
"""What rewrites a terminal, or cannot be seen on it."""

_COMBINING_RUN = re.compile("([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{3})[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")  # fmt: skip # noqa: E501
_SPACES = re.compile("[\t\n\r\v\f\x85\u2028\u2029]+")

Struct = TypeVar("Struct")


def clean(text: str, limit: int = LINE_LIMIT) -> str:
    """One safe line: line breaks and tabs become a space, what cannot be seen goes, the rest ends after `limit`."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    text = _SPACES.sub(" ", text[: 4 * limit])
    text = _COMBINING_RUN.sub(r"\1", UNSAFE.sub("", text))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clean_message(message: Any) -> Any:
    """The same message with all text that people will see made safe.

    Raises `ValueError` when a name that only programs read (a job, task, kind) is not plain ASCII.
    """
    cleaner = _CLEANERS.get(type(message))
    return message if cleaner is None else cleaner(message)


# ---- worker → coordinator --------------------------------------------------------------------------------------------


def _hello(message: Hello) -> Hello:
    for kind in [*message.kinds, *message.consent]:
        _check_name(kind)
    if message.invite_id is not None:
        _check_name(message.invite_id)
    return replace(
        message,
        name=clean(message.name, NAME_LIMIT).strip(),
        system=clean(message.system, NAME_LIMIT),
        version=clean(message.version, NAME_LIMIT),
        isolation=clean(message.isolation, NAME_LIMIT),
        devices=[_device(device) for device in message.devices],
        limits=_limits(message.limits),
        consent={kind: [clean(whose, NAME_LIMIT) for whose in message.consent[kind]] for kind in message.consent},
    )


def _device(device: Device) -> Device:
    _check_name(device.id)
    return replace(
        device,
        name=clean(device.name, NAME_LIMIT),
        driver=clean(device.driver, NAME_LIMIT),
        engine=clean(device.engine, NAME_LIMIT),
    )


def _limits(limits: Limits) -> Limits:
    return _with(limits, "schedule", clean(limits.schedule, NAME_LIMIT))


def _heartbeat(message: Heartbeat) -> Heartbeat:
    _check_leases(message.held)
    for device in message.duty:
        _check_name(device)
    for digest in message.hot:
        _check_name(digest)
    return _with(message, "reason", clean(message.reason, NAME_LIMIT))


def _leases_only(message: Any) -> Any:
    _check_leases(message.leases)
    return message


def _with_reason(message: Any) -> Any:
    _check_leases(message.leases)
    return _with(message, "reason", clean(message.reason))


def _progress(message: Progress) -> Progress:
    _check_name(message.lease.task)
    return message


def _output(message: Output) -> Output:
    _check_name(message.lease.task)
    return replace(message, lines=[clean(line) for line in message.lines])


def _result(message: Result) -> Result:
    errors = False
    for entry in message.entries:
        _check_name(entry.task)
        errors = errors or entry.error is not None
        for output in entry.outputs:
            _check_name(output)
    if not errors:
        return message
    return replace(
        message,
        entries=[_with(entry, "error", _error(entry.error)) if entry.error else entry for entry in message.entries],
    )


def _error(error: TaskError) -> TaskError:
    return replace(error, code=clean(error.code, NAME_LIMIT), message=clean(error.message))


def _bye(message: Bye) -> Bye:
    return _with(message, "reason", clean(message.reason))


# ---- coordinator → worker --------------------------------------------------------------------------------------------


def _welcome(message: Welcome) -> Welcome:
    _check_name(message.worker)
    return _with(message, "pool_name", clean(message.pool_name, NAME_LIMIT))


def _assign(message: Assign) -> Assign:
    for entry in message.entries:
        for name in (entry.job, entry.task, entry.kind, entry.precision, entry.device):
            _check_name(name)
        for names in (entry.inputs, entry.outputs):
            for name in names:
                _check_name(name)
    return message


def _pulse(message: Pulse) -> Pulse:
    _check_leases(message.lost)
    return message


def _acknowledged(message: Acknowledged) -> Acknowledged:
    for entry in message.entries:
        _check_name(entry.task)
    if not any(entry.detail for entry in message.entries):
        return message
    return replace(message, entries=[_with(entry, "detail", clean(entry.detail)) for entry in message.entries])


def _policy(message: Policy) -> Policy:
    return replace(message, limits=_limits(message.limits), name=clean(message.name, NAME_LIMIT))


def _reject(message: Reject) -> Reject:
    return replace(
        message, code=clean(message.code, NAME_LIMIT), detail=clean(message.detail), hint=clean(message.hint)
    )


_CLEANERS: dict[type, Callable[[Any], Any]] = {
    Hello: _hello,
    Heartbeat: _heartbeat,
    Taken: _leases_only,
    Started: _leases_only,
    Progress: _progress,
    Output: _output,
    Result: _result,
    Refused: _with_reason,
    Bye: _bye,
    Welcome: _welcome,
    Assign: _assign,
    Pulse: _pulse,
    Acknowledged: _acknowledged,
    Cancel: _with_reason,
    Policy: _policy,
    Reject: _reject,
}


def _check_leases(leases: list[LeaseRef]) -> None:
    for lease in leases:
        _check_name(lease.task)


def _check_name(name: str) -> None:
    if not (name.isascii() and name.isprintable() and len(name) <= NAME_LIMIT):
        raise ValueError("a name of the protocol is not plain ASCII")


def _with(struct: Struct, field: str, value: Any) -> Struct:
    return struct if getattr(struct, field) == value else replace(struct, **{field: value})  # pyright: ignore[reportArgumentType, reportUnknownVariableType, reportCallIssue]
