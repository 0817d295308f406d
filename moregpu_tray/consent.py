"""Whose Python code may run here, in words: as people write it, and as they read it."""

from __future__ import annotations

from collections.abc import Iterable

from moregpu.errors import InvalidRequest
from moregpu.wire.messages import EVERYBODY, OF_GROUP
from moregpu.wire.text import NAME_LIMIT, clean

MOST = 1000
"""Names that a worker can tell the pool (`wire.messages.Consent`)."""


def names_of(given: Iterable[str]) -> tuple[str, ...]:
    """Names as the pool knows them: `nobody`, `everybody`, or labels or groups of tokens, by commas or one by one.

    Raises `InvalidRequest` for names that cannot be any.
    """
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    words = {name.casefold() for name in names}
    if words & {"nobody", "everybody", EVERYBODY} and len(words) > 1:
        raise InvalidRequest("nobody and everybody stand alone", "name people, or one of these words")
    if words <= {"nobody"}:
        return ()
    if words <= {"everybody", EVERYBODY}:
        return (EVERYBODY,)
    for name in names:
        if clean(name, NAME_LIMIT) != name:
            raise InvalidRequest(
                f"{clean(name, 60)!r} is no name of a submitter", "see what ran here, or ask the admin"
            )
    if len(names) > MOST:
        raise InvalidRequest(f"these are {len(names)} names, and {MOST} can be told", "or let everybody in")
    return tuple(dict.fromkeys(names))


def told(whose: Iterable[str]) -> str:
    """Like `nobody's`, `everybody's in this pool`, `alice's and bob's`."""
    names = tuple(whose)
    if not names:
        return "nobody's"
    if EVERYBODY in names:
        return "everybody's in this pool"
    each = [
        f"the group {name.removeprefix(OF_GROUP)}'s" if name.startswith(OF_GROUP) else f"{name}'s" for name in names
    ]
    return each[0] if len(each) == 1 else f"{', '.join(each[:-1])} and {each[-1]}"
