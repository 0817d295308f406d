"""The pictures of the tray's icon, drawn beforehand: Pillow and its libraries would hold 8 MB for as long as it runs.

`python -m assets.draw_icons` draws them with `moregpu_tray.icon.draw` and keeps them in `pictures.msgpack`: a map from
name to deflated pixels.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec

from moregpu_tray.icon.protocol import STEPS, Picture
from moregpu_tray.view import Mood

FILE = Path(__file__).parent / "pictures.msgpack"
SIZES = (22, 24, 32, 48)
"""What panels ask for; they scale the rest."""

WITH_DUTY = (Mood.WORKING, Mood.YIELDING, Mood.IDLE)
"""Moods whose ring is filled; the others are drawn once."""


def every_picture() -> list[Picture]:
    """All that can be shown."""
    steps = {mood: range(STEPS + 1) if mood in WITH_DUTY else range(1) for mood in Mood}
    return [Picture(mood=mood, sixteenths=step) for mood in Mood for step in steps[mood]]


def entry(picture: Picture, size: int, dark: bool) -> str:
    """The name of one picture in the file."""
    step = min(max(picture.sixteenths, 0), STEPS) if picture.mood in WITH_DUTY else 0
    return f"{picture.mood.name.lower()}-{step}-{size}-{'dark' if dark else 'light'}"


def argb(picture: Picture, dark: bool) -> list[tuple[int, bytes]]:
    """The picture at every size: side, and ARGB32 in network order."""
    kept = msgspec.msgpack.decode(FILE.read_bytes(), type=dict[str, bytes])
    return [(size, zlib.decompress(kept[entry(picture, size, dark)])) for size in SIZES]
