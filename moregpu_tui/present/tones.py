"""Tones and the palettes that colour them. A tone is what text means; a palette says how that looks.

State colours come from the Okabe–Ito set, which colour-blind people can tell apart; on each background they are moved
towards white or black until their contrast suffices (WCAG 2.2, 1.4.3: 4.5; the high contrast palette: 7).
"""

from __future__ import annotations

from functools import cache

import msgspec

OKABE_ITO = {
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "green": "#009e73",
    "yellow": "#f0e442",
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "purple": "#cc79a7",
}
"""Okabe and Ito, Color Universal Design, 2008."""

MEANINGS: dict[str, str] = {
    "ready": "sky",
    "busy": "green",
    "throttled": "orange",
    "draining": "purple",
    "offline": "vermillion",
    "paused": "purple",
    "suspect": "vermillion",
    "pending": "yellow",
    "good": "green",
    "warn": "orange",
    "bad": "vermillion",
    "queue": "sky",
    "throughput": "green",
    "throttle": "orange",
    "latency": "purple",
}
"""Tone → colour of the set."""

BOLD = frozenset({"strong", "suspect", "bad", "head", "key"})
NEUTRAL = ("text", "strong", "dim", "head", "revoked", "key", "accent", "rule")
TONES: tuple[str, ...] = (*NEUTRAL, *MEANINGS)

PLACES = ("base", "surface", "raised", "cursor", "marked")
"""Backgrounds that text stands on."""


class Palette(msgspec.Struct, frozen=True, kw_only=True):
    """Colours of a theme: `#rrggbb`, a name of the sixteen ANSI colours, or "" for the terminal's own."""

    name: str
    dark: bool
    places: dict[str, str]
    tones: dict[str, str]
    beam: tuple[str, str, str] = ("", "", "")  # backgrounds of the radar's beam, faint to strong
    ansi: bool = False
    mono: bool = False  # no colours at all: bold, dim and reverse say what colours would


def _palette(
    name: str, *, dark: bool, places: dict[str, str], neutral: dict[str, str], beam: tuple[str, str, str], least: float
) -> Palette:
    grounds = [*places.values()]
    tones = {tone: readable(colour, grounds, least) for tone, colour in neutral.items() if tone != "rule"}
    tones |= {tone: readable(OKABE_ITO[colour], grounds, least) for tone, colour in MEANINGS.items()}
    tones["rule"] = neutral["rule"]
    return Palette(name=name, dark=dark, places=places, tones=tones, beam=beam)


@cache
def palette(name: str) -> Palette:
    """A palette by the name that settings use; an unknown name gives the dark one."""
    match name:
        case "light":
            return _palette(
                "light",
                dark=False,
                places={
                    "base": "#fbfbf9", "surface": "#f0f1ef", "raised": "#e7e9e7", "cursor": "#d6e6f4",
                    "marked": "#f6ecd2",
                },
                neutral={
                    "text": "#24292f", "strong": "#0b0f14", "dim": "#5a646e", "head": "#3d4750", "revoked": "#5a646e",
                    "key": "#0b5c93", "accent": "#0b5c93", "rule": "#cfd4d6",
                },
                beam=("#e9f1ec", "#d6e8dd", "#b6d8c4"),
                least=4.5,
            )  # fmt: skip
        case "contrast":
            return _palette(
                "contrast",
                dark=True,
                places={
                    "base": "#000000", "surface": "#0a0a0a", "raised": "#161616", "cursor": "#00264d",
                    "marked": "#332600",
                },
                neutral={
                    "text": "#ffffff", "strong": "#ffffff", "dim": "#c8c8c8", "head": "#ffffff", "revoked": "#c8c8c8",
                    "key": "#7fd0ff", "accent": "#7fd0ff", "rule": "#5a5a5a",
                },
                beam=("#001a0c", "#003016", "#005a2b"),
                least=7.0,
            )  # fmt: skip
        case "ansi":
            return Palette(
                name="ansi",
                dark=True,
                places={"base": "black", "surface": "black", "raised": "black", "cursor": "blue", "marked": "black"},
                tones={
                    **dict.fromkeys(TONES, "white"),
                    "strong": "bright_white", "head": "bright_white", "key": "bright_cyan", "accent": "bright_cyan",
                    "ready": "bright_cyan", "busy": "bright_green", "throttled": "bright_yellow",
                    "draining": "white", "paused": "white", "offline": "bright_white", "suspect": "bright_white",
                    "pending": "bright_yellow", "good": "bright_green", "warn": "bright_yellow", "bad": "bright_white",
                    "queue": "bright_cyan", "throughput": "bright_green", "throttle": "bright_yellow",
                    "latency": "bright_white", "rule": "bright_black",
                },
                beam=("black", "black", "black"),
                ansi=True,
            )  # fmt: skip
        case "mono":
            return Palette(
                name="mono",
                dark=True,
                places=dict.fromkeys(PLACES, ""),
                tones=dict.fromkeys(TONES, ""),
                mono=True,
                ansi=True,
            )
        case _:
            return _palette(
                "dark",
                dark=True,
                places={
                    "base": "#0e1318", "surface": "#141b22", "raised": "#1b242d", "cursor": "#1d3550",
                    "marked": "#2f2a17",
                },
                neutral={
                    "text": "#c6d0d9", "strong": "#f2f6f9", "dim": "#8695a3", "head": "#a9b7c4", "revoked": "#8695a3",
                    "key": "#7cc4f5", "accent": "#7cc4f5", "rule": "#33414e",
                },
                beam=("#10211c", "#123026", "#17503a"),
                least=4.5,
            )  # fmt: skip


THEMES = ("dark", "light", "contrast", "ansi")
"""Palettes that a person may choose; `mono` is what NO_COLOR asks for."""


# ---- contrast --------------------------------------------------------------------------------------------------------

ANSI_RGB = {
    "black": "#000000", "red": "#cd0000", "green": "#00cd00", "yellow": "#cdcd00", "blue": "#0000ee",
    "magenta": "#cd00cd", "cyan": "#00cdcd", "white": "#e5e5e5", "bright_black": "#7f7f7f", "bright_red": "#ff0000",
    "bright_green": "#00ff00", "bright_yellow": "#ffff00", "bright_blue": "#5c5cff", "bright_magenta": "#ff00ff",
    "bright_cyan": "#00ffff", "bright_white": "#ffffff",
}  # fmt: skip
"""What xterm shows for the sixteen colours, unless its user changed them."""


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
    a, b = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def readable(colour: str, grounds: list[str], least: float) -> str:
    """The colour, moved towards white or black until it stands out from every ground."""
    light = sum(_luminance(ground) for ground in grounds) / len(grounds) < 0.18
    for step in range(101):
        moved = mixed(colour, "#ffffff" if light else "#000000", step / 100)
        if all(contrast(moved, ground) >= least for ground in grounds):
            return moved
    return "#ffffff" if light else "#000000"


def mixed(one: str, other: str, share: float) -> str:
    """`share` of the other colour in the one."""
    channels = zip(_channels(one), _channels(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in channels)


def _channels(colour: str) -> tuple[int, int, int]:
    text = ANSI_RGB.get(colour, colour).lstrip("#")
    return int(text[0:2], 16), int(text[2:4], 16), int(text[4:6], 16)


def _luminance(colour: str) -> float:
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in _channels(colour))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
