"""The two bars that every screen has: where we are, above; what the keys do, below. And section titles."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.strip import Strip

from moregpu_tui.present.bar import bar
from moregpu_tui.present.cells import Line, width_of
from moregpu_tui.widgets.drawn import Drawn, console_of, paint_of
from moregpu_tui.widgets.paint import rule

TABS = ("overview", "workers", "jobs", "job", "submit", "events", "access", "settings")


class TopBar(Drawn):
    """Pool, connection and figures; and the screens with their number keys."""

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current
        self._drawn: tuple[Line, Line] | None = None

    def update_figures(self) -> None:
        """Draw again if what it says has changed."""
        if self._figures() != self._drawn:
            self.refresh()

    def touch_all(self) -> None:
        """Draw again: another theme."""
        self.refresh()

    def _figures(self) -> tuple[Line, Line]:
        app = console_of(self)
        narrow = self.size.width < 100
        return bar(app.state, app.manner, app.now(), readonly=app.options.readonly, kind=app.source_kind, narrow=narrow)

    def render_line(self, y: int) -> Strip:
        """One of two lines."""
        app = console_of(self)
        width = self.size.width
        if y == 0:
            left, right = self._drawn = self._figures()
            return app.paint.both_ends(left, right, width, "surface")
        pieces: list[tuple[str, str]] = [(" ", "dim")]
        for number, name in enumerate(TABS, 1):
            here = name == self._current
            pieces.append((f"{number} ", "accent" if here else "dim"))
            pieces.append((name.capitalize(), "strong" if here else "dim"))
            pieces.append(("  " if width >= 90 else " ", "dim"))
        return app.paint.strip(pieces, width, "raised")

    def on_click(self, event: events.Click) -> None:
        """A click on a tab goes there."""
        if event.y != 1:
            return
        at = 1
        gap = 2 if self.size.width >= 90 else 1
        for name in TABS:
            size = 2 + len(name) + gap
            if at <= event.x < at + size:
                console_of(self).act(f"screen.{name}")
                return
            at += size


class KeyBar(Drawn):
    """The keys that matter here."""

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = tuple(keys)
        self._note = ""

    def put(self, keys: Sequence[tuple[str, str]]) -> None:
        """Show these: (key, what it does)."""
        if tuple(keys) != self._keys:
            self._keys = tuple(keys)
            self.refresh()

    def note(self, text: str) -> None:
        """A word at the right end: filter, marks, how many rows."""
        if text != self._note:
            self._note = text
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        width = self.size.width
        note = self._note[: width // 2]
        sizes = [width_of(key) + 1 + width_of(what) + 3 for key, what in self._keys]
        room = width - 1 - (width_of(note) + 2 if note else 0) + 3
        shown = list(range(len(sizes)))
        while shown and sum(sizes[place] for place in shown) > room:
            # The last but one goes first: the last is help, or the way out.
            shown.pop(-2 if len(shown) > 1 else -1)
        pieces: list[tuple[str, str]] = [(" ", "dim")]
        for place in shown:
            key, what = self._keys[place]
            pieces += ((key, "key"), (f" {what}" + ("   " if place != shown[-1] else ""), "dim"))
        return paint_of(self).both_ends(pieces, ((f"{note} ", "dim"),) if note else (), width, "surface")


class Title(Drawn):
    """`busiest jobs ───────── 12`."""

    def __init__(self, text: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = text
        self._right = ""

    def put(self, right: str, text: str | None = None) -> None:
        """What stands at the right end; perhaps another title."""
        text = self._text if text is None else text
        if (right, text) != (self._right, self._text):
            self._right, self._text = right, text
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        return rule(self._text, self._right, self.size.width, paint_of(self), self.ground)
