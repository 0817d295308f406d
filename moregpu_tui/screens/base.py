"""What every screen has: the bars, a filter line, one way to be told of news, and nothing drawn while hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from moregpu_tui.actions import ACTIONS, BY_ID, Target, permitted, shown_key
from moregpu_tui.forms.controls import Line as TextLine
from moregpu_tui.present.cells import Line
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.reduce import Changed
from moregpu_tui.state.selectors import why_not_now
from moregpu_tui.widgets.bare import Down
from moregpu_tui.widgets.bars import KeyBar, TopBar
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.lines_view import LinesView

SMALLEST = (60, 16)
SETTLE_S = 0.25
WIDE = 120


def offered(widget: Widget, id: str, what: str, tone: str = "text") -> Line:
    """A key and what it brings, where it may be used."""
    app = console_of(widget)
    if not permitted(BY_ID[id], role=app.state.role, readonly=app.options.readonly):
        return ()
    return ((app.manner.key(id), "key"), (what, tone))


def bindings_for(screen: str) -> list[BindingType]:
    """Keys of a screen's own actions."""
    return [
        Binding(action.key, f"app.act('{action.id}')", show=False, id=action.id)
        for action in ACTIONS
        if screen in action.scope and not action.widget
    ]


class PoolScreen(Screen[None]):
    """Give `here`, `footer`, `body`, `show`; perhaps `targets`."""

    BLANK: ClassVar[bool] = True  # of its own it has only a ground
    here: ClassVar[str] = ""
    footer: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.filter_text = ""
        self.searched = ""  # the filter before: n and N go on with it when it is cleared
        self._shown_once = False
        self.is_ready = False  # its parts are there; a screen counts as mounted a little before
        self._faded = False
        self._settle: Timer | None = None
        self._upper: TopBar | None = None  # until it is composed
        self._lower: KeyBar | None = None

    # ---- what a screen gives

    def body(self) -> ComposeResult:
        """The part between the bars."""
        yield from ()

    def show(self, state: PoolState, changed: Changed) -> None:
        """News. `changed.everything` means: all anew."""

    def tick(self, state: PoolState) -> None:
        """A second passed: ages, durations."""

    def targets(self, kind: Target) -> list[str]:
        """What an action would act on: marked rows, or the one under the cursor."""
        return []

    def filtered(self) -> None:
        """The filter is another."""
        self.show(console_of(self).state, Changed(everything=True))

    def seek(self, by: int) -> bool:
        """Go to the next thing, or the one before, that matches what was searched last; whether there is one."""
        return False

    def do_list_next(self, _argument: str) -> None:
        """The next match."""
        self._sought(1)

    def do_list_previous(self, _argument: str) -> None:
        """The match before."""
        self._sought(-1)

    def _sought(self, by: int) -> None:
        if not self.seek(by):
            console_of(self).warn(
                f"nothing here matches {self.searched[:60]!r}" if self.searched else "nothing is here"
            )

    def note(self) -> str:
        """A word at the right end of the lower bar."""
        return ""

    # ---- frame

    def compose(self) -> ComposeResult:
        """Bars around the body."""
        self._upper = TopBar(self.here)
        yield self._upper
        with Down(id="body"):
            yield from self.body()
        yield TextLine(placeholder="filter: words that must be there, !word that must not", id="filter")
        self._lower = KeyBar(self.keys())
        yield self._lower
        yield LinesView(id="small")

    def on_mount(self) -> None:
        """Everything, once."""
        self.is_ready = True
        if self._shown_once:
            self.call_later(self.refresh_all)
        small = self.query_one("#small", LinesView)
        small.can_focus = False
        small.put([(), (("This terminal is too small for the console.", "strong"),),
                   (("At least 60 columns and 16 lines are needed; q quits.", "text"),)])  # fmt: skip

    def on_resize(self, event: events.Resize) -> None:
        """Other parts at other sizes."""
        width, height = event.size
        self.set_class(width < SMALLEST[0] or height < SMALLEST[1], "too-small")
        self.set_class(width >= WIDE, "wide")
        self.set_class(height < 32, "short")
        if self._shown_once:
            self.call_after_refresh(self.refresh_all)
        # After a storm of resizes a partial paint may have come last: paint everything once it is over.
        if self._settle is not None:
            self._settle.stop()
        self._settle = self.set_timer(SETTLE_S, self._settled)

    def _settled(self) -> None:
        self.refresh(repaint=True, layout=True)
        self.repaint()

    def on_screen_resume(self) -> None:
        """Shown again: what happened meanwhile is drawn at once."""
        self._shown_once = True
        self.refresh_all()

    def refresh_all(self) -> None:
        """Draw everything from the present snapshot."""
        if not self.is_ready:
            return
        self.news(console_of(self).state, Changed(everything=True))

    def news(self, state: PoolState, changed: Changed) -> None:
        """From the pump."""
        app = console_of(self)
        if self.has_class("too-small"):
            return
        faded = state.loaded and bool(why_not_now(state, app.now()))
        if faded != self._faded:
            self._faded = faded
            for widget in self.drawn():
                fade = getattr(widget, "fade", None)
                if fade is not None:
                    fade(faded)
        self.show(state, changed)
        self.bars()

    def second(self, state: PoolState) -> None:
        """Once a second, while shown."""
        self.tick(state)
        self.news(state, Changed())
        self.update_figures()

    def update_figures(self) -> None:
        """The upper bar, if what it says has changed."""
        if self._upper is not None:
            self._upper.update_figures()

    def bars(self) -> None:
        """The lower bar: keys that may be used, and a note."""
        if self._lower is not None:  # not yet, where a screen is asked for before it is composed: it draws them then
            self._lower.put(self.keys())
            self._lower.note(self.note())

    def keys(self) -> Sequence[tuple[str, str]]:
        """The keys that matter here, as far as they are allowed."""
        app = console_of(self)
        found = [BY_ID[id] for id in self.footer]
        return [
            (shown_key(app.key_of(action)), action.brief or action.title.lower())
            for action in found
            if permitted(action, role=app.state.role, readonly=app.options.readonly)
        ]

    def drawn(self) -> list[Widget]:
        """Widgets that paint themselves."""
        return [widget for widget in self.query("*") if hasattr(widget, "touch_all")]

    def repaint(self) -> None:
        """Another theme, other signs."""
        for widget in self.query("*"):
            touch: Any = getattr(widget, "touch_all", None)
            if touch is not None:
                touch()
            else:
                widget.refresh()

    # ---- the filter line

    def open_filter(self, text: str | None = None) -> None:
        """Show the line and put the keys there."""
        line = self.query_one("#filter", TextLine)
        if text is not None:
            line.value = text
            self._set_filter(text)
            return
        line.add_class("open")
        line.focus()

    def close_filter(self, *, clear: bool) -> bool:
        """Hide the line; whether there was anything to do."""
        line = self.query_one("#filter", TextLine)
        was = line.has_class("open")
        if clear and line.value:
            line.value = ""
            self._set_filter("")
            was = True
        if not line.value or not clear:
            line.remove_class("open")
        if line.has_focus:
            self.home()
        return was

    def home(self) -> None:
        """Put the keys into the main part."""
        self.focus_next()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list as it is typed."""
        if event.input.id == "filter":
            self._set_filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the list, narrowed."""
        if event.input.id == "filter":
            self.close_filter(clear=False)

    def _set_filter(self, text: str) -> None:
        if text != self.filter_text:
            self.searched = text or self.filter_text
            self.filter_text = text
            self.filtered()
            self.bars()


def loading(state: PoolState) -> list[Line]:
    """Lines for a list that has not come yet."""
    if state.loaded:
        return []
    if state.link.state in ("offline", "refused"):
        return [(), ((f"  {state.link.detail}", "bad"),), ((f"  {state.link.hint}", "dim"),)]
    return [(), (("  loading …", "dim"),)]
