"""Widgets that draw their own lines: what they leave to nobody else, what they keep, and where a log stands."""

from __future__ import annotations

import pytest
from textual.geometry import Spacing
from textual.pilot import Pilot

from moregpu.wire.api import Event
from moregpu_tui.actions import SCREENS
from moregpu_tui.app import ConsoleApp
from moregpu_tui.state.events import happened
from moregpu_tui.state.model import LogEntry
from moregpu_tui.widgets.bare import Bare
from moregpu_tui.widgets.drawn import Drawn
from moregpu_tui.widgets.lines_view import LinesView
from moregpu_tui.widgets.log_view import LogView
from tests.tui.stage import Stage, played, press, settled, text_of, until


def entries(count: int, word: str) -> list[LogEntry]:
    return [LogEntry(at=1.0, level="info", source="job", about="", text=f"{word} {number}") for number in range(count)]


@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_that_draws_itself_has_a_border_or_padding_and_no_bare_container_a_ground(screen: str) -> None:
    app = Stage(seconds=5).console()

    async def play(_pilot: Pilot[int]) -> None:
        await press(app, str(SCREENS.index(screen) + 1))
        drawn = [widget for widget in app.screen.query("*") if isinstance(widget, Drawn)]
        assert drawn
        for widget in drawn:
            assert widget.styles.gutter == Spacing(), widget
            assert widget.styles.opacity == 1.0
            assert widget.styles.tint.a == 0
        for widget in app.screen.query("*"):
            if isinstance(widget, Bare):
                assert widget.styles.background.a == 0, widget
                assert widget.styles.border.spacing == Spacing(), widget

    played(app, play)


def test_of_lines_that_are_put_anew_only_those_that_changed_are_built() -> None:
    app = Stage(seconds=5).console()

    async def play(_pilot: Pilot[int]) -> None:
        await press(app, "2")
        panel = app.screen.query_one("#panel", LinesView)
        lines = [((f"line {number}", "text"),) for number in range(10)]
        panel.put(lines)
        await settled(app)
        text_of(app)
        before = [*panel._kept]
        panel.put([*lines[:4], (("another", "text"),), *lines[5:]])
        assert [at for at, (old, new) in enumerate(zip(before, panel._kept, strict=True)) if old is not new] == [4]
        assert "another" in text_of(app)
        assert "line 4" not in text_of(app)

    played(app, play, size=(160, 45))


def test_a_log_that_comes_all_at_once_is_shown_at_its_end_and_goes_on_there() -> None:
    app = Stage(seconds=5).console()

    async def play(pilot: Pilot[int]) -> None:
        async def shown(text: str) -> None:
            await until(pilot, lambda: text in text_of(app), f"{text!r} on the screen")

        await press(app, "6")
        view = app.screen.query_one("#log", LogView)
        for count in (0, 300, 3, 200):
            lines = entries(count, f"of {count}")
            view.put_entries(lines)
            await shown(lines[-1].text if lines else "")
        more = entries(5, "more")
        view.add_entries(more, 150)
        await shown("more 4")
        assert view.count == 150
        for view.wrap in (False, True):  # somebody reads, at the top
            view.put_entries(lines)
            view.follow = False
            view.rebuild()
            await settled(app)
            view.scroll_to(y=20, animate=False, immediate=True)
            await until(pilot, lambda: "of 200 20" in text_of(app).splitlines()[3], "where somebody reads")
            top = text_of(app).splitlines()[3]
            view.add_entries(entries(10, "unread"), 200)  # ten old ones go
            await settled(app)
            assert view.scroll_offset.y == 10
            await until(pilot, lambda top=top: text_of(app).splitlines()[3] == top, "the same line")

    played(app, play)


def test_a_list_without_rows_says_something_else_once_that_is_true() -> None:
    stage = Stage(workers=0, seconds=0)
    stage.pool.jobs.clear()
    stage.pool._pending.clear()
    stage.store.offer(stage.pool._replaced())
    stage.store.take(stage.at)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "1")
        await until(pilot, lambda: "No worker has joined this pool yet" in text_of(app), "what to do first")
        app.offer(happened(Event(type="worker.enrolled", id="w-1", at=stage.at, data={"name": "attic"})))
        await until(pilot, lambda: "No jobs yet" in text_of(app), "what to do next")

    played(app, play)


def test_a_part_that_becomes_shorter_is_never_shown_empty_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Stage(seconds=5).console()
    frames: list[list[str]] = []
    display = ConsoleApp._display

    def shown(self: ConsoleApp, *arguments: object) -> None:
        frames.append(text_of(self).split("\n"))
        display(self, *arguments)  # type: ignore[arg-type]

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "4")
        monkeypatch.setattr(type(app.screen), "_draw", lambda *_: None)  # what it says is put by hand
        facts = app.screen.query_one("#facts", LinesView)
        top = facts.region.y
        for count in (10, 9, 8, 9, 7):
            frames.clear()
            facts.put([((f"line {number} of {count}", "text"),) for number in range(count)])
            facts.styles.height = count + 1
            end = count + 1 + top
            await until(
                pilot,
                lambda end=end: facts.region.bottom == end and bool(frames) and bool(frames[-1][top].strip()),
                f"{count} lines",
            )
            empty = [frame for frame in frames if not any(line.strip() for line in frame[top : top + 6])]
            assert count == 10 or not empty  # the first of them may still be the page that opens

    monkeypatch.setattr(ConsoleApp, "_display", shown)
    played(app, play, size=(80, 24))
