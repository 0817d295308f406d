"""A form over the fields of a Struct: labels, controls, help, and what is wrong beside the field it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

from moregpu_tui.forms.controls import Choice, Line
from moregpu_tui.forms.describe import Field
from moregpu_tui.present.cells import Line as Pieces
from moregpu_tui.present.cells import wrapped
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import Drawn, console_of, paint_of

LABEL = 16
WIDE = 84
"""From this width on, help stands beside every field."""

MOST_LINES = 3
"""Of help beside a field."""


class Note(Drawn):
    """Help of a field, or what is wrong with it."""

    def __init__(self, text: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = text
        self._wrong = ""

    def wrong(self, text: str) -> None:
        """Say what is wrong; "" when nothing is."""
        if text != self._wrong:
            self._wrong = text
            self.refresh()

    def put(self, text: str) -> None:
        """Another help."""
        if text != self._text:
            self._text = text
            self.refresh()

    def lines(self, *, all: bool) -> list[Pieces]:
        """What it says; the first line only, unless all is asked for."""
        paint = paint_of(self)
        text, tone = (f"{paint.glyphs.cross} {self._wrong}", "bad") if self._wrong else (self._text, "dim")
        if not all:
            return [((text, tone),)]
        return [((line, tone),) for line in wrapped(text, max(10, self.size.width - 1))[:MOST_LINES]]

    @property
    def is_wrong(self) -> bool:
        """Whether it says that something is wrong."""
        return bool(self._wrong)

    def render_line(self, y: int) -> Strip:
        """A line: all of them where the field has room, the first one cut otherwise."""
        lines = self.lines(all=self.size.height > 1)
        line = lines[y] if y < len(lines) else ()
        return paint_of(self).strip(((" ", "text"), *line), self.size.width, self.ground)


class Label(Drawn):
    """The title of a field."""

    def __init__(self, text: str, required: bool) -> None:
        super().__init__()
        self._text = text
        self._required = required

    def render_line(self, y: int) -> Strip:
        """The title, in the first line."""
        if y:
            return paint_of(self).blank(self.size.width, self.ground)
        row = self.parent
        here = isinstance(row, Row) and row.has_class("here")
        line = ((self._text, "accent" if here else "text"), (" *" if self._required else "", "warn"))
        return paint_of(self).strip(line, self.size.width, self.ground)


class Row(Horizontal):
    """One field."""

    def __init__(self, field: Field, value: str) -> None:
        super().__init__(classes="field")
        self.field = field
        self._value = value

    def compose(self) -> ComposeResult:
        """Label, control, note."""
        field = self.field
        yield Label(field.title, field.required)
        if field.kind in ("choice", "flag"):
            yield Choice(field.choices, self._value)
        else:
            holder = field.blank or ("empty: none" if field.optional and not field.default else "")
            yield Line(self._value, placeholder=holder, password=field.secret)
        yield Note(field.help)

    @property
    def control(self) -> Choice | Line:
        """What is typed in or turned."""
        return self.query_one(Choice) if self.field.kind in ("choice", "flag") else self.query_one(Line)

    @property
    def note(self) -> Note:
        """Its help."""
        return self.query_one(Note)

    def unfold(self) -> None:
        """As high as its note needs where the keys are or something is wrong; else one line."""
        note = self.note
        high = len(note.lines(all=True)) if self.has_class("here") or note.is_wrong else 1
        self.styles.height = note.styles.height = high


class Form(VerticalScroll, can_focus=False):
    """Fields under each other. `typed` gives what stands in them, as text."""

    class Changed(Message):
        """Somebody typed."""

        def __init__(self, form: Form) -> None:
            super().__init__()
            self.form = form

        @property
        def control(self) -> Form:
            """The form."""
            return self.form

    def __init__(
        self,
        fields: list[Field],
        values: Mapping[str, str] | None = None,
        *,
        id: str | None = None,
        leads: bool = False,
    ) -> None:
        """`leads`: another form follows from it, and whoever changes that lets the keys go."""
        super().__init__(id=id)
        self._leads = leads
        self.fields = fields
        self._values = dict(values or {})

    def compose(self) -> ComposeResult:
        """Own fields, then common ones under a line."""
        before = False
        for field in self.fields:
            if field.common and not before:
                before = True
                yield Title("every job")
            if field.kind != "bytes":
                yield Row(field, self._values.get(field.name, field.default))

    def on_mount(self) -> None:
        """Only what means something."""
        self._sift()

    async def describe(self, fields: list[Field], values: Mapping[str, str]) -> None:
        """Show other fields; what somebody typed into those of the same name stays."""
        before = {field.name: self._values.get(field.name, field.default) for field in self.fields}
        typed = {name: value for name, value in self.typed().items() if value != before[name]}
        self.fields = fields
        self._values = {**values, **{field.name: typed[field.name] for field in fields if field.name in typed}}
        await self.recompose()
        self._sift()

    def typed(self) -> dict[str, str]:
        """What stands in the fields, also in those that are not shown."""
        return {row.field.name: row.control.value for row in self._rows()}

    def put(self, values: Mapping[str, str]) -> None:
        """Fill the fields."""
        for row in self._rows():
            if row.field.name in values:
                row.control.value = values[row.field.name]

    def reset(self) -> None:
        """Back to the defaults."""
        self.put({field.name: field.default for field in self.fields})

    def wrong(self, name: str, text: str) -> None:
        """Say what is wrong with a field, and only there; "" when nothing is."""
        for row in self._rows():
            row.note.wrong(text if row.field.name == name else "")
            row.unfold()

    def is_blank(self, name: str) -> bool:
        """Whether nothing stands in a field."""
        return any(row.field.name == name and not row.control.value for row in self._rows())

    def focus_field(self, name: str) -> None:
        """Put the keys where something is wrong."""
        for row in self._rows():
            if row.field.name == name:
                row.control.focus()

    def focus_first(self) -> None:
        """Put the keys into the first field."""
        for row in self._rows():
            row.control.focus()
            return

    def on_resize(self, event: events.Resize) -> None:
        """Help beside the fields only where there is room."""
        self.set_class(event.size.width < WIDE, "narrow")
        self.call_after_refresh(self._unfold)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Mark the field that has the keys."""
        for row in self._rows():
            row.set_class(row.control is event.widget, "here")
            row.query_one(Label).refresh()
            row.unfold()

    def on_descendant_blur(self) -> None:
        """The keys went elsewhere, perhaps out of this form."""
        for row in self.query(".here").results(Row):
            row.remove_class("here")
            row.query_one(Label).refresh()
            row.unfold()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Somebody typed."""
        event.stop()
        self._changed()

    def on_choice_changed(self, event: Choice.Changed) -> None:
        """Somebody turned. The keys that follow are meant for the fields that follow."""
        event.stop()
        self._changed()
        if not self._leads:
            console_of(self).let_go()

    def _changed(self) -> None:
        self._sift()
        self.post_message(self.Changed(self))

    def _sift(self) -> None:
        typed = self.typed()
        for row in self._rows():
            row.display = row.field.applies(typed)

    def _unfold(self) -> None:
        for row in self._rows():
            row.unfold()

    def _rows(self) -> Iterable[Row]:
        return self.query(Row)
