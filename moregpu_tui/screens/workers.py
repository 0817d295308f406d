"""Workers: the table, and everything about the one under the cursor."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from moregpu_tui.actions import Target
from moregpu_tui.present import workers as view
from moregpu_tui.present.cells import Column, Line
from moregpu_tui.present.units import plural
from moregpu_tui.screens.base import PoolScreen, bindings_for, loading, offered
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.state.selectors import STATIC_SORTS, WORKER_SORTS, holders, worker_matches, workers
from moregpu_tui.widgets.bare import Down, Side
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.line_table import LineTable
from moregpu_tui.widgets.lines_view import LinesView

RESORT_S = 1.0
"""A list that is ordered by what moves is ordered anew at most this often."""


class Workers(PoolScreen):
    """The fleet."""

    here: ClassVar[str] = "workers"
    footer: ClassVar[tuple[str, ...]] = (
        "worker.pause", "worker.drain", "worker.ceiling", "worker.revoke", "list.filter", "app.help",
    )  # fmt: skip
    BINDINGS = bindings_for("workers")

    def __init__(self) -> None:
        super().__init__()
        self.sort = "name"
        self.reverse = False
        self._sorted_at = 0.0
        self._matching: set[str] = set()

    def body(self) -> ComposeResult:
        """The table, the side panel."""
        with Side(id="main"):
            with Down(id="list"):
                yield LineTable(self._columns(), self._cell, id="table", empty=self._none, moved=self._moved)
            with Down(id="side"):
                yield Title("worker", id="side-title")
                yield LinesView(id="panel")

    def on_mount(self) -> None:
        """Keys into the table."""
        super().on_mount()
        table = self.query_one("#table", LineTable)
        table.sorted_by = self.sort
        table.focus()

    def home(self) -> None:
        """The table."""
        self.query_one("#table").focus()

    def show(self, state: PoolState, changed: Changed) -> None:
        """Only what changed."""
        table = self.query_one("#table", LineTable)
        now = console_of(self).now()
        moved = bool(changed.workers) and (self.sort not in STATIC_SORTS or bool(self.filter_text))
        if changed.everything or changed.members or (moved and now - self._sorted_at > RESORT_S):
            self._order(state, now)
        if changed.everything:
            table.touch_all()
        else:
            table.touch(changed.workers)
        current = table.current
        if current and (changed.everything or current in changed.workers):
            self._show_panel(state)

    def tick(self, state: PoolState) -> None:
        """The order, and the curves."""
        now = console_of(self).now()
        if now - self._sorted_at > RESORT_S and (self.sort not in STATIC_SORTS or self.filter_text):
            self._order(state, now)
        self._show_panel(state)

    def targets(self, kind: Target) -> list[str]:
        """Marked workers, or the one under the cursor."""
        return self.query_one("#table", LineTable).targets() if kind == "worker" else []

    def go_to(self, worker: str) -> None:
        """Put the cursor on a worker; a filter that hides it goes."""
        table = self.query_one("#table", LineTable)
        if not table.go_to(worker) and self.filter_text:
            self.close_filter(clear=True)
            table.go_to(worker)
        self._show_panel(console_of(self).state)

    def do_list_sort(self, argument: str) -> None:
        """By the next column, or the one that is named."""
        shown = [column.key for column in self._columns() if column.key in WORKER_SORTS]
        if argument in WORKER_SORTS:
            self.sort = argument
        else:
            self.sort = shown[(shown.index(self.sort) + 1) % len(shown)] if self.sort in shown else shown[0]
        self._resort()

    def do_list_reverse(self, _argument: str) -> None:
        """The other way round."""
        self.reverse = not self.reverse
        self._resort()

    def seek(self, by: int) -> bool:
        """Among the rows."""
        workers = console_of(self).state.workers
        table = self.query_one("#table", LineTable)
        return table.seek(lambda row: row in workers and worker_matches(workers[row], self.searched), by)

    def do_view_zoom(self, _argument: str) -> None:
        """The table or the panel alone."""
        self.toggle_class("zoomed")

    def _moved(self) -> None:
        """Another worker in the panel."""
        self._show_panel(console_of(self).state)
        self.bars()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        """Enter: the panel, alone where there is no room beside the table."""
        if not self.has_class("wide"):
            self.add_class("detail")
        self.query_one("#panel").focus()

    def leave_detail(self) -> bool:
        """Back from the panel; whether it was open."""
        if self.has_class("detail") or self.query_one("#panel").has_focus:
            self.remove_class("detail")
            self.home()
            return True
        return False

    def note(self) -> str:
        """How many, how many marked, the filter."""
        table = self.query_one("#table", LineTable)
        parts = [f"{len(table.marked)} marked"] if table.marked else []
        if self.filter_text:
            parts.append(f"filter: {self.filter_text}")
        total = len(console_of(self).state.workers)
        parts.append(
            plural(len(table.rows), "worker") if len(table.rows) == total else f"{len(table.rows):,} of {total:,}"
        )
        return " · ".join(parts)

    def _order(self, state: PoolState, now: float) -> None:
        self._sorted_at = now
        found = workers(state, self.filter_text, self.sort, self.reverse)
        self.query_one("#table", LineTable).show([worker.id for worker in found])

    def _resort(self) -> None:
        app = console_of(self)
        table = self.query_one("#table", LineTable)
        table.sorted_by, table.reverse = self.sort, self.reverse
        self._order(app.state, app.now())
        table.touch_all()

    def _show_panel(self, state: PoolState) -> None:
        id = self.query_one("#table", LineTable).current
        worker = state.workers.get(id or "")
        panel = self.query_one("#panel", LinesView)
        title = self.query_one("#side-title", Title)
        if worker is None:
            panel.put([])
            title.put("")
            return
        app = console_of(self)
        curve = [*app.store.curve(worker.id)] or [(worker.duty, worker.user_load)]
        width = panel.size.width or 44
        panel.put(view.panel(worker, holders(state, worker.id), curve, app.manner, app.wall(), width))

    def _columns(self) -> tuple[Column, ...]:
        wanted = console_of(self).settings.worker_columns.split()
        chosen = [column for name in wanted for column in view.COLUMNS if column.key == name]
        return tuple(chosen) or view.COLUMNS

    def _cell(self, row: str, column: str) -> Line:
        app = console_of(self)
        return view.cell(app.state.workers[row], column, app.manner, app.wall())

    def _none(self) -> list[Line]:
        state = console_of(self).state
        if not state.loaded:
            return loading(state)
        if self.filter_text and any(worker_matches(worker, "") for worker in state.workers.values()):
            return [(), (("  nothing matches; ", "dim"), ("Esc", "key"), (" clears the filter", "dim"))]
        lines: list[Line] = [(), (("  No worker has joined this pool yet.", "strong"),)]
        invite = offered(self, "invite.new", " for an invite, then type ")
        if invite:
            lines.append((("  Press ", "text"), *invite, ("moregpu join", "strong"),
                          (" on the machine that is to join.", "text")))  # fmt: skip
        return lines
