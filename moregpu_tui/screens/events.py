"""Events: everything that happens, merged, as it happens."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from moregpu_tui.screens.base import PoolScreen, bindings_for
from moregpu_tui.state.model import LogEntry, PoolState
from moregpu_tui.state.reduce import MAX_LOG, Changed
from moregpu_tui.state.selectors import LEVELS, log_lines, log_matches
from moregpu_tui.widgets.bare import Down
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.log_view import LogView

SOURCES = ("", "worker", "job", "task", "invite", "log", "console")


class Events(PoolScreen):
    """The log."""

    here: ClassVar[str] = "events"
    footer: ClassVar[tuple[str, ...]] = ("log.follow", "list.filter", "log.level", "log.source", "log.wrap", "app.help")
    BINDINGS = bindings_for("events")

    def __init__(self) -> None:
        super().__init__()
        self._least = "info"
        self._source = ""
        self._seen = 0  # lines that were there when the log was last looked at
        self._last: LogEntry | None = None

    def body(self) -> ComposeResult:
        """Lines under a title that says which."""
        with Down(id="main"):
            yield Title("events", id="title")
            yield LogView(id="log")

    def on_mount(self) -> None:
        """Keys into the log."""
        super().on_mount()
        self.query_one("#log").focus()

    def home(self) -> None:
        """The log."""
        self.query_one("#log").focus()

    def show(self, state: PoolState, changed: Changed) -> None:
        """New lines."""
        if not (changed.everything or changed.log):
            return
        view = self.query_one("#log", LogView)
        sources = frozenset({self._source}) if self._source else frozenset[str]()
        log, fresh = state.log, state.log_total - self._seen
        if not changed.everything and 0 <= fresh < len(log) and log[-1 - fresh] is self._last:
            view.add_entries(log_lines(log[len(log) - fresh :], self.filter_text, self._least, sources), MAX_LOG)
        else:  # other lines are wanted, or some came between those that were there
            view.put_entries(log_lines(log, self.filter_text, self._least, sources))
        self._seen, self._last = state.log_total, log[-1] if log else None
        which = [self._least if self._least != "info" else "", self._source, self.filter_text]
        said = ", ".join(part for part in which if part)
        follow = "following" if view.follow else "stopped: f follows"
        self.query_one("#title", Title).put(f"{view.count:,} lines · {follow}", f"events: {said}" if said else "events")

    def do_log_follow(self, _argument: str) -> None:
        """Follow, or stop."""
        view = self.query_one("#log", LogView)
        view.set_follow(not view.follow)
        self.filtered()

    def do_log_level(self, _argument: str) -> None:
        """The next level."""
        self._least = LEVELS[(LEVELS.index(self._least) + 1) % len(LEVELS)]
        self.filtered()

    def do_log_source(self, _argument: str) -> None:
        """The next source."""
        self._source = SOURCES[(SOURCES.index(self._source) + 1) % len(SOURCES)]
        self.filtered()

    def do_log_wrap(self, _argument: str) -> None:
        """Wrap, or cut."""
        view = self.query_one("#log", LogView)
        view.wrap = not view.wrap
        view.rebuild()

    def seek(self, by: int) -> bool:
        """Among the lines."""
        return self.query_one("#log", LogView).seek(lambda entry: log_matches(entry, self.searched), by)

    def on_log_view_followed(self) -> None:
        """Say so in the title."""
        self.show(console_of(self).state, Changed(everything=True))

    def note(self) -> str:
        """The filter."""
        return f"filter: {self.filter_text}" if self.filter_text else ""
