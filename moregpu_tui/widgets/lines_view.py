"""Lines of pieces that can be scrolled: side panels, evidence, help; and the log, which follows its end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from moregpu_tui.present.cells import Line, wrapped
from moregpu_tui.present.log import PREFIX, log_line
from moregpu_tui.state.model import LogEntry
from moregpu_tui.widgets.drawn import ground_of, manner_of, paint_of


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

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
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
        line = ((" ", "text"), *self._lines[place]) if place < len(self._lines) else ()
        return paint.strip(line, width, ground_of(self), faded=self.faded)


class LogView(LinesView):
    """Log lines. It follows the end until somebody scrolls up, and again when they come back down."""

    class Followed(Message):
        """It follows now, or does so no more."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: list[LogEntry] = []
        self._firsts: list[int] = []  # where each entry's lines begin
        self._found = -1  # the entry that was sought
        self.follow = True
        self.wrap = False

    def put_entries(self, entries: Sequence[LogEntry]) -> None:
        """Show these lines; when they go on from the ones that are shown, only the new ones are built."""
        before = self._entries
        self._entries = list(entries)
        if self._entries == before:
            return
        gone = next((place for place, entry in enumerate(before) if entries and entry is entries[0]), len(before))
        known = len(before) - gone
        goes_on = 0 < known <= len(entries) and self._entries[known - 1] is before[-1]
        if goes_on:
            self._forget(gone)
        else:
            sought = before[self._found] if 0 <= self._found < len(before) else None
            self._found = next((place for place, entry in enumerate(entries) if entry is sought), -1)
            self._lines, self._firsts = [], []
        self._build(self._entries[known:] if goes_on else self._entries)
        self.virtual_size = Size(self.size.width, len(self._lines))
        if self.follow:
            self.scroll_to(y=len(self._lines), animate=False, immediate=True)
        self.refresh()

    def rebuild(self) -> None:
        """Another width, zone or way of wrapping."""
        self._lines, self._firsts = [], []
        self._build(self._entries)
        self.virtual_size = Size(self.size.width, len(self._lines))
        if self.follow:
            self.scroll_to(y=len(self._lines), animate=False, immediate=True)
        self.refresh()

    @property
    def sought(self) -> str | None:
        """The text of the entry that was sought last."""
        return self._entries[self._found].text if 0 <= self._found < len(self._entries) else None

    def seek(self, matches: Callable[[LogEntry], bool], by: int) -> bool:
        """Mark the next entry (`by` 1) or the one before (-1) that matches, round the end; whether one does."""
        count = len(self._entries)
        start = self._found
        if start < 0:  # from what is in view
            start = bisect_left(self._firsts, self.scroll_offset.y + (self.size.height if by < 0 else 0)) - (by > 0)
        for step in range(1, count + 1):
            place = (start + by * step) % count
            if matches(self._entries[place]):
                self._found = place
                self.set_follow(False)
                self.scroll_to(y=max(0, self._firsts[place] - self.size.height // 2), animate=False, immediate=True)
                self.refresh()
                return True
        return False

    def render_line(self, y: int) -> Strip:
        """One line of the screen; what was sought stands out."""
        place = y + self.scroll_offset.y
        if 0 <= self._found < len(self._firsts) and self._firsts[self._found] == place and place < len(self._lines):
            return paint_of(self).strip(((" ", "text"), *self._lines[place]), self.size.width, "cursor")
        return super().render_line(y)

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

    def _forget(self, gone: int) -> None:
        """The oldest entries went, as the log is bounded: what is in view stays where it is."""
        if not gone:
            return
        lines = self._firsts[gone]
        self._lines = self._lines[lines:]
        self._firsts = [first - lines for first in self._firsts[gone:]]
        self._found = max(-1, self._found - gone)
        if not self.follow:
            self.scroll_to(y=max(0, self.scroll_offset.y - lines), animate=False, immediate=True)

    def _build(self, entries: Sequence[LogEntry]) -> None:
        manner = manner_of(self)
        lines = self._lines = [*self._lines]
        room = self.size.width - PREFIX - 2
        for entry in entries:
            self._firsts.append(len(lines))
            line = log_line(entry, manner)
            text, tone = line[-1]
            if not self.wrap or len(text) <= room or room < 10:
                lines.append(line)
                continue
            first, *rest = wrapped(text, room)
            lines.append((*line[:-1], (first, tone)))
            lines += [((" " * (PREFIX - 1), "text"), (more, tone)) for more in rest]
