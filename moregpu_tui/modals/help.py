"""The keys of a screen, from the list of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from moregpu_tui.actions import Action, on_screen, permitted, shown_keys
from moregpu_tui.present.cells import Line, wrapped
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.lines_view import LinesView


def _own(action: Action) -> str:
    return action.key


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
            yield LinesView(id="keys")

    def on_mount(self) -> None:
        """Fill it."""
        self.query_one(LinesView).focus()

    def on_resize(self) -> None:
        """As wide as there is room."""
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        view = self.query_one(LinesView)
        key_of = console_of(self).key_of
        view.put(help_lines(self._here, self._role, self._readonly, view.size.width - 3, key_of))

    def action_leave(self) -> None:
        """Back."""
        self.dismiss(None)


def help_lines(
    screen: str, role: str, readonly: bool, width: int = 100, key_of: Callable[[Action], str] = _own
) -> list[Line]:
    """The keys of a screen in groups; what may not be done here is not listed."""
    actions = [action for action in on_screen(screen) if permitted(action, role=role, readonly=readonly)]
    own = [action for action in actions if action.scope and not action.widget]
    moving = [action for action in actions if action.widget]
    everywhere = [action for action in actions if not action.scope and not action.widget]
    lines: list[Line] = []
    room = max(len(action.title) for action in actions)
    for title, group in ((f"on {screen.capitalize()}", own), ("everywhere", everywhere), ("moving", moving)):
        if group:
            lines += [
                (),
                ((title, "head"),),
                *(line for action in group for line in _lines(action, key_of(action), room, width)),
            ]
    return lines[1:]


def _lines(action: Action, key: str, room: int, width: int) -> list[Line]:
    keys, title = f" {shown_keys(key):>7}  ", f"{action.title:<{room}}  "
    first, *rest = wrapped(action.help, max(12, width - len(keys) - len(title)))
    below = " " * (len(keys) + len(title))
    return [((keys, "key"), (title, "strong"), (first, "dim")), *(((below, "text"), (more, "dim")) for more in rest)]
