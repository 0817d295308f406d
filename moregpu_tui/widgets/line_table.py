"""A table for live data: draws by lines, caches strips, refreshes only the rows that changed and are in view.

Textual's DataTable drops all its caches with every cell (34–62 % of a core at 1,000 workers and 5 Hz; this: 3 %).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from moregpu_tui.present.cells import Column, Line, fill, widths
from moregpu_tui.widgets.drawn import Scrolled, paint_of, refresh_rows

GAP = 2
MAX_CACHED = 4_000

Build = Callable[[str, str], Line]
"""(id of a row, key of a column) → what stands there."""


class LineTable(Scrolled, can_focus=True):
    """Rows by id. `show` gives their order, `touch` says which changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False, id="move.down"),
        Binding("k,up", "move(-1)", show=False, id="move.up"),
        Binding("g,home", "move_to(0)", show=False, id="move.top"),
        Binding("G,end", "move_to(-1)", show=False, id="move.bottom"),
        Binding("ctrl+d,pagedown", "page(1)", show=False, id="move.page_down"),
        Binding("ctrl+u,pageup", "page(-1)", show=False, id="move.page_up"),
        Binding("space", "mark", show=False, id="mark.one"),
        Binding("asterisk", "mark_all", show=False, id="mark.all"),
        Binding("enter", "choose", show=False, id="open"),
    ]

    class Chosen(Message):
        """Enter, or a second click on the same row."""

        def __init__(self, table: LineTable, row: str) -> None:
            super().__init__()
            self.table = table
            self.row = row

        @property
        def control(self) -> LineTable:
            """The table."""
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        build: Build,
        *,
        id: str | None = None,
        empty: Callable[[], Sequence[Line]] = tuple,
        head: bool = True,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`empty`: lines to show when there are no rows. `head`: whether there is a line of titles.

        `moved`: the cursor stands on another row, or marks are others. Called at once, so that what depends on it is
        drawn in the same frame.
        """
        super().__init__(id=id)
        self.columns = tuple(columns)
        self._build = build
        self._empty = empty
        self._said: Sequence[Line] = ()
        """The lines that were drawn last because there are no rows."""
        self._moved = moved
        self._head = 1 if head else 0
        self.rows: list[str] = []
        self._place: dict[str, int] = {}
        self.cursor = 0
        self.marked: set[str] = set()
        self.sorted_by = ""
        self.reverse = False
        self.faded = False
        self._cache: dict[str, tuple[tuple[object, ...], Strip]] = {}
        self._widths: dict[str, int] = {}

    # ---- content

    def show(self, rows: list[str]) -> None:
        """Show these rows in this order; cursor and marks stay with what they were on."""
        if rows == self.rows:
            return
        before = self.current
        self.rows = rows
        self._place = {row: place for place, row in enumerate(rows)}
        self.marked &= self._place.keys()
        if before is not None and before in self._place:
            self.cursor = self._place[before]
        self.cursor = max(0, min(self.cursor, len(rows) - 1))
        self.measure(len(rows) + self._head)
        self._keep_in_view()
        self.refresh()
        if self.current != before:
            self._moved()

    def touch(self, ids: Iterable[str]) -> None:
        """These rows changed: forget their strips, draw those in view. No rows: draw what is said instead, if new."""
        touched = ids if isinstance(ids, set) else {*ids}
        for id in self._cache.keys() & touched:
            del self._cache[id]
        top = self.scroll_offset.y
        seen = self.rows[top : top + self.size.height - self._head]
        rows = [place for place, id in enumerate(seen, self._head) if id in touched]
        if rows:
            refresh_rows(self, rows)
        elif not self.rows and self._empty() != self._said:
            self.refresh()

    def touch_all(self) -> None:
        """All changed: another theme, another width, a time that is shown as an age."""
        self._cache.clear()
        self.refresh()

    def fade(self, faded: bool) -> None:
        """Show everything dimmed: it is old."""
        if faded != self.faded:
            self.faded = faded
            self.touch_all()

    @property
    def current(self) -> str | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def targets(self) -> list[str]:
        """Marked rows in their order, else the one under the cursor."""
        if self.marked:
            return [row for row in self.rows if row in self.marked]
        current = self.current
        return [] if current is None else [current]

    def go_to(self, row: str) -> bool:
        """Put the cursor on a row; whether it is there."""
        place = self._place.get(row)
        if place is None:
            return False
        self.action_move_to(place)
        return True

    def seek(self, matches: Callable[[str], bool], by: int) -> bool:
        """Go to the next row (`by` 1) or the one before (-1) that matches, round the end; whether one does."""
        count = len(self.rows)
        for step in range(1, count + 1):
            place = (self.cursor + by * step) % count
            if matches(self.rows[place]):
                self.action_move_to(place)
                return True
        return False

    def clear_marks(self) -> bool:
        """Unmark all; whether any was."""
        had, self.marked = bool(self.marked), set()
        if had:
            self.touch_all()
        return had

    # ---- keys and mouse

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        self.action_move_to(max(0, self.cursor + by))

    def action_page(self, by: int) -> None:
        """Move by half a page."""
        self.action_move_to(max(0, self.cursor + by * max(1, (self.size.height - self._head) // 2)))

    def action_move_to(self, place: int) -> None:
        """Move to a place; -1 is the last."""
        last = len(self.rows) - 1
        place = last if place < 0 else min(place, last)
        if place == self.cursor or last < 0:
            return
        old, self.cursor = self.cursor, place
        scrolled = self._keep_in_view()
        if not scrolled:
            top = self.scroll_offset.y - self._head
            refresh_rows(self, [old - top, place - top])
        self._moved()

    def action_mark(self) -> None:
        """Mark or unmark the row, and go on."""
        row = self.current
        if row is None:
            return
        self.marked ^= {row}
        self.touch([row])
        self.action_move(1)
        self._moved()

    def action_mark_all(self) -> None:
        """Mark all rows that are shown, or none."""
        self.marked = set() if self.marked else set(self.rows)
        self.touch_all()
        self._moved()

    def action_choose(self) -> None:
        """Open the row."""
        if self.current is not None:
            self.post_message(self.Chosen(self, self.current))

    def on_click(self, event: events.Click) -> None:
        """A click selects, a second one opens."""
        place = event.y - self._head + self.scroll_offset.y
        if event.y < self._head or not 0 <= place < len(self.rows):
            return
        if place == self.cursor and event.chain > 1:
            self.action_choose()
        else:
            self.action_move_to(place)

    # ---- drawing

    def on_resize(self) -> None:
        """Lay out anew, and say so: without a refresh the widget would freeze."""
        self._layout()
        self._keep_in_view()

    def on_focus(self) -> None:
        """The cursor is bright only here."""
        self.refresh()

    def on_blur(self) -> None:
        """The cursor is bright only where the keys go."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        paint = paint_of(self)
        width = self.room
        if not self._widths:
            self._layout()
        if not self.rows:
            lines = self._said = self._empty()
            return paint.strip(lines[y] if y < len(lines) else (), width, self.ground)
        if y < self._head:
            return self._titles(width)
        place = y - self._head + self.scroll_offset.y
        ground = self.ground
        if place >= len(self.rows):
            return paint.blank(width, ground)
        row = self.rows[place]
        if row in self.marked:
            ground = "marked"
        if place == self.cursor:
            ground = "cursor" if self.has_focus else "raised"
        key = (ground, width, self.faded, row in self.marked)
        hit = self._cache.get(row)
        if hit is not None and hit[0] == key:
            return hit[1]
        strip = self._row(row, width, ground)
        if len(self._cache) > MAX_CACHED:
            self._cache.clear()
        self._cache[row] = (key, strip)
        return strip

    def _row(self, row: str, width: int, ground: str) -> Strip:
        paint = paint_of(self)
        glyphs = paint.glyphs
        sign = glyphs.mark if row in self.marked else glyphs.cursor if ground == "cursor" else " "
        pieces: list[tuple[str, str]] = [(sign, "accent")]
        for column in self.columns:
            size = self._widths.get(column.key)
            if size is not None:
                if len(pieces) > 1:
                    pieces.append((" " * GAP, "text"))
                pieces += fill(self._build(row, column.key), size, column.right, glyphs.dots)
        return paint.strip(pieces, width, ground, faded=self.faded)

    def _titles(self, width: int) -> Strip:
        paint = paint_of(self)
        arrow = paint.glyphs.up if self.reverse else paint.glyphs.down
        pieces: list[tuple[str, str]] = [(" ", "head")]
        for column in self.columns:
            size = self._widths.get(column.key)
            if size is not None:
                if len(pieces) > 1:
                    pieces.append((" " * GAP, "text"))
                mine = column.key == self.sorted_by
                title = f"{column.title}{arrow}" if mine else column.title
                pieces += fill(((title, "accent" if mine else "dim"),), size, column.right, paint.glyphs.dots)
        return paint.strip(pieces, width, self.ground)

    def _layout(self) -> None:
        self._widths = widths(self.columns, max(8, self.size.width - 2), GAP)
        self.measure(len(self.rows) + self._head)
        self.touch_all()

    def _keep_in_view(self) -> bool:
        """Scroll so that the cursor is in view; whether that was needed."""
        height = max(1, self.size.height - self._head)
        top = self.scroll_offset.y
        if self.cursor < top:
            self.bring(self.cursor)
        elif self.cursor >= top + height:
            self.bring(self.cursor - height + 1)
        else:
            return False
        return True
