"""A pool that stands still, and consoles over it: the fixture of every test that looks at a screen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache

from textual import events
from textual.pilot import Pilot

from moregpu_tui.app import ConsoleApp
from moregpu_tui.feed.demo import STEP_S, SimulatedPool
from moregpu_tui.feed.source import Offer
from moregpu_tui.options import Options, Settings
from moregpu_tui.state.model import PoolState
from moregpu_tui.state.store import Store

START = 1_790_000_000.0


class FrozenPool(SimulatedPool):
    """Answers calls, but nothing happens by itself."""

    async def run(self, offer: Offer) -> None:
        self.offer = offer
        while True:  # what calls brought about is told; nothing else happens
            told, self._pending = self._pending, []
            if told:
                offer(*told)
            await asyncio.sleep(0.01)


class Stage:
    """A frozen pool, the state it led to, and the moment at which it stands."""

    def __init__(self, workers: int = 14, *, seconds: float = 60.0, role: str = "admin", seed: int = 7) -> None:
        self.at = START
        self.pool = FrozenPool(workers, seed=seed, role=role, wall=self.now, clock=self.now)
        self.store = Store()
        self.store.offer(*self.pool.opening())
        self.store.take(self.at)
        for _ in range(round(seconds / STEP_S)):
            self.at += STEP_S
            self.store.offer(*self.pool.step())
            self.store.take(self.at)
            self.store.sample(self.at)

    def now(self) -> float:
        return self.at

    def console(self, options: Options | None = None, settings: Settings | None = None, **named: object) -> ConsoleApp:
        """A console that shows it; it takes no part in the environment's own choices."""
        environment = {"TERM": "xterm-256color", **named.pop("environment", {})}  # type: ignore[dict-item]
        app = ConsoleApp(
            options or Options(demo=True),
            settings or Settings(glyphs="unicode", zone="utc", motion="none"),
            self.pool,
            environment=environment,
            clock=self.now,
            wall=self.now,
        )
        app.store = self.store
        return app


@cache
def settled_state(workers: int = 14, seconds: float = 60.0) -> PoolState:
    """What a console knows after a while; shared, since nobody can change it."""
    return Stage(workers, seconds=seconds).store.state


def played(
    app: ConsoleApp,
    play: Callable[[Pilot[int]], Awaitable[None]],
    size: tuple[int, int] = (120, 40),
    *,
    toasts: bool = False,
) -> ConsoleApp:
    """Run a console without a terminal, and play on it; what is said in passing is shown where `toasts` are wanted."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=toasts) as pilot:
            await pilot.pause()
            await play(pilot)

    asyncio.run(run())
    return app


async def until(pilot: Pilot[int], condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    """Wait until something is so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"waited {seconds:.0f} s for {what}"
        await pilot.pause(0.02)


async def press(app: ConsoleApp, *keys: str) -> None:
    """Keys, one after the other, each taken in before the next. Pilot's own waits for an idle processor instead."""
    for key in keys:
        character = key if len(key) == 1 else {"space": " ", "slash": "/", "colon": ":", "minus": "-"}.get(key)
        app.post_message(events.Key(key, character))
        await settled(app)


async def settled(app: ConsoleApp) -> None:
    """Wait until nothing waits to be handled."""
    for _ in range(400):
        await asyncio.sleep(0.002)
        pumps = [app, *app.screen_stack, *app.screen.query("*")]
        if all(pump.message_queue_size == 0 for pump in pumps) and not (app.is_pumping or app.is_holding):
            return


def text_of(app: ConsoleApp) -> str:
    """What is on the screen, as text."""
    width, height = app.size
    lines: list[str] = []
    for strip in app.screen._compositor.render_strips():
        lines.append("".join(segment.text for segment in strip)[:width].rstrip())
    return "\n".join(lines[:height])
