"""What the actions do: ask where danger is, call the pool, say what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from moregpu_tui.actions import Action
from moregpu_tui.commands.access import AccessCommands
from moregpu_tui.commands.everywhere import EverywhereCommands
from moregpu_tui.commands.jobs import JobCommands
from moregpu_tui.commands.workers import WorkerCommands


class Commands(WorkerCommands, JobCommands, AccessCommands, EverywhereCommands):
    """Actions by their id: a screen's own `do_…` first, then ours, `_` and the id."""

    async def do(self, action: Action, argument: str) -> None:
        """Do it."""
        name = "do_" + action.id.replace(".", "_")
        screen = self._app.pool_screen
        own: Any = getattr(screen, name, None)
        if own is not None:
            done = own(argument)
            if isinstance(done, Awaitable):
                await done
            return
        if action.id.startswith("screen."):
            await self._app.switch_mode(action.id.partition(".")[2])
            return
        handler: Callable[[str], Awaitable[None]] | None = getattr(self, "_" + action.id.replace(".", "_"), None)
        if handler is None:
            self._app.warn(f"{action.title}: not here")
            return
        await handler(argument)
