"""Secrets that are shown once: an invite, a token. Copy the line, or let a phone read it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from moregpu_tui.present.cells import Line, length
from moregpu_tui.present.qr import qr_lines
from moregpu_tui.widgets.bars import KeyBar, Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.lines_view import LinesView

LINE = 60
"""Characters of the line in one row, where there is room."""

FRAME, SIDES = 5, 5
"""Rows and columns of the box that are not the code's."""


class Made(ModalScreen[None]):
    """A line, what it is for, how long it is good; `y` copies, `o` shows the QR code."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "leave", show=False),
        Binding("y", "copy", show=False),
        Binding("o", "code", show=False),
    ]

    def __init__(self, title: str, secret: str, about: list[Line]) -> None:
        super().__init__()
        self._title = title
        self._secret = secret
        self._about = about
        self._code = False

    def compose(self) -> ComposeResult:
        """Title, what it is, keys."""
        with Vertical(id="made"):
            yield Title(self._title)
            yield LinesView(id="line", flow=True)
            yield KeyBar((("y", "copy the line"), ("o", "QR code"), ("Esc", "done: it is not shown again")))

    def on_mount(self) -> None:
        """Show the line."""
        self._show()
        self.query_one(LinesView).focus()

    def on_resize(self) -> None:
        """As much of the line in a row as there is room for."""
        self._show()

    def action_copy(self) -> None:
        """Into the terminal's clipboard."""
        console_of(self).copy(self._secret, "the whole line")

    def action_code(self) -> None:
        """The code, or the line."""
        self._code = not self._code
        self._show()

    def action_leave(self) -> None:
        """Forget it."""
        self._secret = ""
        self.dismiss(None)

    def _show(self) -> None:
        view = self.query_one(LinesView)
        if self._code:
            app = console_of(self)
            lines = qr_lines(self._secret, app.manner.glyphs.ascii)
            lacks = self._lacks(len(lines), max(length(line) for line in lines))
            view.put([((lacks, "warn"),), (), *self._lines()] if lacks else lines)
        else:
            view.put(self._lines())

    def _lacks(self, rows: int, columns: int) -> str:
        """What a code of this size lacks; "" where it can be shown."""
        width, height = self.size
        if rows + FRAME > height:
            return f"the code needs {rows + FRAME} lines of screen; there are {height}"
        if columns + SIDES > width:
            return f"the code needs {columns + SIDES} columns of screen; there are {width}"
        return ""

    def _lines(self) -> list[Line]:
        size = max(1, min(LINE, self.query_one(LinesView).room - 1))
        parts = [self._secret[at : at + size] for at in range(0, len(self._secret), size)]
        return [*self._about, (), *(((part, "strong"),) for part in parts)]
