"""Sizes as people write them on a command line."""

from __future__ import annotations

import re

from moregpu.errors import InvalidRequest


def read_size(option: str, text: str | None) -> int | None:
    """Bytes of a size as people write it: `1500`, `200 MB`, `1.5TiB`. Raises `InvalidRequest`."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*(?:([kMGT])(i?)B?|B)?\s*", text)
    if match is None:
        raise InvalidRequest(f"{option} {text[:20]!r} is no size", "write it like 200MB, 50GB or 1TiB")
    number, unit, binary = match.groups()
    power = " kMGT".index(unit) if unit else 0
    return int(float(number) * (1024 if binary else 1000) ** power)
