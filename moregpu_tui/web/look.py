"""How the page and its terminal are coloured until the console has drawn its own."""

from __future__ import annotations

import msgspec

from moregpu.errors import MoreGPUError
from moregpu_tui.options import Settings, load_settings
from moregpu_tui.present.tones import ANSI_RGB, palette


class Look(msgspec.Struct):
    """Colours of the settings' theme, and what the sixteen of a terminal are: those that contrast was computed with."""

    dark: bool
    ground: str
    raised: str
    text: str
    dim: str
    accent: str
    rule: str
    ansi: dict[str, str]


def look() -> Look:
    """From the settings as they are now; the defaults where they cannot be read, which the console itself will say."""
    try:
        theme = load_settings().theme
    except MoreGPUError:
        theme = Settings().theme
    worn = palette(theme)
    places, tones = worn.places, worn.tones

    def rgb(colour: str) -> str:
        return ANSI_RGB.get(colour, colour)

    return Look(
        dark=worn.dark,
        ground=rgb(places["base"]),
        raised=rgb(places["raised"]),
        text=rgb(tones["text"]),
        dim=rgb(tones["dim"]),
        accent=rgb(tones["accent"]),
        rule=rgb(tones["rule"]),
        ansi=ANSI_RGB,
    )
