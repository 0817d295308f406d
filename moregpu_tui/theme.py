"""Textual themes made from our palettes, so that its own widgets wear the same colours."""

from __future__ import annotations

from textual.theme import Theme

from moregpu_tui.present.tones import THEMES, Palette, mixed, palette

PREFIX = "moregpu-"


def themes() -> list[Theme]:
    """One for each palette."""
    return [theme_of(palette(name)) for name in (*THEMES, "mono")]


def theme_of(palette: Palette) -> Theme:
    """A palette as Textual wants it."""
    if palette.ansi:
        return Theme(
            name=PREFIX + palette.name,
            primary="ansi_bright_cyan" if not palette.mono else "ansi_default",
            background="ansi_black" if not palette.mono else "ansi_default",
            surface="ansi_black" if not palette.mono else "ansi_default",
            panel="ansi_black" if not palette.mono else "ansi_default",
            foreground="ansi_white" if not palette.mono else "ansi_default",
            warning="ansi_bright_yellow" if not palette.mono else "ansi_default",
            error="ansi_bright_red" if not palette.mono else "ansi_default",
            success="ansi_bright_green" if not palette.mono else "ansi_default",
            accent="ansi_bright_cyan" if not palette.mono else "ansi_default",
            ansi=True,
            dark=True,
            variables={
                "rule": "ansi_bright_black" if not palette.mono else "ansi_default",
                "dim": "ansi_white" if not palette.mono else "ansi_default",
                "cursor": "ansi_blue" if not palette.mono else "ansi_default",
            },
        )
    tones, places = palette.tones, palette.places
    return Theme(
        name=PREFIX + palette.name,
        primary=tones["accent"],
        background=places["base"],
        surface=places["surface"],
        panel=places["raised"],
        foreground=tones["text"],
        warning=tones["warn"],
        error=mixed(tones["bad"], "#000000", 0.3) if palette.dark else tones["bad"],
        success=tones["good"],
        accent=tones["accent"],
        dark=palette.dark,
        variables={
            "rule": tones["rule"],
            "dim": tones["dim"],
            "cursor": places["cursor"],
            "footer-background": places["surface"],
        },
    )
