"""Lists, copies, menus, help, undo, ways out: the same on every screen."""

from __future__ import annotations

from typing import Any

import msgspec

from moregpu.errors import MoreGPUError
from moregpu_tui.actions import BY_ID, on_screen
from moregpu_tui.commands.meant import Meant
from moregpu_tui.modals.help import Help
from moregpu_tui.modals.palette import Palette

_LEAVES_TO = {"job": "jobs", "submit": "", "settings": ""}
"""Where the way out of a screen leads; "": to where one came from. Else the digits in a form would lead nowhere."""


class EverywhereCommands(Meant):
    """What is done everywhere."""

    async def _list_filter(self, argument: str) -> None:
        screen = self._app.pool_screen
        if screen is not None:
            screen.open_filter(argument or None)

    async def _copy_id(self, _argument: str) -> None:
        ids = self._under_cursor()
        self._app.copy("\n".join(ids), ids[0] if len(ids) == 1 else f"{len(ids)} ids")

    async def _copy_json(self, _argument: str) -> None:
        state = self._app.state
        found: list[object] = []
        for id in self._under_cursor():
            rows = [*(state.invites or ()), *(state.tokens or ())]
            found.append(
                state.workers.get(id) or state.jobs.get(id) or next((row for row in rows if row.id == id), None)
            )
        text = msgspec.json.format(msgspec.json.encode(found[0] if len(found) == 1 else found), indent=2).decode()
        self._app.copy(text, f"{len(text):,} characters of JSON")

    async def _view_radar(self, _argument: str) -> None:
        screen = self._app.pool_screen
        if screen is not None:
            screen.toggle_class("radar")
            self._app.call_after_refresh(screen.refresh_all)

    async def _view_zoom(self, _argument: str) -> None:
        await self._view_radar("")

    async def _app_menu(self, _argument: str) -> None:
        """What can be done with what is under the cursor."""
        screen = self._app.pool_screen
        if screen is None:
            return
        found = [
            action
            for action in on_screen(screen.here)
            if action.target and self._targets_of(screen, action) and self._may(action)
        ]
        title = ", ".join(self._label(id) for id in self._targets_of(screen, found[0])[:2]) if found else "nothing"
        await self._choose(Palette(f"actions: {title}", found))

    async def _app_palette(self, _argument: str) -> None:
        screen = self._app.pool_screen
        here = on_screen(screen.here) if screen is not None else []
        shown = [action for action in here if not action.widget and self._may(action)]
        await self._choose(Palette("what do you want to do?", shown))

    async def _app_command(self, _argument: str) -> None:
        screen = self._app.pool_screen
        shown = [action for action in BY_ID.values() if not action.widget and self._may(action)]
        here = screen.here if screen is not None else ""
        shown.sort(key=lambda action: bool(action.scope) and here not in action.scope)
        await self._choose(Palette(":", shown, commands=True))

    async def _choose(self, palette: Palette) -> None:
        chosen = await self._app.ask(palette)
        if chosen is not None:
            self._app.act(*chosen)

    async def _app_resync(self, _argument: str) -> None:
        self._app.source.resync()
        link = self._app.state.link
        if link.state in ("offline", "refused"):
            self._app.fail(MoreGPUError(f"trying again; until now: {link.detail}", link.hint))
        else:
            self._app.tell("everything is read anew", timeout=2)

    async def _app_undo(self, _argument: str) -> None:
        if self._undo is None or self._app.now() > self._undo[0]:
            self._app.warn("there is nothing to undo now")
            return
        _, what, undo = self._undo
        self._undo = None
        await undo()
        self._app.tell(f"taken back: {what}")

    async def _app_help(self, _argument: str) -> None:
        screen = self._app.pool_screen
        if screen is not None:
            await self._app.ask(Help(screen.here, self._app.state.role, self._app.options.readonly))

    async def _app_escape(self, _argument: str) -> None:
        self._step_out()

    async def _app_back(self, _argument: str) -> None:
        screen = self._app.pool_screen
        if self._step_out():
            return
        if screen is None or screen.here == "overview":
            self._app.exit(0)
        else:
            self._app.switch_mode("overview")

    async def _app_quit(self, _argument: str) -> None:
        self._app.exit(0)

    async def _app_interrupt(self, _argument: str) -> None:
        self._app.interrupt()

    def _step_out(self) -> bool:
        """One step: filter, marks, detail, radar, zoom; whether there was one."""
        screen = self._app.pool_screen
        if screen is None:
            return False
        if screen.close_filter(clear=True):
            return True
        for table in screen.query("LineTable"):
            clear: Any = getattr(table, "clear_marks", None)
            if clear is not None and clear():
                screen.bars()
                return True
        leave: Any = getattr(screen, "leave_detail", None)
        if leave is not None and leave():
            return True
        for name in ("radar", "log", "proof", "zoomed"):
            if screen.has_class(name):
                screen.remove_class(name)
                screen.home()
                self._app.call_after_refresh(screen.refresh_all)
                return True
        if screen.here in _LEAVES_TO:
            self._app.switch_mode(_LEAVES_TO[screen.here] or self._app.came_from)
            return True
        return False
