"""Zones by name."""

from __future__ import annotations

import re
import zoneinfo

_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,30}(/[A-Za-z0-9][A-Za-z0-9_+-]{0,30}){0,3}")
"""Names of zones. A stranger's text is matched before a file of that name is looked for."""


def named_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """The zone of that name; None where this machine has no such zone."""
    if _ZONE.fullmatch(name) is None:
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        return None
