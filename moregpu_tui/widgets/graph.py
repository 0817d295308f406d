"""A graph of one figure: braille, 2 × 4 dots a cell; columns of eighths or ASCII where there is no braille."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.strip import Strip

from moregpu_tui.present.cells import sparkline
from moregpu_tui.widgets.drawn import Drawn, paint_of

_LEFT = (0, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0, 0x80, 0xA0, 0xB0, 0xB8)
_CELLS = [[chr(0x2800 | _LEFT[left] | _RIGHT[right]) for right in range(5)] for left in range(5)]
"""Braille cells by the height of their two columns, 0–4 dots."""

GAP = 2
"""Cells to the neighbour."""


class Graph(Drawn):
    """Title, present value and scale in one line, the curve below. One line high: a sparkline."""

    def __init__(
        self, title: str, tone: str, shown: Callable[[float], str], *, top: float = 0.0, id: str | None = None
    ) -> None:
        """`shown`: a value with its unit. `top`: the least height of the scale."""
        super().__init__(id=id)
        self._title = title
        self._tone = tone
        self._shown = shown
        self._top = top
        self._values: Sequence[float] = ()
        self._rows: list[str] = []
        self._ceiling = 0.0
        self.faded = False

    def put(self, values: Sequence[float]) -> None:
        """Show these; the last is now."""
        if values is self._values:
            return
        before = (self._rows, self._ceiling, self._shown(self._values[-1]) if self._values else "")
        self._values = values
        width, height = self.size
        if height > 1 and width > 1:
            self._rebuild(width, height - 1)
            if before == (self._rows, self._ceiling, self._shown(values[-1]) if values else ""):
                return  # a flat curve looks the same a second later
        self.refresh()

    def fade(self, faded: bool) -> None:
        """Show it dimmed: it is old."""
        if faded != self.faded:
            self.faded = faded
            self.refresh()

    def touch_all(self) -> None:
        """Draw again: another theme."""
        self._rows = []
        self.refresh()

    def on_resize(self) -> None:
        """Another size: build anew, and say so."""
        self._rows = []
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        paint = paint_of(self)
        width, height = self.size
        tone = "dim" if self.faded else self._tone
        now = self._shown(self._values[-1]) if self._values else "–"
        if height == 1:
            label = f"{self._title:<11}{now:>13}  "
            line = sparkline(self._values, max(0, width - len(label)), paint.glyphs.rise, self._top)
            return paint.strip(((f"{self._title:<11}", "dim"), (f"{now:>13}  ", "text"), (line, tone)), width)
        if not self._rows:
            self._rebuild(width, height - 1)
        if y == 0:
            top = self._shown(self._ceiling) if self._ceiling else ""
            room = width - GAP - len(self._title) - len(now) - 4
            scale = next((each for each in (f"max {top}", top, "") if len(each) <= room), "")
            left = ((f"{self._title} ", "head"), (f" {now}", "strong"))
            return paint.both_ends(left, ((scale + " " * GAP, "dim"),), width)
        return paint.strip(((self._rows[y - 1], tone),), width) if y - 1 < len(self._rows) else paint.blank(width)

    def _rebuild(self, width: int, height: int) -> None:
        paint = paint_of(self)
        width = max(1, width - GAP)
        per_cell = 1 if paint.glyphs.ascii else 2
        values = list(self._values[-width * per_cell :])
        values = [0.0] * (width * per_cell - len(values)) + values
        self._ceiling = _round_up(max([self._top, *values]))
        dots = 8 if paint.glyphs.ascii else 4
        unit = height * dots / self._ceiling if self._ceiling > 0 else 0.0
        heights = [min(height * dots, max(1 if value > 0 else 0, round(value * unit))) for value in values]
        self._rows = []
        for row in range(height):
            base = (height - 1 - row) * dots
            levels = [min(dots, max(0, reached - base)) for reached in heights]
            if paint.glyphs.ascii:
                self._rows.append("".join(paint.glyphs.rise[level] for level in levels))
            else:
                self._rows.append("".join(_CELLS[levels[at]][levels[at + 1]] for at in range(0, len(levels), 2)))


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 × 10ⁿ, so that a scale does not move with every sample."""
    if value <= 0:
        return 0.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 <= value:
        power *= 10
    return next(power * step for step in (1, 1.5, 2, 3, 5, 7.5, 10) if power * step >= value)
