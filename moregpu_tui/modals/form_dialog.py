"""A whole form in front of a screen: an invite, a token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from moregpu_tui.forms.describe import Unread, fields_of, read
from moregpu_tui.forms.form import Form
from moregpu_tui.widgets.bars import KeyBar, Title

T = TypeVar("T", bound=msgspec.Struct)


class FormDialog(ModalScreen[T | None], Generic[T]):
    """Dismisses with the Struct, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("f10,ctrl+s", "send", show=False, priority=True),
    ]

    def __init__(self, title: str, struct: type[T], done: str, values: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._title = title
        self._struct = struct
        self._done = done
        self._values = dict(values or {})

    def compose(self) -> ComposeResult:
        """Title, form, keys."""
        with Vertical(id="formbox"):
            yield Title(self._title)
            yield Form(fields_of(self._struct), self._values)
            yield KeyBar((("F10", self._done), ("Enter", "next, then " + self._done), ("Esc", "no")))

    def on_mount(self) -> None:
        """Keys in the first field."""
        self.query_one(Form).focus_first()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in the last field sends; before, it goes on."""
        event.stop()
        rows = list(self.query_one(Form).query(Input))
        if rows and event.input is rows[-1]:
            self.action_send()
        else:
            self.focus_next()

    def action_send(self) -> None:
        """Read the form; say what is wrong, or dismiss."""
        form = self.query_one(Form)
        try:
            self.dismiss(read(self._struct, form.fields, form.typed()))
        except Unread as wrong:
            form.wrong(wrong.field, wrong.wrong)
            form.focus_field(wrong.field)

    def action_leave(self) -> None:
        """Nothing."""
        self.dismiss(None)
