"""One job: its road, its tasks as a map and as rows, attempts, evidence and signatures, its log, its result."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from moregpu_tui.actions import Target
from moregpu_tui.present import jobs as view
from moregpu_tui.present.cells import Line
from moregpu_tui.present.units import plural
from moregpu_tui.screens.base import PoolScreen, bindings_for, offered
from moregpu_tui.state.model import Detail, Job, PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.state.selectors import jobs
from moregpu_tui.widgets.bare import Down, Side
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.line_table import LineTable
from moregpu_tui.widgets.lines_view import LinesView
from moregpu_tui.widgets.log_view import LogView
from moregpu_tui.widgets.task_map import TaskMap


class JobPage(PoolScreen):
    """Everything about one job."""

    here: ClassVar[str] = "job"
    footer: ClassVar[tuple[str, ...]] = (
        "job.verify", "job.preview", "job.cancel", "job.retry", "view.zoom", "app.back", "app.help",
    )  # fmt: skip
    BINDINGS = bindings_for("job")

    def __init__(self) -> None:
        super().__init__()
        self.job = ""
        self._arranged = ""  # the job that the parts were chosen for

    def body(self) -> ComposeResult:
        """Facts and road; map; tasks beside evidence; log."""
        with Down(id="main"):
            yield LinesView(id="facts")
            yield Title("tasks", id="map-title")
            yield TaskMap(id="map")
            with Side(id="middle"):
                with Down(id="left"):
                    yield LineTable(view.TASK_COLUMNS, self._cell, id="table", empty=self._none)
                with Down(id="right"):
                    yield Title("evidence and signatures")
                    yield LinesView(id="proof")
                    yield Title("attempts", id="attempts-title")
                    yield LinesView(id="attempts")
            yield Title("log", id="log-title")
            yield LogView(id="log")

    def on_mount(self) -> None:
        """Keys into the tasks."""
        super().on_mount()
        self.query_one("#facts").can_focus = False
        self.query_one("#table").focus()

    def home(self) -> None:
        """The tasks, or what stands in their place."""
        shown = next((name for name in ("log", "proof") if self.has_class(name)), "table")
        self.query_one(f"#{shown}").focus()

    def go_to(self, job: str) -> None:
        """Show this one."""
        self.job = job
        self.refresh_all()

    def show(self, state: PoolState, changed: Changed) -> None:
        """Draw when this job changed."""
        if not self.job or self.job not in state.jobs:
            first = jobs(state)[:1]
            self.job = first[0].id if first else ""
            if self.job:
                console_of(self).watch_job(self.job)
            changed = Changed(everything=True)
        if changed.everything or self.job in changed.jobs or self.job in changed.details:
            self._draw(state)
        if changed.everything or changed.log or self.job in changed.details:
            self._draw_log(state)

    def tick(self, state: PoolState) -> None:
        """Durations."""
        job = state.jobs.get(self.job)
        if job is not None and not job.ended:
            self._draw(state)

    def targets(self, kind: Target) -> list[str]:
        """The job that is shown."""
        return [self.job] if kind == "job" and self.job else []

    def do_view_zoom(self, _argument: str) -> None:
        """The next part that has no room beside the others."""
        parts = ["", *(["log"] if self.has_class("short") else []), "zoomed" if self.has_class("wide") else "proof"]
        now = next((name for name in parts[1:] if self.has_class(name)), "")
        self._part(parts[(parts.index(now) + 1) % len(parts)])

    def _part(self, name: str) -> None:
        for each in ("log", "proof", "zoomed"):
            self.set_class(each == name, each)
        self.call_after_refresh(self.home)

    def _arrange(self, job: Job) -> None:
        """What a function prints is what its page is about: it has room, and where there is little, the first view."""
        if self._arranged == job.id or not job.known:
            return
        self._arranged = job.id
        self.set_class(job.kind == "function", "function")
        self._part("log" if job.kind == "function" and self.has_class("short") else "")

    async def do_job_verify(self, _argument: str) -> None:
        """Fetch the signatures and verify them here."""
        self._show_proof()
        await console_of(self).source.fetch_signatures(self.job)

    async def do_job_preview(self, _argument: str) -> None:
        """The result in a few lines."""
        self._show_proof()
        await console_of(self).source.fetch_preview(self.job)

    def _show_proof(self) -> None:
        if not self.has_class("wide"):
            self._part("proof")

    def _draw(self, state: PoolState) -> None:
        app = console_of(self)
        job = state.jobs.get(self.job)
        facts = self.query_one("#facts", LinesView)
        if job is None:
            facts.put([(("There is no job to show.  ", "text"), *offered(self, "job.new", " makes one."))])
            self.query_one("#table", LineTable).show([])
            self.query_one("#map", TaskMap).put(None, ())
            return
        self._arrange(job)
        detail = state.details.get(job.id, Detail())
        head: Line = ((f"{app.manner.glyphs.jobs.get(job.state, '?')} {job.state}", view.job_tone(job.state)),
                      ("   ", "text"), (job.name or job.summary, "strong"))  # fmt: skip
        lines = [head, (), view.road(job, app.manner), (), *view.facts(job, app.manner, app.wall())]
        facts.put(lines)
        facts.styles.height = len(lines) + 1
        self.query_one("#map", TaskMap).put(job, detail.tasks)
        self.query_one("#map-title", Title).put(
            f"{job.grains_done:,} of {plural(job.grains, 'grain')} in {plural(len(detail.tasks), 'task')}"
        )
        table = self.query_one("#table", LineTable)
        table.show([str(task.number) for task in reversed(detail.tasks)])
        table.touch_all()
        self._draw_proof(job, detail)

    def _draw_proof(self, job: Job, detail: Detail) -> None:
        app = console_of(self)
        lines = view.proof(job, detail, app.manner)
        if detail.preview:
            lines += [(), (("result", "head"),), *((("  " + line, "text"),) for line in detail.preview)]
        self.query_one("#proof", LinesView).put(lines)
        self.query_one("#attempts", LinesView).put(view.attempts(detail.tasks, app.manner))

    def _draw_log(self, state: PoolState) -> None:
        entries = state.details.get(self.job, Detail()).log
        if entries is None:  # not ours to read, or not come yet
            entries = tuple(entry for entry in state.log[-2000:] if entry.about == self.job)
        self.query_one("#log", LogView).put_entries(entries)
        self.query_one("#log-title", Title).put(plural(len(entries), "line") if entries else "nothing yet")

    def _cell(self, row: str, column: str) -> Line:
        app = console_of(self)
        detail = app.state.details.get(self.job, Detail())
        number = int(row)
        task = next((task for task in detail.tasks if task.number == number), None)
        if task is None:
            return (("", "text"),)
        signature = next((one for one in detail.signatures or () if one.task == task.id), None)
        return view.task_cell(task, column, signature, app.manner, app.wall())

    def _none(self) -> list[Line]:
        job = console_of(self).state.jobs.get(self.job)
        if job is None:
            return []
        return [(("  no task was leased yet: they are cut when a worker asks", "dim"),)]
