"""What one look at a seat tells."""

from __future__ import annotations

import msgspec


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a seat."""

    idle_s: float | None
    """Seconds since the last input; None: cannot be told, infinite: nobody is logged in."""
    full_screen: bool = False
    """A program fills the screen: a film, a game, a talk."""


UNKNOWN = Presence(idle_s=None)
