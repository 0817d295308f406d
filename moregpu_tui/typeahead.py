"""Keys that are typed faster than the console moves: they wait for the screen or the dialog that they are meant for.

A key travels from widget to widget; a screen is built, a dialog opens and a line gets the keys some milliseconds after
the key that asked for it. Over a slow link, or on a busy machine, a person is faster than that: without this, `/emil`
could approve (`a`) or drain (`d`) a worker of the screen before.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from textual import events
from textual.app import App
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

T = TypeVar("T")

LONGEST_S = 1.0
"""What takes longer than this on its way over a network holds no keys, nor does a widget that is gone."""

LONGEST_HERE_S = 10.0
"""What this console does by itself holds them for so long: on a machine that is busy, it is not there in a second."""


class TypeAhead(App[int]):
    """One key at a time. `hold` keeps those that follow until `let_go`, or until a dialog that `ask` opens is there."""

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._waiting_keys: list[events.Key | events.Paste] = []
        self._travelling: events.Key | events.Paste | None = None
        self._target: Widget | Screen[object] | None = None
        self._holding = False
        self._hold_until = 0.0
        self._too_long: Timer | None = None

    def hold(self, longest_s: float = LONGEST_HERE_S) -> None:
        """What the last key asked for is on its way: those that follow are meant for it."""
        self._holding = True
        self._hold_until = asyncio.get_running_loop().time() + longest_s
        self._limit()

    def let_go(self) -> None:
        """It is there. What moves the focus comes before the keys that waited."""
        self.call_later(self._there)

    @property
    def is_holding(self) -> bool:
        """Whether keys wait, or one is under way."""
        return self._holding or self._travelling is not None or bool(self._waiting_keys)

    async def ask(self, screen: Screen[T]) -> T:
        """Open a dialog and wait for its answer."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answered(result: T | None) -> None:
            if not answer.done():
                answer.set_result(result)  # pyright: ignore[reportArgumentType] — None is one of the answers

        await self.push_screen(screen, answered)
        self.let_go()
        return await answer

    async def on_event(self, event: events.Event) -> None:
        """Keys wait their turn; everything else passes."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif self.is_holding:
            self._waiting_keys.append(event)
            self._limit()
        else:
            await self._send(event)

    async def _send(self, event: events.Key | events.Paste) -> None:
        self._travelling = event
        target = self._target = self.focused or self.screen
        await super().on_event(event)
        if isinstance(event, events.Key) and event.is_forwarded:
            target.call_later(self._passed, event)  # comes back to us, unless a widget keeps it
        elif event.is_forwarded:
            target.call_later(self._arrived, event)
        else:
            self._arrived(event)

    def _passed(self, event: events.Key) -> None:
        if event._stop_propagation:  # pyright: ignore[reportPrivateUsage] — nothing public says it
            self._arrived(event)

    async def _on_key(self, event: events.Key) -> None:
        # Textual calls this handler of every base as well: the bindings run after this one, in App's.
        self.call_later(self._arrived, event)

    def _arrived(self, event: events.Key | events.Paste) -> None:
        if event is self._travelling:
            self._travelling = None
            if self._waiting_keys and not self._holding:
                self.call_later(self._there)

    async def _there(self) -> None:
        self._holding = False
        if self._travelling is None and self._waiting_keys:
            await self._send(self._waiting_keys.pop(0))
        if not self.is_holding and self._too_long is not None:
            self._too_long.stop()
            self._too_long = None

    def _is_under_way(self) -> bool:
        """Whether the key may still be in somebody's queue."""
        target = self._target
        if target is None or not target.is_attached:
            return False
        return any(node.message_queue_size for node in (*target.ancestors_with_self, self))

    def _limit(self) -> None:
        if self._too_long is None:
            self._too_long = self.set_timer(LONGEST_S, self._give_up)

    async def _give_up(self) -> None:
        """A widget took a key into its grave, or what was asked for takes long. Neither is so while it only waits."""
        self._too_long = None
        holds = self._holding and asyncio.get_running_loop().time() < self._hold_until
        if holds or (self._travelling is not None and self._is_under_way()):
            self._limit()
            return
        self._travelling = None
        await self._there()
        if self.is_holding:
            self._limit()
