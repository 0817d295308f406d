"""No pool is known here: start one, connect to one, or look at a simulated one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen

from moregpu.errors import MoreGPUError
from moregpu.wire.text import clean
from moregpu_tui.modals.dialog import Ask
from moregpu_tui.present.cells import Column, Line
from moregpu_tui.widgets.bars import KeyBar, Title
from moregpu_tui.widgets.drawn import console_of
from moregpu_tui.widgets.line_table import LineTable
from moregpu_tui.widgets.lines_view import LinesView

CHOICES: dict[str, tuple[str, str]] = {
    "start": ("Start a pool on this machine", "it goes on when this console is closed"),
    "connect": ("Connect to a pool", "by a line that moregpu token create made"),
    "demo": ("Look at a demo pool", "simulated; nothing leaves this console"),
}


class FirstRun(Screen[None]):
    """Three ways in."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "choose('start')", show=False),
        Binding("2", "choose('connect')", show=False),
        Binding("3", "choose('demo')", show=False),
        Binding("q,escape", "app.quit", show=False),
    ]

    def compose(self) -> ComposeResult:
        """A short list."""
        with Vertical(id="welcome"):
            yield Title("MoreGPU")
            yield LinesView(id="hello")
            yield LineTable(
                (
                    Column(key="number", title="", width=1),
                    Column(key="what", title="", width=28),
                    Column(key="how", title="", width=20, grow=1, rank=1),
                ),
                self._cell,
                id="choices",
                head=False,
            )
            yield LinesView(id="said")
        yield KeyBar((("Enter", "choose"), ("1 2 3", "at once"), ("q", "quit")))

    def on_mount(self) -> None:
        """Keys into the list."""
        hello = self.query_one("#hello", LinesView)
        hello.can_focus = False
        self.query_one("#said").can_focus = False
        hello.put([(), (("Idle GPUs and CPUs become one private pool.", "strong"),),
                   (("No pool is set up on this machine yet. What would you like to do?", "text"),), ()])  # fmt: skip
        table = self.query_one(LineTable)
        table.show([*CHOICES])
        table.focus()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        """Enter."""
        self.action_choose(event.row)

    def action_choose(self, choice: str) -> None:
        """Do it."""
        self.run_worker(self._do(choice), exclusive=True)

    async def _do(self, choice: str) -> None:
        app = console_of(self)
        try:
            if choice == "demo":
                from moregpu_tui.feed.demo import SimulatedPool

                app.feed_from(SimulatedPool())
            elif choice == "start":
                self._say([(("starting a coordinator on this machine …", "text"),)])
                from moregpu_tui.start import start_pool

                said, access = await start_pool()
                self._enter(said, access)
            else:
                from moregpu_tui.start import join_as_client

                line = await app.ask(
                    Ask(
                        "connect to a pool",
                        [(("Paste its MGPUC1- line; it is kept as a secret.", "dim"),)],
                        secret=True,
                    )
                )
                if not line:
                    return
                self._say([(("connecting …", "text"),)])
                said, access = await join_as_client(line)
                self._enter(said, access)
            app.switch_mode("overview")
        except MoreGPUError as error:
            self._say([((clean(error.detail), "bad"),), ((clean(error.hint), "dim"),)])

    def _enter(self, said: str, access: object) -> None:
        from moregpu.client.access import Access
        from moregpu_tui.feed.live import LivePool

        app = console_of(self)
        if isinstance(access, Access):
            app.feed_from(LivePool(access))
            app.tell(said, timeout=12)

    def _say(self, lines: list[Line]) -> None:
        self.query_one("#said", LinesView).put([(), *lines])

    def _cell(self, row: str, column: str) -> Line:
        what, how = CHOICES[row]
        match column:
            case "number":
                return ((str([*CHOICES].index(row) + 1), "key"),)
            case "what":
                return ((what, "strong"),)
            case _:
                return ((how, "dim"),)
