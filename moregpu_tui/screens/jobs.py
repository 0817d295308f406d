"""Jobs: the queue, and the task map of the one under the cursor."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from moregpu_tui.actions import Target
from moregpu_tui.present import jobs as view
from moregpu_tui.present.cells import Line
from moregpu_tui.present.units import plural
from moregpu_tui.screens.base import PoolScreen, bindings_for, loading, offered
from moregpu_tui.state.model import Detail, PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.state.selectors import JOB_SORTS, job_matches, jobs
from moregpu_tui.widgets.bare import Down
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.line_table import LineTable
from moregpu_tui.widgets.task_map import TaskMap


class Jobs(PoolScreen):
    """The queue."""

    here: ClassVar[str] = "jobs"
    footer: ClassVar[tuple[str, ...]] = ("job.new", "job.cancel", "job.retry", "list.filter", "list.sort", "app.help")
    BINDINGS = bindings_for("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.sort = "queue"
        self.reverse = False

    def body(self) -> ComposeResult:
        """Table above, map below."""
        with Down(id="main"):
            yield LineTable(view.COLUMNS, self._cell, id="table", empty=self._none, moved=self._moved)
            yield Title("tasks", id="map-title")
            yield TaskMap(id="map")

    def on_mount(self) -> None:
        """Keys into the table."""
        super().on_mount()
        self.query_one("#table").focus()

    def home(self) -> None:
        """The table."""
        self.query_one("#table").focus()

    def show(self, state: PoolState, changed: Changed) -> None:
        """Only what changed."""
        table = self.query_one("#table", LineTable)
        if changed.everything or changed.job_list or (changed.jobs and self.filter_text):
            table.show([job.id for job in jobs(state, self.filter_text, self.sort, self.reverse)])
        if changed.everything:
            table.touch_all()
        else:
            table.touch(changed.jobs)
        current = table.current
        if current and (changed.everything or current in changed.jobs or current in changed.details):
            self._show_map(state)

    def tick(self, state: PoolState) -> None:
        """Durations of running jobs."""
        self.query_one("#table", LineTable).touch([job.id for job in state.jobs.values() if not job.ended])
        self._show_map(state)

    def targets(self, kind: Target) -> list[str]:
        """Marked jobs, or the one under the cursor."""
        return self.query_one("#table", LineTable).targets() if kind == "job" else []

    def go_to(self, job: str) -> None:
        """Put the cursor on a job; a filter that hides it goes."""
        table = self.query_one("#table", LineTable)
        if not table.go_to(job) and self.filter_text:
            self.close_filter(clear=True)
            table.go_to(job)

    def do_list_sort(self, argument: str) -> None:
        """By the next order, or the one that is named."""
        self.sort = argument if argument in JOB_SORTS else JOB_SORTS[(JOB_SORTS.index(self.sort) + 1) % len(JOB_SORTS)]
        table = self.query_one("#table", LineTable)
        table.sorted_by = {"queue": "", "submitted": "submitted"}.get(self.sort, self.sort)
        self.filtered()

    def do_list_reverse(self, _argument: str) -> None:
        """The other way round."""
        self.reverse = not self.reverse
        self.query_one("#table", LineTable).reverse = self.reverse
        self.filtered()

    def seek(self, by: int) -> bool:
        """Among the rows."""
        all_jobs = console_of(self).state.jobs
        table = self.query_one("#table", LineTable)
        return table.seek(lambda row: row in all_jobs and job_matches(all_jobs[row], self.searched), by)

    def do_view_zoom(self, _argument: str) -> None:
        """The table alone."""
        self.toggle_class("zoomed")

    def _moved(self) -> None:
        """Another job in the map."""
        app = console_of(self)
        current = self.query_one("#table", LineTable).current
        if current:
            app.watch_job(current)
        self._show_map(app.state)
        self.bars()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        """Enter: the job's page."""
        console_of(self).open_job(event.row)

    def note(self) -> str:
        """How many, how many marked, order, filter."""
        table = self.query_one("#table", LineTable)
        parts = [f"{len(table.marked)} marked"] if table.marked else []
        if self.sort != "queue":
            parts.append(f"by {self.sort}")
        if self.filter_text:
            parts.append(f"filter: {self.filter_text}")
        parts.append(plural(len(table.rows), "job"))
        return " · ".join(parts)

    def _show_map(self, state: PoolState) -> None:
        job = state.jobs.get(self.query_one("#table", LineTable).current or "")
        detail = state.details.get(job.id, Detail()) if job else Detail()
        self.query_one("#map", TaskMap).put(job, detail.tasks)
        done = f"{job.grains_done:,} of {plural(job.grains, 'grain')}" if job else ""
        self.query_one("#map-title", Title).put(done, f"tasks of {job.name or job.summary}" if job else "tasks")

    def _cell(self, row: str, column: str) -> Line:
        app = console_of(self)
        return view.cell(app.state.jobs[row], column, app.manner, app.wall())

    def _none(self) -> list[Line]:
        state = console_of(self).state
        if not state.loaded:
            return loading(state)
        if self.filter_text:
            return [(), (("  nothing matches; ", "dim"), ("Esc", "key"), (" clears the filter", "dim"))]
        return [(), (("  No jobs yet.  ", "strong"), *offered(self, "job.new", " runs a sample job."))]
