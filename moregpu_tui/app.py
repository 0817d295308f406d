"""The console: its screens, its actions, its looks; what is the same everywhere."""

from __future__ import annotations

import asyncio
import locale
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec
from textual import events
from textual.binding import Binding, BindingType

from moregpu.errors import MoreGPUError, NotConfigured
from moregpu.platform.memory import settle
from moregpu_tui.actions import ACTIONS, BY_ID, Action, moves, permitted, refusal
from moregpu_tui.commands import Commands
from moregpu_tui.feed.choose import choose_source
from moregpu_tui.feed.source import Source
from moregpu_tui.keymap import usable
from moregpu_tui.leaving import end_when_told, end_with_the_terminal
from moregpu_tui.mishap import written_down
from moregpu_tui.options import Options, Settings, load_settings, save_settings
from moregpu_tui.present.glyphs import glyphs
from moregpu_tui.present.manner import Manner
from moregpu_tui.present.time import zone_of
from moregpu_tui.present.tones import palette
from moregpu_tui.screens.access import Access
from moregpu_tui.screens.base import PoolScreen
from moregpu_tui.screens.events import Events
from moregpu_tui.screens.first_run import FirstRun
from moregpu_tui.screens.job import JobPage
from moregpu_tui.screens.jobs import Jobs
from moregpu_tui.screens.overview import Overview
from moregpu_tui.screens.settings import SettingsPage
from moregpu_tui.screens.submit import SubmitForm
from moregpu_tui.screens.workers import Workers
from moregpu_tui.state.selectors import why_not_now
from moregpu_tui.theme import PREFIX, themes
from moregpu_tui.told import Told
from moregpu_tui.typeahead import LONGEST_HERE_S, LONGEST_S
from moregpu_tui.widgets.bars import TABS
from moregpu_tui.widgets.paint import Paint

AGAIN_S = 2.0
"""A second ctrl+c within so long quits."""

PACE_FULL, PACE_CALM = 2.0, 1.0


def run_console(options: Options) -> int:
    """Run until quit; the exit status."""
    settings = load_settings()
    settings = msgspec.structs.replace(settings, keys=usable(settings.keys))
    source: Source | None
    try:
        source = choose_source(options)
    except NotConfigured:
        if options.connect or options.profile:
            raise
        source = None
    app = ConsoleApp(options, settings, source)
    settle()
    end_with_the_terminal()
    status = app.run(mouse=options.mouse)
    if app.mishap is not None:
        raise written_down(app.mishap)
    return status if status is not None else app.return_code or 0


