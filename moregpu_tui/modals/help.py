"""The keys of a screen, from the list of actions."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from moregpu_tui.actions import Action, on_screen, permitted, shown_keys
from moregpu_tui.present.cells import Line
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.lines_view import LinesView


class Help(ModalScreen[None]):
    """Scroll with the usual keys, leave with any of Esc, q, ?."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,f1,enter", "leave", show=False)]

    def __init__(self, screen: str, role: str, readonly: bool) -> None:
        super().__init__()
        self._here = screen
        self._role = role
        self._readonly = readonly

    def compose(self) -> ComposeResult:
        """A scrolling list."""
        with Vertical(id="help"):
            yield Title(f"keys of {self._here.capitalize()}")
            yield LinesView(id="keys", place="surface")

    def on_mount(self) -> None:
        """Fill it."""
        view = self.query_one(LinesView)
        view.put(help_lines(self._here, self._role, self._readonly))
        view.focus()

    def action_leave(self) -> None:
        """Back."""
        self.dismiss(None)


def help_lines(screen: str, role: str, readonly: bool) -> list[Line]:
    """The keys of a screen in groups; what may not be done here is not listed."""
    actions = [action for action in on_screen(screen) if permitted(action, role=role, readonly=readonly)]
    own = [action for action in actions if action.scope and not action.widget]
    moving = [action for action in actions if action.widget]
    everywhere = [action for action in actions if not action.scope and not action.widget]
    lines: list[Line] = []
    for title, group in ((f"on {screen.capitalize()}", own), ("everywhere", everywhere), ("moving", moving)):
        if group:
            lines += [(), ((title, "head"),), *(_line(action) for action in group)]
    return lines[1:]


def _line(action: Action) -> Line:
    return (
        (f"  {shown_keys(action.key):>12}  ", "key"),
        (f"{action.title:<20} ", "strong"),
        (action.help, "dim"),
    )
