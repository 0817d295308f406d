"""The smallest screen: all that is asked can be read, and nothing stands on it; what a key acts on is seen."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets._toast import Toast

from moregpu_tui.modals.dialog import Dialog
from moregpu_tui.modals.made import Made
from moregpu_tui.present.cells import Line, flowed, width_of
from moregpu_tui.widgets.line_table import LineTable
from tests.tui.stage import Stage, played, press, settled, text_of, until

SMALLEST = (60, 16)


def words_of(shown: str) -> str:
    return " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("2d", "finishes 1 task and gets nothing more. p resumes later."),
        ("2X", "That cannot be taken back: it joins again only with a new key and a new invite."),
        ("2t", "Percent of a device that all programs together may reach, 5 to 100."),
        (
            "7K",
            "workers learn it when they next connect. 14 workers will use it. Give them a day, then K again finishes.",
        ),
    ],
)
def test_all_that_a_dialog_asks_can_be_read_on_the_smallest_screen(keys: str, said: str) -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, *keys)
        await until(pilot, lambda: isinstance(app.screen, Dialog), "a dialog")
        await until(pilot, lambda: said in words_of(text_of(app)), said)
        assert "…" not in "".join(line for line in text_of(app).split("\n") if line.startswith("│"))

    played(app, play, size=SMALLEST)


def test_the_line_of_an_invite_is_whole_on_the_smallest_screen_and_a_code_that_does_not_fit_says_so() -> None:
    app = Stage(seconds=5).console()
    secret = "MGPU1-" + "".join(f"{number:04}" for number in range(60))

    async def play(pilot: Pilot[int]) -> None:
        app.push_screen(Made("invite", secret, [(("It is a secret.", "text"),)]))
        await until(pilot, lambda: secret in "".join(words_of(text_of(app)).split()), "the whole line")
        await pilot.resize_terminal(48, 60)
        await press(app, "o")
        await until(pilot, lambda: "the code needs" in words_of(text_of(app)), "what is lacking")
        assert "columns of screen; there are 48" in words_of(text_of(app))

    played(app, play, size=SMALLEST)


def test_what_was_said_before_a_dialog_waits_under_it_and_what_is_said_in_it_is_shown() -> None:
    app = Stage(seconds=5).console()

    def toasts() -> list[str]:
        return [str(toast.render()) for toast in app.screen.query(Toast)]

    async def play(pilot: Pilot[int]) -> None:
        app.tell("said before", timeout=60)
        await until(pilot, lambda: toasts() == ["said before"], "what is said")
        await press(app, "2", "d")
        await until(pilot, lambda: isinstance(app.screen, Dialog), "a dialog")
        app.tell("said in it", timeout=60)
        await until(pilot, lambda: "said in it" in toasts(), "what is said in a dialog")
        await settled(app)
        assert toasts() == ["said in it"]
        await press(app, "escape")
        await until(pilot, lambda: toasts() == ["said before", "said in it"], "both")

    played(app, play, toasts=True)


def test_a_line_that_goes_on_in_the_next_keeps_its_words_and_their_tones() -> None:
    line: Line = (("Type ", "text"), ("日本語のとても長い名前", "strong"), (" and Enter.", "text"))
    lines = flowed(line, 12)
    assert all(width_of("".join(text for text, _ in one)) <= 12 for one in lines)
    whole = "".join(text for one in lines for text, _ in one)
    assert whole.replace(" ", "") == "Type日本語のとても長い名前andEnter."
    assert "".join(text for one in lines for text, tone in one if tone == "strong") == "日本語のとても長い名前"
    assert flowed(line, 80) == [line]


def test_the_row_that_a_key_would_act_on_is_seen_on_the_smallest_screen() -> None:
    app = Stage(seconds=5).console()

    async def play(_pilot: Pilot[int]) -> None:
        for screen in "1237":
            await press(app, screen)
            for _ in range(3):
                table = app.focused
                if isinstance(table, LineTable) and table.rows:
                    first = table.region.y + table._head
                    assert first < table.region.bottom, f"a row of {table.id} on {screen}"
                    assert text_of(app).split("\n")[first].startswith(" ▌")
                await press(app, "tab")

    played(app, play, size=SMALLEST)
