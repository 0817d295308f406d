"""How this console shows things: signs, zone and the time now, handed to every presenter."""

from __future__ import annotations

from datetime import tzinfo

import msgspec

from moregpu_tui.actions import BY_ID, shown_key
from moregpu_tui.present.glyphs import UNICODE, Glyphs


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """Signs, zone and keys."""

    glyphs: Glyphs = UNICODE
    zone: tzinfo | None = None
    keys: tuple[tuple[str, str], ...] = ()
    """Actions that the settings gave another key, and the key."""

    def key(self, id: str) -> str:
        """An action's key, as people read it here."""
        return shown_key(dict(self.keys).get(id, BY_ID[id].key))
