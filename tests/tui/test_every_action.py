"""Every key on every screen, in every role: something sensible happens, and nothing breaks."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from moregpu_tui.actions import ACTIONS, SCREENS, Action, on_screen
from moregpu_tui.app import ConsoleApp
from moregpu_tui.feed.demo import SimulatedPool
from moregpu_tui.options import Options
from tests.tui.stage import Stage, played, press, settled, until

LEAVES = {"app.quit", "app.back", "app.interrupt"}


class Watched:
    """Which calls that change something reached the pool."""

    def __init__(self, pool: SimulatedPool) -> None:
        self.calls: list[str] = []
        for name in ("change_worker", "revoke_worker", "invite", "withdraw_invite", "create_token", "revoke_token",
                     "submit", "cancel", "retry", "purge"):  # fmt: skip
            setattr(pool, name, self._counted(name, getattr(pool, name)))

    def _counted(self, name: str, real: object) -> object:
        async def call(*arguments: object, **named: object) -> object:
            self.calls.append(name)
            return await real(*arguments, **named)  # type: ignore[operator]

        return call


async def press_all(app: ConsoleApp, screen: str, actions: list[Action]) -> None:
    for action in actions:
        if action.id in LEAVES or action.widget:
            continue
        if app.current_mode != screen:
            app.switch_mode(screen)
            await settled(app)
        if screen in ("submit", "settings"):
            app.set_focus(None)
        await press(app, action.key.split(",")[0])
        for _ in range(4):
            if len(app.screen_stack) == 1:
                break
            await press(app, "escape")
        assert len(app.screen_stack) == 1, f"{action.id} on {screen} cannot be left"
        await press(app, "escape")


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
def test_an_admin_can_press_every_key(screen: str) -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(_pilot: Pilot[int]) -> None:
        own = [action for action in on_screen(screen) if action.scope or screen == "overview"]
        await press_all(app, screen, own)

    played(app, play)


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("who", ["viewer", "submitter", "readonly"])
def test_without_the_right_no_key_reaches_the_pool(screen: str, who: str) -> None:
    stage = Stage(seconds=5, role="admin" if who == "readonly" else who)
    watched = Watched(stage.pool)

    app = stage.console(Options(demo=True, readonly=who == "readonly"))

    async def play(_pilot: Pilot[int]) -> None:
        await press_all(app, screen, [action for action in ACTIONS if action.changes])

    played(app, play)
    assert set(watched.calls) <= ({"submit", "retry"} if who == "submitter" else set())


def test_pause_and_undo() -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "2")
        await settled(app)
        worker = app.pool_screen.targets("worker")[0]  # type: ignore[union-attr]
        await press(app, "p")
        await until(pilot, lambda: app.state.workers[worker].look == "paused", "the pause")
        await press(app, "u")
        await until(pilot, lambda: app.state.workers[worker].look != "paused", "the undo")

    played(app, play)


def test_an_action_takes_all_that_is_marked() -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "2")
        await settled(app)
        await press(app, "space", "space", "space", "p")
        await until(pilot, lambda: sum(w.look == "paused" for w in app.state.workers.values()) >= 3, "three pauses")
        await press(app, "escape")
        assert app.pool_screen.targets("worker") == [app.pool_screen.query_one("#table").current]  # type: ignore

    played(app, play)


def test_revoking_takes_the_id_and_nothing_less() -> None:
    stage = Stage(seconds=5)
    app = stage.console()
    watched = Watched(stage.pool)

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "2")
        await settled(app)
        worker = app.pool_screen.targets("worker")[0]  # type: ignore[union-attr]
        await press(app, "X")
        await until(pilot, lambda: len(app.screen_stack) == 2, "the question")
        await press(app, "y", "e", "s", "enter")
        await settled(app)
        assert watched.calls == []
        assert len(app.screen_stack) == 2
        await press(app, *("minus" if letter == "-" else letter for letter in worker[:10]), "enter")
        await until(pilot, lambda: app.state.workers[worker].revoked, "the revocation")

    played(app, play)
    assert watched.calls == ["revoke_worker"]


def test_cancelling_asks_and_the_keys_are_on_no() -> None:
    stage = Stage(seconds=5)
    app = stage.console()
    watched = Watched(stage.pool)

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "3")
        await settled(app)
        await press(app, "X")
        await until(pilot, lambda: len(app.screen_stack) == 2, "the question")
        await press(app, "enter")
        await until(pilot, lambda: len(app.screen_stack) == 1, "no")
        assert watched.calls == []
        await press(app, "X")
        await until(pilot, lambda: len(app.screen_stack) == 2, "the question")
        await press(app, "y")
        await until(pilot, lambda: watched.calls == ["cancel"], "yes")

    played(app, play)


def test_offline_keys_say_why_they_cannot_and_what_was_typed_stays() -> None:
    stage = Stage(seconds=5)
    app = stage.console()
    watched = Watched(stage.pool)

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "5")
        await settled(app)
        app.set_focus(app.pool_screen.query("Line")[0])  # type: ignore[union-attr]
        await press(app, "7", "7")
        typed = app.pool_screen.query_one("Form").typed()  # type: ignore[union-attr]
        stage.at += 30.0
        app.second()
        await press(app, "f10")
        await settled(app)
        assert watched.calls == []
        await press(app, "escape")
        app.switch_mode("overview")
        await settled(app)
        app.switch_mode("submit")
        await settled(app)
        assert app.pool_screen.query_one("Form").typed() == typed  # type: ignore[union-attr]

    played(app, play)


def test_a_command_line_takes_an_argument() -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "2")
        await settled(app)
        worker = app.pool_screen.targets("worker")[0]  # type: ignore[union-attr]
        await press(app, "colon")
        await until(pilot, lambda: len(app.screen_stack) == 2, "the line")
        await press(app, *"ceiling", "space", *"40", "enter")
        await until(pilot, lambda: app.state.workers[worker].ceiling == 0.4, "the ceiling")

    played(app, play)


def test_a_filter_narrows_escape_clears_and_the_cursor_stays() -> None:
    stage = Stage(workers=30, seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "2")
        await settled(app)
        table = app.pool_screen.query_one("#table")  # type: ignore[union-attr]
        await press(app, "slash", *"emil", "enter")
        await settled(app)
        rows = [app.state.workers[id].name for id in table.rows]  # type: ignore[attr-defined]
        assert rows
        assert all("emil" in name for name in rows)
        await press(app, "j")
        chosen = table.current  # type: ignore[attr-defined]
        await press(app, "escape")
        await settled(app)
        assert len(table.rows) == 30  # type: ignore[attr-defined]
        assert table.current == chosen  # type: ignore[attr-defined]

    played(app, play)
