"""The log: it follows its end, and builds only the lines that are in view."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from textual.message import Message
from textual.strip import Strip

from moregpu_tui.present.cells import Line, wrapped
from moregpu_tui.present.log import PREFIX, log_line
from moregpu_tui.state.model import LogEntry
from moregpu_tui.widgets.drawn import manner_of, paint_of, refresh_rows
from moregpu_tui.widgets.lines_view import LinesView


class LogView(LinesView):
    """Log lines. It follows the end until somebody scrolls up, and again when they come back down."""

    class Followed(Message):
        """It follows now, or does so no more."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._entries: list[LogEntry] = []
        self._starts: list[int] = []  # the line at which each entry begins, where long ones are broken
        self._found = -1  # the entry that was sought
        self.follow = True
        self.wrap = False

    def put_entries(self, entries: Sequence[LogEntry]) -> None:
        """Show these. Those that go on from the ones that are shown are added to them."""
        before = self._entries
        gone = next((place for place, entry in enumerate(before) if entries and entry is entries[0]), len(before))
        known = len(before) - gone
        if 0 < known <= len(entries) and entries[known - 1] is before[-1]:
            if gone or known < len(entries):
                self.add_entries(entries[known:], len(entries))
            return
        sought = before[self._found] if 0 <= self._found < len(before) else None
        self._found = next((place for place, entry in enumerate(entries) if entry is sought), -1)
        self._entries = [*entries]
        self.rebuild()

    def add_entries(self, fresh: Sequence[LogEntry], most: int) -> None:
        """Go on with these. Beyond `most` the oldest go; what somebody reads stays where it is."""
        if not fresh and len(self._entries) <= most:
            return
        lines, top = self._count, self.scroll_offset.y
        self._entries += fresh
        if self.wrap:
            self._break(fresh)
        gone = self._forget(len(self._entries) - most)
        self.measure(self._count)
        if self.follow:
            self.bring(self._count)
        elif gone:
            self.bring(max(0, top - gone))
        now = self.scroll_offset.y
        if now != top - gone:
            self.refresh(self.size.region)
        else:
            refresh_rows(self, [*range(max(0, lines - gone - now), self.size.height)])

    def rebuild(self) -> None:
        """Another width, zone or way of wrapping."""
        self._lines, self._starts = [], []
        if self.wrap:
            self._break(self._entries)
        self.measure(self._count)
        if self.follow:
            self.bring(self._count)
        self.refresh()

    @property
    def count(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    @property
    def sought(self) -> str | None:
        """The text of the entry that was sought last."""
        return self._entries[self._found].text if 0 <= self._found < len(self._entries) else None

    def seek(self, matches: Callable[[LogEntry], bool], by: int) -> bool:
        """Mark the next entry (`by` 1) or the one before (-1) that matches, round the end; whether one does."""
        count, firsts = len(self._entries), self._firsts
        start = self._found
        if start < 0:  # from what is in view
            start = bisect_left(firsts, self.scroll_offset.y + (self.size.height if by < 0 else 0)) - (by > 0)
        for step in range(1, count + 1):
            place = (start + by * step) % count
            if matches(self._entries[place]):
                self._found = place
                self.set_follow(False)
                self.bring(max(0, firsts[place] - self.size.height // 2))
                self.refresh()
                return True
        return False

    def render_line(self, y: int) -> Strip:
        """One line of the screen; what was sought stands out."""
        place = y + self.scroll_offset.y
        line: Line = ()
        if place < self._count:
            line = self._lines[place] if self.wrap else log_line(self._entries[place], manner_of(self))
        found = 0 <= self._found < len(self._entries) and self._firsts[self._found] == place
        return paint_of(self).strip(
            ((" ", "text"), *line), self.room, "cursor" if found else self.ground, faded=self.faded and not found
        )

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

    @property
    def _count(self) -> int:
        return len(self._lines) if self.wrap else len(self._entries)

    @property
    def _firsts(self) -> Sequence[int]:
        return self._starts if self.wrap else range(len(self._entries))

    def _scrolled(self, by: int) -> None:
        self.set_follow(by > 0 and self.scroll_offset.y >= self.max_scroll_y)

    def _forget(self, entries: int) -> int:
        """The oldest entries go; the lines that were theirs."""
        if entries <= 0:
            return 0
        lines = self._firsts[entries] if entries < len(self._entries) else self._count
        del self._entries[:entries]
        if self.wrap:
            del self._lines[:lines]
            self._starts = [start - lines for start in self._starts[entries:]]
        self._found = max(-1, self._found - entries)
        return lines

    def _break(self, entries: Sequence[LogEntry]) -> None:
        manner = manner_of(self)
        room = self.size.width - PREFIX - 2
        for entry in entries:
            self._starts.append(len(self._lines))
            line = log_line(entry, manner)
            text, tone = line[-1]
            if len(text) <= room or room < 10:
                self._lines.append(line)
                continue
            first, *rest = wrapped(text, room)
            self._lines.append((*line[:-1], (first, tone)))
            self._lines += [((" " * (PREFIX - 1), "text"), (more, tone)) for more in rest]
