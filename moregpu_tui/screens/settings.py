"""Settings: made from their Struct; they take effect as they are chosen and are kept in config.toml."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from textual.app import ComposeResult

from moregpu.errors import InvalidRequest
from moregpu_tui.forms.describe import Unread, as_typed, fields_of, read
from moregpu_tui.forms.form import Form
from moregpu_tui.keymap import checked
from moregpu_tui.options import Settings
from moregpu_tui.present.cells import Line
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.units import plural, size
from moregpu_tui.present.workers import job_tone
from moregpu_tui.screens.base import PoolScreen, bindings_for
from moregpu_tui.state.model import LOOKS, SERIES, PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.widgets.bare import Down
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.lines_view import LinesView


class SettingsPage(PoolScreen):
    """How the console looks, and what the pool keeps."""

    here: ClassVar[str] = "settings"
    footer: ClassVar[tuple[str, ...]] = ("pool.change", "form.reset", "app.escape", "app.help")
    BINDINGS = bindings_for("settings")

    def body(self) -> ComposeResult:
        """The form, and the pool's disk."""
        with Down(id="main"):
            yield Title("console")
            yield Form(fields_of(Settings), self._values(console_of(self).settings), id="form")
            yield Title("disk and retention")
            yield LinesView(id="disk")
            yield Title("how it looks", id="looks-title")
            yield LinesView(id="looks")

    def on_mount(self) -> None:
        """Keys into the first field."""
        super().on_mount()
        for name in ("#disk", "#looks"):
            self.query_one(name).can_focus = False
        self.query_one(Form).focus_first()

    def home(self) -> None:
        """The first field."""
        self.query_one(Form).focus_first()

    def show(self, state: PoolState, changed: Changed) -> None:
        """The pool's disk."""
        if changed.everything or changed.about:
            self.query_one("#disk", LinesView).put(_disk(state))
        if changed.everything:
            self.query_one("#looks", LinesView).put(_looks(console_of(self).manner))

    def do_form_reset(self, _argument: str) -> None:
        """Back to the defaults."""
        self.query_one(Form).reset()

    def on_form_changed(self) -> None:
        """Take it, keep it, or say what is wrong."""
        form = self.query_one(Form)
        try:
            chosen = read(Settings, form.fields, form.typed())
            chosen = msgspec.structs.replace(chosen, keys=checked(chosen.keys))
        except Unread as wrong:
            form.wrong(wrong.field, wrong.wrong)
            return
        except InvalidRequest as error:
            form.wrong("keys", error.detail)
            return
        form.wrong("", "")
        console_of(self).use_settings(chosen)
        self.query_one("#looks", LinesView).put(_looks(console_of(self).manner))

    def _values(self, settings: Settings) -> dict[str, str]:
        values = msgspec.structs.asdict(settings)
        return {field.name: as_typed(values[field.name], field.kind, field.name) for field in fields_of(Settings)}


def _looks(manner: Manner) -> list[Line]:
    """Every sign and colour there is: a choice of theme is seen at once."""
    glyphs = manner.glyphs
    rise = "".join(glyphs.rise[1:])
    return [
        (("workers  ", "dim"), *((f"{glyphs.looks[look]} {look}  ", look) for look in LOOKS[:5])),
        (("         ", "dim"), *((f"{glyphs.looks[look]} {look}  ", look) for look in LOOKS[5:])),
        (("jobs     ", "dim"), *((f"{sign} {state}  ", job_tone(state)) for state, sign in glyphs.jobs.items())),
        (("text     ", "dim"), ("text  ", "text"), ("strong  ", "strong"), ("aside  ", "dim"), ("key  ", "key"),
         ("warning  ", "warn"), ("error  ", "bad")),
        (("graphs   ", "dim"), *((f"{rise}{rise[-2::-1]}", tone) for tone in SERIES)),
    ]  # fmt: skip


def _disk(state: PoolState) -> list[Line]:
    pool = state.pool
    if pool is None:
        return [(("not loaded yet", "dim"),)]
    kept = sum(job.ended for job in state.jobs.values())
    limit = f"the oldest outputs go beyond {size(pool.keep_bytes)}" if pool.keep_bytes else "no limit for the pool"
    return [
        (("blobs here   ", "dim"), (size(pool.storage_bytes), "text")),
        (
            ("free         ", "dim"),
            (size(pool.storage_free_bytes), "text" if pool.storage_free_bytes > 2 << 30 else "bad"),
        ),
        (("kept         ", "dim"), (f"outputs as long as each job asked (keep), {limit}", "text")),
        (("ended jobs   ", "dim"), (f"{plural(kept, 'job')} in this list; records and evidence stay", "text")),
    ]
