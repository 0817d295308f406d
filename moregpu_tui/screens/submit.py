"""Submit: a form for each kind of job, and beside it what the job would do, kept up with what is typed."""

from __future__ import annotations

import secrets
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.timer import Timer

from moregpu.errors import MoreGPUError
from moregpu.jobs import JobCommon
from moregpu.wire.api import PlanView
from moregpu.wire.text import clean
from moregpu.workloads import JobSpec, kind_of
from moregpu_tui.feed.source import Draft
from moregpu_tui.forms.describe import Field, Unread, fields_of, files_of, given_in, kinds_of, read
from moregpu_tui.forms.form import Form
from moregpu_tui.present.cells import Line
from moregpu_tui.present.plan import plan_lines
from moregpu_tui.screens.base import PoolScreen, bindings_for
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.widgets.bare import Down, Side
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.lines_view import LinesView

PLAN_AFTER_S = 0.3
"""A plan is asked for when nobody typed for so long."""

NOT_TYPED = frozenset({"source"})
"""Fields that the coordinator fills in."""

NOTHING_YET = "a plan stands here once the form is filled in"

KINDS = kinds_of(JobSpec)
"""Kinds of jobs that a form can describe."""

SAMPLES: dict[str, dict[str, str]] = {
    "kernel": {"operation": "matmul", "size": "1024", "name": "sample product"},
}
"""What stands in a fresh form."""


class SubmitForm(PoolScreen):
    """A new job."""

    here: ClassVar[str] = "submit"
    footer: ClassVar[tuple[str, ...]] = ("form.submit", "form.reset", "app.escape", "app.help")
    BINDINGS = bindings_for("submit")

    def __init__(self) -> None:
        super().__init__()
        self._soon: Timer | None = None
        self._key = secrets.token_hex(16)
        self.plan: PlanView | None = None
        self._said: list[Line] = []
        self._asked = ""
        self.sending = False
        self.kind = next(iter(KINDS))

    def body(self) -> ComposeResult:
        """Form and plan."""
        with Side(id="main"):
            with Down(id="left"):
                yield Title("new job", id="form-title")
                if len(KINDS) > 1:
                    yield Form(
                        [Field(name="kind", title="Kind", help="", kind="choice", choices=(*KINDS,))],
                        id="kind",
                        leads=True,
                    )
                yield Form(self._fields(), SAMPLES.get(self.kind, {}), id="form")
            with Down(id="right"):
                yield Title("plan", id="plan-title")
                yield LinesView(id="plan")

    def on_mount(self) -> None:
        """Keys into the first field."""
        super().on_mount()
        self.query_one("#plan").can_focus = False
        self.query_one("#form-title", Title).put("", f"new job: {self.kind}")
        self._form.focus_first()

    def home(self) -> None:
        """The first field."""
        self._form.focus_first()

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

    async def on_form_changed(self, event: Form.Changed) -> None:
        """Somebody typed, or chose another kind of job."""
        if event.form.id == "kind":
            if (kind := event.form.typed()["kind"]) != self.kind:
                self.kind = kind
                await self._form.describe(self._fields(), SAMPLES.get(kind, {}))
                self.query_one("#form-title", Title).put("", f"new job: {kind}")
            console_of(self).let_go()
        self._key = secrets.token_hex(16)
        self._plan_soon()

    def draft(self) -> Draft:
        """What stands in the form. Raises `Unread`."""
        fields, typed = self._form.fields, self._form.typed()
        return Draft(
            spec=cast("JobSpec", read(KINDS[self.kind], fields, typed)),
            files=files_of(fields, typed),
            program=typed.get("program", "").strip(),
            payloads=typed.get("payloads", "").strip(),
            given=given_in(fields, typed),
        )

    @property
    def _form(self) -> Form:
        return self.query_one("#form", Form)

    def _fields(self) -> list[Field]:
        return fields_of(KINDS[self.kind], JobCommon, NOT_TYPED)

    def do_form_reset(self, _argument: str) -> None:
        """Back to the sample."""
        self._form.reset()
        self._form.put(SAMPLES.get(self.kind, {}))

    async def do_form_submit(self, _argument: str) -> None:
        """Send it, once: the same key until something is typed."""
        app = console_of(self)
        form = self._form
        if self.sending:
            return
        try:
            draft = self.draft()
        except Unread as wrong:
            form.wrong(wrong.field, wrong.wrong)
            form.focus_field(wrong.field)
            app.warn(f"{wrong.field or 'the form'}: {wrong.wrong}")
            return
        self.sending = True
        try:
            view = await app.source.submit(draft, self._key)
        finally:
            self.sending = False
        self._key = secrets.token_hex(16)
        app.tell(f"{view.name or view.summary or kind_of(draft.spec)} was submitted")
        app.open_job(view.id)

    def _plan_soon(self) -> None:
        if self._soon is not None:
            self._soon.stop()
        self._soon = self.set_timer(PLAN_AFTER_S, self._ask_plan)

    def _ask_plan(self) -> None:
        form = self._form
        try:
            draft = self.draft()
        except Unread as wrong:
            self.plan = None
            if form.is_blank(wrong.field):  # nobody came to it yet: its help stands beside it
                form.wrong("", "")
                self._said = [((NOTHING_YET, "dim"),)]
            else:
                form.wrong(wrong.field, wrong.wrong)
                self._said = [((f"{wrong.field or 'form'}: {wrong.wrong}", "warn"),)]
            self._draw()
            return
        form.wrong("", "")
        if draft.files:
            self.plan = None
            self._said = [(("the files are read and uploaded when you submit;", "dim"),),
                          (("their plan is on the job's page", "dim"),)]  # fmt: skip
            self._draw()
            return
        self.run_worker(self._fetch_plan(draft), exclusive=True, group="plan")

    async def _fetch_plan(self, draft: Draft) -> None:
        try:
            self.plan, self._said = await console_of(self).source.plan(draft), []
        except MoreGPUError as error:
            self.plan = None
            self._said = [((clean(error.detail), "bad"),), ((clean(error.hint), "dim"),)]
        self._draw()

    def _draw(self) -> None:
        app = console_of(self)
        short = self.has_class("short") and not self.has_class("wide")
        lines = list(self._said) if self.plan is None else plan_lines(self.plan, app.state, app.manner, short=short)
        self.query_one("#plan", LinesView).put(lines)
