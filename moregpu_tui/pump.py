"""The pump: news from a source into the store, and from there to the screen that is shown, five times a second."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from textual import events
from textual.geometry import Size
from textual.screen import Screen

from moregpu_tui.feed.replay import Recorder
from moregpu_tui.feed.source import Source
from moregpu_tui.feed.still import Waiting
from moregpu_tui.screens.base import PoolScreen
from moregpu_tui.state.events import Input
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.store import Store
from moregpu_tui.typeahead import TypeAhead


class Pumped(TypeAhead):
    """An application over one source of news."""

    def __init__(
        self,
        source: Source | None,
        *,
        record: str = "",
        ansi_color: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(ansi_color=ansi_color)
        self.source: Source = source or Waiting()
        self.store = Store()
        self._clock, self._wall = clock, wall
        self._record = record
        self._recorder: Recorder | None = None
        self._pumping = False
        self._feeding: asyncio.Task[None] | None = None

    @property
    def state(self) -> PoolState:
        """The present snapshot."""
        return self.store.state

    def now(self) -> float:
        """Our own clock: monotonic seconds."""
        return self._clock()

    def wall(self) -> float:
        """UTC epoch seconds."""
        return self._wall()

    @property
    def pool_screen(self) -> PoolScreen | None:
        """The screen that is shown, also under a dialog; none while everything is taken down."""
        stack = self.screen_stack if self.is_running else []
        bottom: Screen[object] | None = stack[0] if stack else None
        return bottom if isinstance(bottom, PoolScreen) and bottom.is_ready else None

    @property
    def is_pumping(self) -> bool:
        """Whether news waits to be drawn."""
        return self._pumping

    def start_pump(self) -> None:
        """Look once a second, also when nothing comes; record what comes where that was asked for."""
        self.set_interval(1.0, self.second)
        if self._record:
            self._recorder = Recorder(Path(self._record))

    def feed_from(self, source: Source) -> None:
        """Show another pool from now on."""
        if self._feeding is not None:
            self._feeding.cancel()
            self.store = Store()
        self.source = source
        offer = self._recorder.wrap(self.offer) if self._recorder is not None else self.offer
        self._feeding = asyncio.create_task(source.run(offer), name="feed")
        self._feeding.add_done_callback(self._feed_ended)

    async def stop_pump(self) -> None:
        """Let the connections go."""
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)
        await self.source.close()
        if self._recorder is not None:
            self._recorder.close()

    def offer(self, *inputs: Input) -> None:
        """Take in news; the next batch is drawn when it is due."""
        self.store.offer(*inputs)
        if not self._pumping:
            wait_s = self.store.due_in(self.now())
            if wait_s is not None:
                self._pumping = True
                self.set_timer(max(wait_s, 0.01), self._pump)

    def second(self) -> None:
        """A second passed: ages, graphs, and a size that was missed."""
        self._heal_size()
        self.store.sample(self.now())
        screen = self.pool_screen
        if screen is not None:
            screen.second(self.state)

    def _pump(self) -> None:
        self._pumping = False
        changed = self.store.take(self.now())
        if changed.link:
            self.tell_link()
        screen = self.pool_screen
        if changed and screen is not None:
            screen.news(self.state, changed)
            if changed.about or changed.link or changed.everything:
                screen.update_figures()
        self.offer()

    def tell_link(self) -> None:
        """The connection is another: say so where that is needed."""

    def _feed_ended(self, task: asyncio.Task[None]) -> None:
        """A feed never ends by itself: what it raised is a bug, and is shown as one."""
        if not task.cancelled() and task.exception() is not None:
            self._handle_exception(task.exception())  # pyright: ignore[reportArgumentType]

    def _heal_size(self) -> None:
        """Of resizes that come in a storm Textual loses one now and then (seen under tmux): look once a second."""
        if self.is_headless or sys.__stdout__ is None:
            return
        try:
            size = Size(*os.get_terminal_size(sys.__stdout__.fileno()))
        except OSError:
            return
        if size != self.size:
            self.post_message(events.Resize(size, size))
        elif self.screen.size != size:
            self.screen.post_message(events.Resize(size, size))
