"""The frame of all questions: a title, some lines, controls; Escape takes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from moregpu_tui.forms.controls import Line as TextLine
from moregpu_tui.present.cells import Line
from moregpu_tui.widgets.bars import Title
from moregpu_tui.widgets.lines_view import LinesView

T = TypeVar("T")

CONTROLS = 8
"""Lines of a dialog that are not said: its border, its title, the space around them, a line to type in or buttons."""


class Dialog(ModalScreen[T | None]):
    """A box in the middle."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, title: str, lines: Sequence[Line] = ()) -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)

    def compose(self) -> ComposeResult:
        """Title, lines, controls."""
        with Vertical(id="dialog"):
            yield Title(self._title)
            if self._lines:
                view = LinesView(id="said", flow=True)
                view.can_focus = False
                yield view
            yield from self.controls()

    def controls(self) -> ComposeResult:
        """What the person answers with."""
        yield from ()

    def on_mount(self) -> None:
        """Show what is said."""
        if self._lines:
            self.query_one("#said", LinesView).put(self._lines)

    def on_resize(self) -> None:
        """What is said may take what the frame and the controls leave."""
        if self._lines:
            self.query_one("#said", LinesView).styles.max_height = max(3, min(16, self.size.height - CONTROLS))

    def action_leave(self) -> None:
        """No answer."""
        self.dismiss(None)


class Confirm(Dialog[bool]):
    """Yes or no; the keys are on no."""

    def __init__(self, title: str, lines: Sequence[Line], yes: str) -> None:
        super().__init__(title, lines)
        self._yes = yes

    def controls(self) -> ComposeResult:
        """Two buttons."""
        with Horizontal(id="buttons"):
            yield Button("Keep as it is", id="no", compact=True)
            yield Button(self._yes, id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        """Focus on no."""
        super().on_mount()
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The answer."""
        self.dismiss(event.button.id == "yes")

    def key_left(self) -> None:
        """The other button."""
        self.focus_previous()

    def key_right(self) -> None:
        """The other button."""
        self.focus_next()

    def key_y(self) -> None:
        """Yes."""
        self.dismiss(True)

    def key_n(self) -> None:
        """No."""
        self.dismiss(False)


class TypeToConfirm(Dialog[bool]):
    """What cannot be taken back: the id must be typed."""

    def __init__(self, title: str, lines: Sequence[Line], expected: str) -> None:
        super().__init__(
            title, [*lines, (), (("Type ", "text"), (expected, "strong"), (" and Enter. Esc: no.", "text"))]
        )
        self._expected = expected

    def controls(self) -> ComposeResult:
        """A line to type in."""
        yield TextLine(id="typed")

    def on_mount(self) -> None:
        """Focus on the line."""
        super().on_mount()
        self.query_one(TextLine).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Right, or once more."""
        event.stop()
        if event.value.strip() == self._expected:
            self.dismiss(True)
        else:
            event.input.value = ""
            event.input.placeholder = f"that was not {self._expected}"


class Ask(Dialog[str]):
    """One line of text."""

    def __init__(
        self,
        title: str,
        lines: Sequence[Line] = (),
        *,
        value: str = "",
        secret: bool = False,
        check: Callable[[str], str] = lambda _text: "",
    ) -> None:
        """`check` says what is wrong with a text, or ""."""
        super().__init__(title, [*lines, (("", "text"),)])
        self._value = value
        self._secret = secret
        self._check = check

    def controls(self) -> ComposeResult:
        """A line to type in."""
        yield TextLine(self._value, password=self._secret, id="typed")

    def on_mount(self) -> None:
        """Focus on the line."""
        super().on_mount()
        self.query_one(TextLine).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take it, or say what is wrong."""
        event.stop()
        wrong = self._check(event.value.strip())
        if wrong:
            self.query_one("#said", LinesView).put([*self._lines[:-1], ((wrong, "bad"),)])
        else:
            self.dismiss(event.value.strip())
