"""Lines of pieces that can be scrolled: side panels, evidence, help."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.strip import Strip

from moregpu_tui.present.cells import Line, flowed
from moregpu_tui.widgets.drawn import Scrolled, paint_of, refresh_rows


class LinesView(Scrolled, can_focus=True):
    """Lines as they are given."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False, id="move.down"),
        Binding("k,up", "move(-1)", show=False, id="move.up"),
        Binding("g,home", "top", show=False, id="move.top"),
        Binding("G,end", "bottom", show=False, id="move.bottom"),
        Binding("ctrl+d,pagedown", "page(1)", show=False, id="move.page_down"),
        Binding("ctrl+u,pageup", "page(-1)", show=False, id="move.page_up"),
    ]

    def __init__(self, *, flow: bool = False, id: str | None = None) -> None:
        """`flow`: lines that are too long go on in the next one, and it is as high as they need; else they are cut."""
        super().__init__(id=id)
        self._given: list[Line] = []
        self._lines: list[Line] = []
        self._flow = flow
        self.faded = False

    def put(self, lines: Sequence[Line]) -> None:
        """Show these."""
        self._given = list(lines)
        self._lay()

    def _lay(self) -> None:
        before, self._lines = self._lines, self._given
        if self._flow and self.room > 1:  # the first cell stays free
            self._lines = [part for line in self._given for part in flowed(line, self.room - 1)]
            self.styles.height = max(1, len(self._lines))
        if self._lines != before:
            self.measure(self._count)
            both = enumerate(zip_longest(before, self._lines), -self.scroll_offset.y)
            refresh_rows(self, [row for row, (old, new) in both if old != new])

    def fade(self, faded: bool) -> None:
        """Show everything dimmed: it is old."""
        if faded != self.faded:
            self.faded = faded
            self.refresh()

    def touch_all(self) -> None:
        """Draw again: another theme."""
        self.refresh()

    def action_move(self, by: int) -> None:
        """Scroll."""
        self.bring(self.scroll_y + by)

    def action_page(self, by: int) -> None:
        """Scroll by half a page."""
        self.bring(self.scroll_y + by * max(1, self.size.height // 2))

    def action_top(self) -> None:
        """To the first line."""
        self.bring(0)

    def action_bottom(self) -> None:
        """To the last line."""
        self.bring(self.max_scroll_y)

    def on_resize(self) -> None:
        """Another width."""
        self._lay()
        self.measure(self._count)
        self.refresh()

    @property
    def _count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        paint, width = paint_of(self), self.room
        place = y + self.scroll_offset.y
        line = ((" ", "text"), *self._lines[place]) if place < len(self._lines) else ()
        return paint.strip(line, width, self.ground, faded=self.faded)
