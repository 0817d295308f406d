"""How this console shows things: signs, zone and the time now, handed to every presenter."""

from __future__ import annotations

from datetime import tzinfo

import msgspec

from moregpu_tui.present.glyphs import UNICODE, Glyphs


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """Signs and zone."""

    glyphs: Glyphs = UNICODE
    zone: tzinfo | None = None
