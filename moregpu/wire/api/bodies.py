"""What all bodies have in common, and the problem document."""

from __future__ import annotations

import msgspec


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request body: an unknown field is an error."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: a newer coordinator may say more."""


class Problem(View, frozen=True, kw_only=True):
    """RFC 9457 problem document. `type` is `about:moregpu/<code>`."""

    type: str
    title: str
    status: int
    detail: str = ""
    hint: str = ""
