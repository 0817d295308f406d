"""Submit: a form for each kind of job, and beside it what the job would do, kept up with what is typed."""

from __future__ import annotations

import secrets
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.timer import Timer

from moregpu.errors import MoreGPUError
from moregpu.jobs import JobCommon
from moregpu.wire.api import PlanView
from moregpu.workloads import JobSpec, kind_of
from moregpu_tui.forms.describe import Unread, fields_of, files_of, read
from moregpu_tui.forms.form import Form
from moregpu_tui.present.cells import Line
from moregpu_tui.present.plan import plan_lines
from moregpu_tui.screens.base import PoolScreen, bindings_for
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.lines_view import LinesView

PLAN_AFTER_S = 0.3
"""A plan is asked for when nobody typed for so long."""

NOT_TYPED = frozenset({"source"})
"""Fields that the coordinator fills in."""

SAMPLE = {"operation": "matmul", "size": "1024", "name": "sample product"}


class SubmitForm(PoolScreen):
    """A new job."""

    here: ClassVar[str] = "submit"
    footer: ClassVar[tuple[str, ...]] = ("form.submit", "form.reset", "app.help", "app.escape")
    BINDINGS = bindings_for("submit")

    def __init__(self) -> None:
        super().__init__()
        self._soon: Timer | None = None
        self._key = secrets.token_hex(16)
        self._plan: PlanView | None = None
        self._said: list[Line] = []
        self._asked = ""
        self.sending = False

    def body(self) -> ComposeResult:
        """Form and plan."""
        with Horizontal(id="main"):
            with Vertical(id="left"):
                yield Title("new job: kernel")
                yield Form(fields_of(JobSpec, JobCommon, NOT_TYPED), SAMPLE, id="form")
            with Vertical(id="right"):
                yield Title("plan", id="plan-title")
                yield LinesView(id="plan")

    def on_mount(self) -> None:
        """Keys into the first field."""
        super().on_mount()
        self.query_one("#plan").can_focus = False
        self.query_one(Form).focus_first()

    def home(self) -> None:
        """The first field."""
        self.query_one(Form).focus_first()

    def on_screen_resume(self) -> None:
        """The pool may have changed meanwhile."""
        super().on_screen_resume()
        self._plan_soon()

    def show(self, state: PoolState, changed: Changed) -> None:
        """The plan depends on who is there."""
        if changed.everything or changed.members or changed.link:
            self._draw()
        if changed.members:
            self._plan_soon()

    def on_form_changed(self) -> None:
        """Somebody typed."""
        self._key = secrets.token_hex(16)
        self._plan_soon()

    def spec(self) -> JobSpec:
        """What stands in the form. Raises `Unread`."""
        form = self.query_one(Form)
        return read(JobSpec, form.fields, form.typed())

    def do_form_reset(self, _argument: str) -> None:
        """Back to the sample."""
        form = self.query_one(Form)
        form.reset()
        form.put(SAMPLE)

    async def do_form_submit(self, _argument: str) -> None:
        """Send it, once: the same key until something is typed."""
        app = console_of(self)
        form = self.query_one(Form)
        if self.sending:
            return
        try:
            spec = self.spec()
            files = files_of(form.fields, form.typed())
        except Unread as wrong:
            form.wrong(wrong.field, wrong.wrong)
            form.focus_field(wrong.field)
            app.warn(f"{wrong.field or 'the form'}: {wrong.wrong}")
            return
        self.sending = True
        try:
            view = await app.source.submit(spec, files, self._key)
        finally:
            self.sending = False
        self._key = secrets.token_hex(16)
        app.tell(f"{view.name or view.summary or kind_of(spec)} was submitted")
        app.open_job(view.id)

    def _plan_soon(self) -> None:
        if self._soon is not None:
            self._soon.stop()
        self._soon = self.set_timer(PLAN_AFTER_S, self._ask_plan)

    def _ask_plan(self) -> None:
        form = self.query_one(Form)
        try:
            spec = self.spec()
            files = files_of(form.fields, form.typed())
        except Unread as wrong:
            form.wrong(wrong.field, wrong.wrong)
            self._plan, self._said = None, [((f"{wrong.field or 'form'}: {wrong.wrong}", "warn"),)]
            self._draw()
            return
        form.wrong("", "")
        if files:
            self._plan = None
            self._said = [(("the files are read and uploaded when you submit;", "dim"),),
                          (("their plan is on the job's page", "dim"),)]  # fmt: skip
            self._draw()
            return
        self.run_worker(self._fetch_plan(spec), exclusive=True, group="plan")

    async def _fetch_plan(self, spec: JobSpec) -> None:
        try:
            self._plan, self._said = await console_of(self).source.plan(spec), []
        except MoreGPUError as error:
            self._plan = None
            self._said = [((error.detail, "bad"),), ((error.hint, "dim"),)]
        self._draw()

    def _draw(self) -> None:
        app = console_of(self)
        lines = list(self._said) if self._plan is None else plan_lines(self._plan, app.state, app.manner)
        self.query_one("#plan", LinesView).put(lines)
