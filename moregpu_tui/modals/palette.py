"""Actions by a few letters: the palette, the `:` line and the menu of one thing are this one list."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from moregpu_tui.actions import BY_ID, Action, matching
from moregpu_tui.forms.controls import Line as TextLine
from moregpu_tui.present.cells import Column, Line
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.drawn import manner_of
from moregpu_tui.widgets.line_table import LineTable

_COLUMNS = (
    Column(key="key", title="KEY", width=6, right=True),
    Column(key="title", title="ACTION", width=20, grow=1),
    Column(key="help", title="WHAT IT DOES", width=34, grow=2, rank=2),
)


class Palette(ModalScreen[tuple[str, str] | None]):
    """Dismisses with (id of an action, its argument), or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", show=False),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("tab", "complete", show=False, priority=True),
    ]

    def __init__(self, title: str, actions: list[Action], *, commands: bool = False) -> None:
        """`commands`: what is typed is an action's name and its argument, as on the `:` line."""
        super().__init__()
        self._title = title
        self._actions = actions
        self._commands = commands

    def compose(self) -> ComposeResult:
        """A line to type in over a list."""
        with Vertical(id="palette"):
            yield Title(self._title)
            yield TextLine(placeholder="name argument" if self._commands else "type to search", id="typed")
            yield LineTable(_COLUMNS, self._cell, id="found", head=False, empty=self._nothing)

    def on_mount(self) -> None:
        """Everything, at first."""
        table = self.query_one(LineTable)
        table.can_focus = False
        table.show([action.id for action in self._actions])
        self.query_one(TextLine).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        event.stop()
        text = event.value.split(" ", 1)[0] if self._commands else event.value
        found = matching(text, self._actions)
        if self._commands:
            found.sort(key=lambda action: not action.id.endswith(text))
        table = self.query_one(LineTable)
        table.show([action.id for action in found])
        table.action_move_to(0)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the one under the cursor."""
        event.stop()
        chosen = self.query_one(LineTable).current
        if chosen is not None:
            self.dismiss((chosen, event.value.partition(" ")[2].strip() if self._commands else ""))

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        """A click."""
        self.dismiss((event.row, ""))

    def action_move(self, by: int) -> None:
        """Up and down the list."""
        self.query_one(LineTable).action_move(by)

    def action_complete(self) -> None:
        """Complete the name."""
        chosen = self.query_one(LineTable).current
        if chosen is not None and self._commands:
            line = self.query_one(TextLine)
            line.value = f"{chosen} "
            line.cursor_position = len(line.value)

    def action_leave(self) -> None:
        """Nothing."""
        self.dismiss(None)

    def _cell(self, row: str, column: str) -> Line:
        action = BY_ID[row]
        match column:
            case "key":
                return ((manner_of(self).key(row), "key"),)
            case "title":
                name = f"{action.id} {action.argument}" if self._commands else action.title
                return ((name, "strong"), (" ", "text"), ("", "text"))
            case _:
                return ((action.help, "dim"),)

    def _nothing(self) -> list[Line]:
        return [(("  nothing is called so" if self._actions else "  there is nothing that may be done here", "dim"),)]
