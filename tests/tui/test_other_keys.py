"""Keys that the settings moved are those that the console names, and no key is named to whom it is not given."""

from __future__ import annotations

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets._toast import Toast

from moregpu.errors import InvalidRequest
from moregpu_tui.keymap import checked, usable
from moregpu_tui.modals.help import Help
from moregpu_tui.modals.palette import Palette
from moregpu_tui.options import Settings
from moregpu_tui.state.store import Store
from tests.tui.stage import Stage, played, press, settled, text_of, until

MOVED = {"worker.pause": "F5", "app.undo": "^Z", "job.new": "b", "invite.new": "B", "job.verify": "V"}


def test_help_lists_and_messages_name_the_keys_that_the_settings_moved() -> None:
    stage = Stage(seconds=5)
    app = stage.console(settings=Settings(glyphs="unicode", zone="utc", motion="none", keys=checked(MOVED)))

    async def play(pilot: Pilot[int]) -> None:
        async def shown(text: str) -> None:
            await until(pilot, lambda: text in " ".join(text_of(app).split()), text)

        await press(app, "2", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, Help), "help")
        await shown("F5 Pause or resume")
        await press(app, "escape", "x")
        await until(pilot, lambda: isinstance(app.screen, Palette), "the menu")
        await shown("F5 Pause or resume")
        await press(app, "escape", "d")
        await shown("F5 resumes later")
        await press(app, "escape", "f5")
        await until(
            pilot, lambda: any("^Z takes it back" in str(toast.render()) for toast in app.screen.query(Toast)), "^Z"
        )
        await press(app, "4")
        await shown("press V to fetch")

    played(app, play, size=(160, 45), toasts=True)


def test_a_saved_key_that_is_none_is_left_out_and_the_console_starts() -> None:
    saved = {"pool.refresh": "meta+u", "nobody.does": "k"}
    with pytest.raises(InvalidRequest):
        checked(saved)
    assert usable(saved) == {}
    assert usable({}) == {}


@pytest.mark.parametrize(("role", "named"), [("admin", True), ("viewer", False)])
def test_an_empty_pool_names_the_next_key_to_whom_it_is_given(role: str, named: bool) -> None:
    stage = Stage(seconds=5, role=role)
    empty = msgspec.structs.replace(stage.store.state, workers={}, jobs={}, invites=(), details={})
    stage.store = Store(empty)
    app = stage.console()

    async def play(_pilot: Pilot[int]) -> None:
        for screen, text in (("1", "creates an invite"), ("2", "for an invite"), ("3", "runs a sample job"),
                             ("4", "makes one")):  # fmt: skip
            await press(app, screen)
            await settled(app)
            assert (text in text_of(app)) == named, screen

    played(app, play)