class ConsoleApp(Told):
    """One pool in one terminal."""

    # All at once: a sheet that comes with a screen would be parsed, and everything laid out anew, at its first show.
    CSS_PATH: ClassVar = [
        Path(__file__).parent / name
        for name in (
            "app.tcss",
            "screens/base.tcss",
            *(f"screens/{name}.tcss" for name in (*TABS, "first_run")),
            "modals/modals.tcss",
        )
    ]
    TITLE = "MoreGPU"
    ENABLE_COMMAND_PALETTE = False
    MODES: ClassVar = {
        "overview": Overview,
        "workers": Workers,
        "jobs": Jobs,
        "job": JobPage,
        "submit": SubmitForm,
        "events": Events,
        "access": Access,
        "settings": SettingsPage,
        "first": FirstRun,
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            action.key,
            f"app.act('{action.id}')",
            show=False,
            id=action.id,
            priority=action.id in ("app.interrupt", "app.quit", "app.palette"),
        )
        for action in ACTIONS
        if not action.scope and not action.widget
    ]

    def __init__(
        self,
        options: Options,
        settings: Settings,
        source: Source | None,
        *,
        environment: dict[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        environment = dict(os.environ) if environment is None else environment
        no_color = "NO_COLOR" in environment
        super().__init__(source, record=options.record, ansi_color=True if no_color else None, clock=clock, wall=wall)
        self.options = options
        self.settings = settings
        self.commands = Commands(self)
        self._environment = environment
        self._mono = no_color
        self._first_run = source is None
        self._focused = True
        self._interrupted_at = float("-inf")
        self._own_ends: Callable[[], None] = lambda: None
        self.manner = self._manner()
        self.paint = Paint(palette("mono" if no_color else settings.theme), self.manner.glyphs)
        for theme in themes():
            self.register_theme(theme)
        self.theme = PREFIX + self.paint.palette.name

    # ---- what widgets ask

    @property
    def source_kind(self) -> str:
        """`demo`, `replay`, or "" for a real pool."""
        return self.source.kind

    def key_of(self, action: Action) -> str:
        """An action's key, with the settings' own."""
        return self.settings.keys.get(action.id, action.key)

    def radar_pace(self) -> float:
        """Steps a second of the radar's beam."""
        if self.settings.motion == "none" or why_not_now(self.state, self.now()):
            return 0.0
        if self.settings.motion == "auto" and (not self._focused or "SSH_CONNECTION" in self._environment):
            return PACE_CALM
        return PACE_FULL

    def copy(self, text: str, what: str) -> None:
        """Into the clipboard of the terminal (OSC 52); says what."""
        self.copy_to_clipboard(text)
        self.tell(f"copied {what}")

    # ---- life

    def on_mount(self) -> None:
        """Start the feed."""
        self._own_ends = end_when_told(asyncio.get_running_loop(), self._ended_by)
        if self.settings.keys:
            self.set_keymap(self.settings.keys)
        self.start_pump()
        if self._first_run:
            self.switch_mode("first")
        else:
            self.feed_from(self.source)

    async def on_unmount(self) -> None:
        """Let the connections go."""
        await self.stop_pump()
        self._own_ends()

    @property
    def mishap(self) -> BaseException | None:
        """The mistake of the console's own that ended it."""
        return self._exception

    def _fatal_error(self) -> None:
        # Textual would print the whole traceback with its locals: secrets, and what strangers wrote. The log has it.
        self._close_messages_no_wait()

    def _ended_by(self, number: int) -> None:
        self.exit(return_code=128 + number, result=128 + number)

    # ---- actions

    def act(self, id: str, argument: str = "") -> None:
        """Do an action, unless it may not be done: then say why."""
        action = BY_ID[id]
        why = refusal(
            action,
            role=self.state.role,
            readonly=self.options.readonly,
            not_now=why_not_now(self.state, self.now()),
        )
        if why:
            self.warn(why)
            return
        if moves(action):
            self.hold(LONGEST_S if action.id == "form.submit" else LONGEST_HERE_S)  # that alone waits for a network
        self.run_worker(self._do(action, argument), group="action", exit_on_error=True)

    def action_act(self, id: str) -> None:
        """A key."""
        self.act(id)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that a role or --readonly takes away are not there; nor does a screen's key work through a dialog."""
        if action != "act" or not parameters:
            return super().check_action(action, parameters)
        found = BY_ID[str(parameters[0])]
        if isinstance(self.screen, FirstRun):
            return found.id in ("app.quit", "app.interrupt", "app.help")
        if not isinstance(self.screen, PoolScreen):
            return found.id in ("app.quit", "app.interrupt")
        return permitted(found, role=self.state.role, readonly=self.options.readonly)

    async def _do(self, action: Action, argument: str) -> None:
        try:
            await self.commands.do(action, argument)
        except MoreGPUError as error:
            self.fail(error)
        finally:
            self.let_go()

    def interrupt(self) -> None:
        """ctrl+c: copy what is selected; else twice quits."""
        selected = self.screen.get_selected_text() or getattr(self.focused, "selected_text", "")
        if selected:
            self.copy(selected, "the selection")
        elif self.now() - self._interrupted_at < AGAIN_S:
            self.exit(0)
        else:
            self._interrupted_at = self.now()
            self.warn("ctrl+c once more quits; the pool goes on without the console")

    # ---- looks

    def use_settings(self, settings: Settings) -> None:
        """Wear other settings, and keep them."""
        before, self.settings = self.settings, settings
        self.manner = self._manner()
        self.paint = Paint(palette("mono" if self._mono else settings.theme), self.manner.glyphs)
        self.theme = PREFIX + self.paint.palette.name
        if settings.keys != before.keys:
            self.set_keymap(settings.keys)
        for stack in self._screen_stacks.values():
            for screen in stack:
                if isinstance(screen, PoolScreen) and screen.is_ready:
                    screen.repaint()
        try:
            save_settings(settings)
        except OSError as error:
            self.warn(f"the settings cannot be kept: {error.strerror or error}")

    def on_app_focus(self, _event: events.AppFocus) -> None:
        """The terminal has the focus."""
        self._focused = True

    def on_app_blur(self, _event: events.AppBlur) -> None:
        """It has not: the radar slows down."""
        self._focused = False

    def _manner(self) -> Manner:
        wish = "ascii" if self.options.ascii else self.settings.glyphs
        return Manner(
            glyphs=glyphs(wish, self._environment, locale.getpreferredencoding(False)),
            zone=zone_of(self.settings.zone),
            keys=tuple(self.settings.keys.items()),
        )
