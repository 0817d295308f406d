"""Secrets that are shown once: an invite, a token. Copy the line, or let a phone read it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from moregpu_tui.present.cells import Line
from moregpu_tui.present.qr import qr_lines
from moregpu_tui.widgets.bars import KeyBar, Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.lines_view import LinesView

LINE = 60


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
            yield LinesView(id="line")
            yield KeyBar((("y", "copy the line"), ("o", "QR code"), ("Esc", "done: it is not shown again")))

    def on_mount(self) -> None:
        """Show the line."""
        self._show()
        self.query_one(LinesView).focus()

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
            if len(lines) + 5 > app.size.height:
                lines = [
                    ((f"the code needs {len(lines) + 5} lines of screen; there are {app.size.height}", "warn"),),
                    (),
                ]
                lines += self._lines()
            view.put(lines)
        else:
            view.put(self._lines())

    def _lines(self) -> list[Line]:
        parts = [self._secret[at : at + LINE] for at in range(0, len(self._secret), LINE)]
        return [*self._about, (), *(((part, "strong"),) for part in parts)]
