"""How the console's process keeps its memory."""

from __future__ import annotations

import gc

OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Events, rows and strips are made by the thousand and form no cycles; widgets are few, and stay."""


def settle() -> None:
    """Once everything is imported: what is there now is not walked again and again in search of cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
