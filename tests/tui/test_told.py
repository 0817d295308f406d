"""What a console says by itself: that it is refused, and why, before somebody presses a key."""

from __future__ import annotations

from textual.pilot import Pilot
from textual.widgets._toast import Toast

from moregpu_tui.state.events import Linked
from moregpu_tui.state.model import Link
from tests.tui.stage import Stage, played, press, until

WHY, NEXT = "the token is not accepted any more", "moregpu token create makes another"


def test_a_console_that_is_refused_says_why_and_what_to_do_once_and_again_when_asked() -> None:
    app = Stage(seconds=5).console()

    async def play(pilot: Pilot[int]) -> None:
        def said() -> list[str]:
            return [str(toast.render()) for toast in app.screen.query(Toast)]

        refused = Link(state="refused", detail=WHY, hint=NEXT, retry_at=app.now() + 30)
        for link in (refused, Link(state="offline", detail=WHY, hint=NEXT), refused):  # each try begins as offline
            app.offer(Linked(link=link))
            await until(pilot, lambda link=link: app.state.link.state == link.state, "the link")
        await until(pilot, lambda: bool(said()), "what is said")
        assert len(said()) == 1
        assert WHY in said()[0]
        assert NEXT in said()[0]
        app.clear_notifications()
        await until(pilot, lambda: not said(), "nothing said")
        await press(app, "R")
        await until(pilot, lambda: bool(said()), "what is said")
        assert WHY in said()[0]
        assert "read anew" not in said()[0]

    played(app, play, toasts=True)
