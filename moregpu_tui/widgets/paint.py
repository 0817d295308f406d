"""From pieces with tones to strips: the only place where tones become terminal styles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from moregpu_tui.present.cells import Line, fill, length, split
from moregpu_tui.present.glyphs import Glyphs, plain
from moregpu_tui.present.tones import BOLD, Palette


class Paint:
    """Styles of one palette, made once each."""

    def __init__(self, palette: Palette, glyphs: Glyphs) -> None:
        self.palette = palette
        self.glyphs = glyphs
        self._styles: dict[tuple[str, str], Style] = {}

    def style(self, tone: str, place: str = "base") -> Style:
        """The style of a tone on a background; an unknown tone is plain text."""
        found = self._styles.get((tone, place))
        if found is None:
            found = self._styles[tone, place] = self._made(tone, place)
        return found

    def strip(self, line: Iterable[tuple[str, str]], width: int, place: str = "base", *, faded: bool = False) -> Strip:
        """A line of exactly `width` cells. `faded`: old data, all in the dim tone."""
        pieces = fill(line, width, dots=self.glyphs.dots)
        return self._strip(pieces, width, place, faded)

    def both_ends(
        self, left: Iterable[tuple[str, str]], right: Iterable[tuple[str, str]], width: int, place: str = "base"
    ) -> Strip:
        """A line with something at both ends."""
        return self._strip(split(left, right, width, self.glyphs.dots), width, place, False)

    def blank(self, width: int, place: str = "base") -> Strip:
        """Nothing, on a background."""
        return Strip([Segment(" " * width, self.style("text", place))], width)

    def _strip(self, pieces: Sequence[tuple[str, str]], width: int, place: str, faded: bool) -> Strip:
        """Neighbours that look the same are one segment; a space goes with what stands before it.

        A terminal is told of every segment in forty bytes, and reads them all.
        """
        joins = not self.palette.mono  # there a space can be underlined, or turned round
        segments: list[Segment] = []
        run, worn = "", None
        for text, tone in pieces:
            if not text:
                continue
            style = self.style("dim" if faded else tone, place)
            if worn is None or not (style is worn or (joins and text.isspace())):
                if worn is not None:
                    segments.append(Segment(run, worn))
                run, worn = text, style
            else:
                run += text
        if worn is not None:
            segments.append(Segment(run, worn))
        if self.glyphs.ascii:
            segments = [Segment(plain(text, self.glyphs), style) for text, style, _ in segments]
        return Strip(segments, width)

    def _made(self, tone: str, place: str) -> Style:
        palette = self.palette
        if palette.mono:
            return Style(
                bold=tone in BOLD or tone in ("busy", "warn", "throttled", "offline") or None,
                dim=tone in ("dim", "rule", "revoked") or None,
                reverse=place == "cursor" or None,
                underline=place == "marked" or None,
            )
        colour = palette.tones.get(tone, palette.tones["text"])
        return Style(color=colour, bgcolor=palette.places[place], bold=tone in BOLD or None)


def rule(title: str, right: str, width: int, paint: Paint, place: str = "base") -> Strip:
    """`title ──────── right`: a thin line that begins with a word."""
    head: Line = ((f"{title} ", "head"),)
    tail: Line = ((f" {right}", "dim"),) if right else ()
    room = max(0, width - length((*head, *tail)))
    return paint.strip((*head, (paint.glyphs.line * room, "rule"), *tail), width, place)
