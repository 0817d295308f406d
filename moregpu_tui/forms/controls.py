"""Controls of a form: a line to type in, and a choice that is turned by the arrow keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

from moregpu_tui.present.cells import width_of
from moregpu_tui.widgets.drawn import Drawn, console_of, paint_of


class Line(Input):
    """A line of text. It says so when a paste had more lines than the first."""

    def __init__(
        self, value: str = "", *, placeholder: str = "", password: bool = False, id: str | None = None
    ) -> None:
        super().__init__(value, placeholder=placeholder, password=password, id=id, compact=True, select_on_focus=False)
        self.cursor_blink = False

    def _on_paste(self, event: events.Paste) -> None:
        lines = [line for line in event.text.splitlines() if line.strip()]
        if len(lines) > 1:
            console_of(self).warn(f"only the first of {len(lines)} pasted lines was taken")
        super()._on_paste(event)


class Choice(Drawn, can_focus=True):
    """`float32 ‹›`: left and right turn it, a letter jumps."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "turn(-1)", show=False),
        Binding("right,l,space", "turn(1)", show=False),
    ]

    class Changed(Message):
        """Another choice."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> Choice:
            """The widget."""
            return self.choice

    def __init__(self, choices: Sequence[str], value: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._choices = tuple(choices)
        self._at = self._choices.index(value) if value in self._choices else 0

    @property
    def value(self) -> str:
        """What is chosen."""
        return self._choices[self._at]

    @value.setter
    def value(self, value: str) -> None:
        if value in self._choices:
            self._move_to(self._choices.index(value))

    def action_turn(self, by: int) -> None:
        """The next or the one before."""
        self._move_to((self._at + by) % len(self._choices))

    def on_click(self, event: events.Click) -> None:
        """The left sign turns back, the rest on."""
        self.action_turn(-1 if event.x == width_of(self.value) + 2 else 1)

    def on_key(self, event: events.Key) -> None:
        """A letter goes to the next choice that begins with it."""
        if event.character and event.character.isalnum() and event.key not in ("h", "l"):
            places = [(self._at + step) % len(self._choices) for step in range(1, len(self._choices) + 1)]
            for place in places:
                if self._choices[place].lower().startswith(event.character.lower()):
                    event.stop()
                    self._move_to(place)
                    return

    def on_focus(self) -> None:
        """Bright."""
        self.refresh()

    def on_blur(self) -> None:
        """Calm."""
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        paint = paint_of(self)
        here = self.has_focus
        ground = "cursor" if here else "raised"
        edge = "accent" if here else "dim"
        glyphs = paint.glyphs
        line = ((" ", edge), (self.value, "strong" if here else "text"), (f" {glyphs.left}{glyphs.right}", edge))
        return paint.strip(line, self.size.width, ground)

    def _move_to(self, place: int) -> None:
        if place != self._at:
            self._at = place
            self.refresh()
            console_of(self).hold()  # other fields may follow from it: the form lets go once they are there
            self.post_message(self.Changed(self))
