"""Overview: the whole pool at a glance. Radar, four graphs, what needs the admin, the busiest jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult

from moregpu_tui.actions import Target
from moregpu_tui.present import jobs as jobs_view
from moregpu_tui.present.cells import Column, Line
from moregpu_tui.present.units import count, per_second, plural, seconds
from moregpu_tui.present.workers import counts_lines
from moregpu_tui.screens.base import PoolScreen, bindings_for, loading, offered
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.state.selectors import Need, jobs, needs
from moregpu_tui.widgets.bare import Down, Side
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of, manner_of
from moregpu_tui.widgets.graph import Graph
from moregpu_tui.widgets.line_table import LineTable
from moregpu_tui.widgets.lines_view import LinesView
from moregpu_tui.widgets.radar import Radar

NEED_COLUMNS = (
    Column(key="sign", title="", width=1),
    Column(key="text", title="", width=20, grow=1),
    Column(key="key", title="", width=14, rank=1),
)
SHOWN_JOBS = 100


class Overview(PoolScreen):
    """What is going on."""

    here: ClassVar[str] = "overview"
    footer: ClassVar[tuple[str, ...]] = ("job.new", "invite.new", "app.menu", "view.radar", "app.back", "app.help")
    BINDINGS = bindings_for("overview")

    def __init__(self) -> None:
        super().__init__()
        self._needs: dict[str, Need] = {}

    def body(self) -> ComposeResult:
        """Graphs above; lists and radar below."""
        with Side(id="graphs"):
            yield Graph("queue", "queue", lambda value: plural(round(value), "job"), top=4.0, id="queue")
            yield Graph("throughput", "throughput", lambda value: per_second(value, "grains"), top=1.0, id="throughput")
            yield Graph("duty", "throttle", lambda value: f"{value:.0f} %", top=100.0, id="throttle")
            yield Graph("latency", "latency", lambda value: seconds(value / 1e3), top=10.0, id="latency")
        with Side(id="main"):
            with Down(id="lists"):
                yield Title("needs you", id="needs-title")
                yield LineTable(NEED_COLUMNS, self._need_cell, id="needs", head=False, empty=self._no_needs)
                yield Title("jobs", id="jobs-title")
                yield LineTable(jobs_view.COLUMNS[:-1], self._job_cell, id="jobs", empty=self._no_jobs)
            with Down(id="scope"):
                yield Title("workers by latency", id="radar-title")
                yield Radar(id="radar")
                yield LinesView(id="legend")

    def on_mount(self) -> None:
        """Keys into the jobs."""
        super().on_mount()
        self.query_one("#legend").can_focus = False
        self.query_one("#jobs").focus()

    def home(self) -> None:
        """The jobs."""
        self.query_one("#jobs").focus()

    def show(self, state: PoolState, changed: Changed) -> None:
        """Only what changed."""
        every = changed.everything
        for name in ("queue", "throughput", "throttle", "latency"):
            self.query_one(f"#{name}", Graph).put(state.history.get(name, ()))
        table = self.query_one("#jobs", LineTable)
        if every or changed.job_list:
            table.show([job.id for job in jobs(state, self.filter_text)[:SHOWN_JOBS]])
        if every:
            table.touch_all()
        else:
            table.touch(changed.jobs)
        if every or changed.members or changed.job_list or changed.about or changed.urgent:
            self._show_needs(state)
        radar = self.query_one("#radar", Radar)
        radar.put(state.workers, changed.urgent, members=every or changed.members)
        radar.set_pace(console_of(self).radar_pace())

    def tick(self, state: PoolState) -> None:
        """Ages and durations of running jobs."""
        running = [job.id for job in state.jobs.values() if job.state in ("running", "queued")]
        self.query_one("#jobs", LineTable).touch(running[:SHOWN_JOBS])
        self._show_needs(state)
        legend = self.query_one("#legend", LinesView)
        lines = counts_lines(state, manner_of(self), legend.size.width - 1)
        legend.put(lines)
        legend.styles.height = len(lines)

    def targets(self, kind: Target) -> list[str]:
        """The job under the cursor, or what a need is about."""
        if kind == "job" and self.query_one("#jobs").has_focus:
            return self.query_one("#jobs", LineTable).targets()
        needed = self.query_one("#needs", LineTable)
        about = self._needs.get(needed.current or "")
        if about is not None and needed.has_focus:
            wanted = {"worker": "w-", "job": "j-"}.get(kind, "?")
            return [about.about] if about.about.startswith(wanted) else []
        return []

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        """Enter: the job, or what helps."""
        app = console_of(self)
        if event.table.id == "jobs":
            app.open_job(event.row)
        elif (need := self._needs.get(event.row)) is not None:
            if need.about.startswith("w-") and need.action != "worker.approve":
                app.open_worker(need.about)
            elif need.about.startswith("j-"):
                app.open_job(need.about)
            else:
                app.act(need.action)

    def _show_needs(self, state: PoolState) -> None:
        found = needs(state)
        needed = {f"{need.about}{need.text}": need for need in found}
        if needed != self._needs or not needed:
            self._needs = needed
            table = self.query_one("#needs", LineTable)
            table.show([*needed])
            table.touch_all()
            table.styles.max_height = max(1, min(6, len(found)))
        self.query_one("#needs-title", Title).put(str(len(found)) if found else "")
        running = sum(job.state == "running" for job in state.jobs.values())
        self.query_one("#jobs-title", Title).put(f"{running} running" if running else "")
        self.query_one("#radar-title", Title).put(plural(len(state.workers), "worker"))

    def _need_cell(self, row: str, column: str) -> Line:
        need = self._needs[row]
        tone = "bad" if need.level == "error" else "warn"
        match column:
            case "sign":
                return ((manner_of(self).glyphs.levels[need.level], tone),)
            case "text":
                return ((need.text, "text"),)
            case _:
                word = {"worker.approve": "approve", "worker.revoke": "look", "screen.access": "look"}
                return (("Enter ", "key"), (word.get(need.action, "open"), "dim"))

    def _job_cell(self, row: str, column: str) -> Line:
        app = console_of(self)
        return jobs_view.cell(app.state.jobs[row], column, app.manner, app.wall())

    def _no_needs(self) -> list[Line]:
        state = console_of(self).state
        if not state.loaded:
            return [((" loading …", "dim"),)]
        return [((f" {manner_of(self).glyphs.check} nothing: all is well", "good"),)]

    def _no_jobs(self) -> list[Line]:
        state = console_of(self).state
        if not state.loaded:
            return loading(state)
        if self.filter_text:
            return [(), (("  nothing matches; ", "dim"), ("Esc", "key"), (" clears the filter", "dim"))]
        if not state.workers:
            return [
                (),
                (
                    ("  No worker has joined this pool yet.  ", "text"),
                    *offered(self, "invite.new", " creates an invite."),
                ),
                (
                    ("  ", "text"),
                    *offered(self, "job.new", " submits a sample job: it waits for the first worker.", "dim"),
                ),
            ]
        return [(), (("  No jobs yet.  ", "text"), *offered(self, "job.new", " runs a sample job."))]

    def keys(self) -> Sequence[tuple[str, str]]:
        """There is nothing to go back to from here: `q` quits."""
        found = super().keys()
        return [(key, "quit" if what == "back" else what) for key, what in found]

    def note(self) -> str:
        """The filter."""
        return f"filter: {self.filter_text}" if self.filter_text else count_note(console_of(self).state)


def count_note(state: PoolState) -> str:
    """Tasks that are out there now."""
    return f"{count(state.stats.leases)} tasks at work" if state.stats.leases else ""
