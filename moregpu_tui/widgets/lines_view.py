"""Lines of pieces that can be scrolled: side panels, evidence, help; and the log, which follows its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from moregpu_tui.present.cells import Line, wrapped
from moregpu_tui.present.log import PREFIX, log_line
from moregpu_tui.state.model import LogEntry
from moregpu_tui.widgets.drawn import manner_of, paint_of


class LinesView(ScrollView, can_focus=True):
    """Lines as they are given."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False, id="move.down"),
        Binding("k,up", "move(-1)", show=False, id="move.up"),
        Binding("g,home", "top", show=False, id="move.top"),
        Binding("G,end", "bottom", show=False, id="move.bottom"),
        Binding("ctrl+d,pagedown", "page(1)", show=False, id="move.page_down"),
        Binding("ctrl+u,pageup", "page(-1)", show=False, id="move.page_up"),
    ]

    def __init__(self, *, id: str | None = None, place: str = "base") -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._ground = place
        self.faded = False

    def put(self, lines: Sequence[Line]) -> None:
        """Show these."""
        fresh = list(lines)
        if fresh != self._lines:
            self._lines = fresh
            self.virtual_size = Size(self.size.width, len(fresh))
            self.refresh()

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
        self.scroll_relative(y=by, animate=False, immediate=True)

    def action_page(self, by: int) -> None:
        """Scroll by half a page."""
        self.scroll_relative(y=by * max(1, self.size.height // 2), animate=False, immediate=True)

    def action_top(self) -> None:
        """To the first line."""
        self.scroll_to(y=0, animate=False, immediate=True)

    def action_bottom(self) -> None:
        """To the last line."""
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)

    def on_resize(self) -> None:
        """Another width."""
        self.virtual_size = Size(self.size.width, len(self._lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        paint, width = paint_of(self), self.size.width
        place = y + self.scroll_offset.y
        if place >= len(self._lines):
            return paint.blank(width, self._ground)
        return paint.strip(((" ", "text"), *self._lines[place]), width, self._ground, faded=self.faded)


class LogView(LinesView):
    """Log lines. It follows the end until somebody scrolls up, and again when they come back down."""

    class Followed(Message):
        """It follows now, or does so no more."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: list[LogEntry] = []
        self.follow = True
        self.wrap = False

    def put_entries(self, entries: Sequence[LogEntry]) -> None:
        """Show these lines; when they go on from the ones that are shown, only the new ones are built."""
        before = self._entries
        self._entries = list(entries)
        if self._entries == before:
            return
        known = len(before)
        goes_on = 0 < known <= len(entries) and self._entries[known - 1] is before[-1] and self._entries[0] is before[0]
        fresh = self._entries[known:] if goes_on else self._entries
        self._lines = [*(self._lines if goes_on else ()), *self._built(fresh)]
        self.virtual_size = Size(self.size.width, len(self._lines))
        if self.follow:
            self.scroll_to(y=len(self._lines), animate=False, immediate=True)
        self.refresh()

    def rebuild(self) -> None:
        """Another width, zone or way of wrapping."""
        self._lines = self._built(self._entries)
        self.virtual_size = Size(self.size.width, len(self._lines))
        if self.follow:
            self.scroll_to(y=len(self._lines), animate=False, immediate=True)
        self.refresh()

    def set_follow(self, follow: bool) -> None:
        """Follow the end, or stay."""
        if follow:
            self.action_bottom()
        if follow != self.follow:
            self.follow = follow
            self.post_message(self.Followed())

    def action_move(self, by: int) -> None:
        """Scroll; up means: stay here."""
        super().action_move(by)
        self._scrolled(by)

    def action_page(self, by: int) -> None:
        """Scroll by half a page."""
        super().action_page(by)
        self._scrolled(by)

    def action_top(self) -> None:
        """To the first line, and stay."""
        super().action_top()
        self.set_follow(False)

    def action_bottom(self) -> None:
        """To the end, and follow."""
        super().action_bottom()
        if not self.follow:
            self.follow = True
            self.post_message(self.Followed())

    def on_mouse_scroll_up(self) -> None:
        """The wheel: stay here."""
        self.set_follow(False)

    def on_mouse_scroll_down(self) -> None:
        """The wheel: perhaps at the end again."""
        self._scrolled(1)

    def on_resize(self) -> None:
        """Another width."""
        self.rebuild()

    def _scrolled(self, by: int) -> None:
        self.set_follow(by > 0 and self.scroll_offset.y >= self.max_scroll_y)

    def _built(self, entries: Sequence[LogEntry]) -> list[Line]:
        manner = manner_of(self)
        lines: list[Line] = []
        room = self.size.width - PREFIX - 2
        for entry in entries:
            line = log_line(entry, manner)
            text, tone = line[-1]
            if not self.wrap or len(text) <= room or room < 10:
                lines.append(line)
                continue
            first, *rest = wrapped(text, room)
            lines.append((*line[:-1], (first, tone)))
            lines += [((" " * (PREFIX - 1), "text"), (more, tone)) for more in rest]
        return lines
