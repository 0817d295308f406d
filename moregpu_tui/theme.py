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
        return _ansi_theme(palette)
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


def _ansi_theme(palette: Palette) -> Theme:
    """The terminal's own sixteen colours; without colours, only its two defaults."""

    def colour(name: str) -> str:
        return "ansi_default" if palette.mono else f"ansi_{name}"

    return Theme(
        name=PREFIX + palette.name,
        primary=colour("bright_cyan"),
        background=colour("black"),
        surface=colour("black"),
        panel=colour("black"),
        boost=colour("black"),
        foreground=colour("white"),
        warning=colour("bright_yellow"),
        error=colour("bright_red"),
        success=colour("bright_green"),
        accent=colour("bright_cyan"),
        ansi=True,
        dark=True,
        variables={
            "rule": colour("bright_black"),
            "dim": colour("white"),
            "cursor": colour("blue"),
            "ansi-background": colour("black"),
            "ansi-foreground": colour("white"),
            "border-blurred": colour("black"),
            "block-cursor-foreground": colour("black"),
            "block-cursor-background": colour("white"),
            "input-cursor-background": colour("white"),
            "input-cursor-foreground": colour("black"),
            "input-cursor-text-style": "reverse",
            "input-selection-background": colour("bright_blue"),
            "input-selection-foreground": colour("black"),
            "screen-selection-background": colour("bright_blue"),
            "screen-selection-foreground": colour("black"),
        },
    )
