"""Screens as they were last looked at and found good: sizes × states × themes.

A golden file holds a screen's text, so that a difference can be read, and a digest of its colours.
`MOREGPU_GOLDEN=write pytest tests/tui/test_golden.py` keeps the present ones; look at them before they are committed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from itertools import groupby
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from moregpu_tui.actions import SCREENS
from moregpu_tui.app import ConsoleApp
from moregpu_tui.forms.form import Form
from moregpu_tui.options import Options, Settings
from moregpu_tui.screens.submit import SubmitForm
from moregpu_tui.state.events import Linked
from moregpu_tui.state.model import Link, PoolState
from tests.tui.stage import Stage, played, press, settled, text_of, until

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("MOREGPU_GOLDEN") == "write"
STILL = Settings(glyphs="unicode", zone="utc", motion="none")


def colours_of(app: ConsoleApp) -> str:
    """A digest of what every cell looks like, however lines are cut into segments; a space shows its ground only."""
    digest = hashlib.blake2b(digest_size=8)
    for strip in app.screen._compositor.render_strips():
        looks: list[tuple[object, ...]] = []
        for text, style, _ in strip:
            ground = (style.bgcolor, style.reverse, style.underline) if style else ()
            ink = (style.color, *ground, style.bold, style.dim) if style else ()
            looks.extend(ground if character == " " else ink for character in text)
        for look, cells in groupby(looks):
            digest.update(f"{len([*cells])}{look}".encode())
    return digest.hexdigest()


def boxed(text: str) -> str:
    """The dialog alone: what lies behind it is drawn or not, as it comes."""
    lines = text.splitlines()
    top = next(at for at, line in enumerate(lines) if "╭" in line and "╮" in line)
    bottom = next(at for at, line in enumerate(lines) if "╰" in line and "╯" in line)
    left, right = lines[top].index("╭"), lines[top].index("╮") + 1
    return "\n".join(line[left:right] for line in lines[top : bottom + 1]) + "\n"


async def at_rest(app: ConsoleApp) -> str:
    """The screen once nothing moves on it any more."""
    seen: list[tuple[str, str]] = []
    for _ in range(60):
        await settled(app)
        await asyncio.sleep(0.04)
        seen.append((text_of(app), colours_of(app)))
        if len(seen) > 5 and len(set(seen[-6:])) == 1:
            break
    return seen[-1][0]


def same_as_golden(
    name: str,
    app: ConsoleApp,
    keys: list[str],
    size: tuple[int, int],
    *,
    dialog: bool = False,
    play: Callable[..., Awaitable[None]] | None = None,
) -> None:
    found: list[str] = []

    async def look(pilot: Pilot[int]) -> None:
        await settled(app)
        await press(app, *keys)
        if play is not None:
            await play(app, pilot)
        app.second()
        shown = await at_rest(app)
        found.append(boxed(shown) if dialog else f"{shown}\n\ncolours {colours_of(app)}\n")

    played(app, look, size=size)
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found[0])
    assert found[0] == path.read_text(), f"{name} looks different: MOREGPU_GOLDEN=write keeps it, when it is meant so"


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
@pytest.mark.parametrize("screen", [name for name in SCREENS if name != "submit"])
def test_every_screen_at_both_sizes(screen: str, size: tuple[int, int]) -> None:
    # The form is made from the jobs' own Structs, and has tests of its own.
    keys = [str(SCREENS.index(screen) + 1)]
    same_as_golden(f"{screen}-{size[0]}x{size[1]}", Stage(seconds=60).console(settings=STILL), keys, size)


async def function_form(app: ConsoleApp, pilot: Pilot[int]) -> None:
    """The form of a function, filled in."""
    await press(app, "5")
    await settled(app)
    await press(app, "shift+tab", "right")
    form = app.screen.query_one("#form", Form)
    await until(pilot, lambda: "new job: function" in text_of(app), "the form of a function")
    form.put({"program": "sweep.py:train", "payloads": '[{"rate": 0.1}, {"rate": 0.01}]'})
    form.focus_first()
    await until(pilot, lambda: isinstance(app.screen, SubmitForm) and app.screen.plan is not None, "the plan")


async def function_page(app: ConsoleApp, pilot: Pilot[int]) -> None:
    """The page of a function that prints."""
    job = next(job.id for job in app.state.jobs.values() if job.kind == "function")
    app.open_job(job)
    await until(pilot, lambda: bool(app.state.details[job].log) if job in app.state.details else False, "its log")


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
@pytest.mark.parametrize("play", [function_form, function_page])
def test_functions_at_both_sizes(play: Callable[..., Awaitable[None]], size: tuple[int, int]) -> None:
    app = Stage(seconds=40).console(settings=STILL)
    same_as_golden(f"{play.__name__.replace('_', '-')}-{size[0]}x{size[1]}", app, [], size, play=play)


TOURS = {
    "light": ({"theme": "light"}, (124, 34)),
    "contrast": ({"theme": "contrast"}, (80, 24)),
    "ansi": ({"theme": "ansi"}, (100, 36)),
    "ascii": ({"glyphs": "ascii"}, (160, 45)),
}


@pytest.mark.slow
@pytest.mark.parametrize("looks", [*TOURS])
def test_a_tour_of_all_screens_in_other_looks(looks: str) -> None:
    chosen, size = TOURS[looks]
    app = Stage(seconds=30).console(settings=msgspec.structs.replace(STILL, **chosen))
    found: dict[str, str] = {}

    async def play(pilot: Pilot[int]) -> None:
        for screen in SCREENS:
            app.act(f"screen.{screen}")
            await settled(app)
            if isinstance(app.screen, SubmitForm):
                form = app.screen
                await until(pilot, lambda form=form: form.plan is not None, "the plan")
            app.second()
            found[screen] = f"{await at_rest(app)}\n\ncolours {colours_of(app)}\n"

    played(app, play, size=size)
    different: list[str] = []
    for screen, shown in found.items():
        path = GOLDEN / f"tour-{looks}-{screen}.txt"
        if WRITE:
            path.write_text(shown)
        if shown != path.read_text():
            different.append(screen)
    assert not different, f"{different} look different: MOREGPU_GOLDEN=write keeps them, when it is meant so"


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "contrast", "ansi"])
def test_every_theme(theme: str) -> None:
    settings = msgspec.structs.replace(STILL, theme=theme)
    same_as_golden(f"workers-{theme}", Stage(seconds=20).console(settings=settings), ["2"], (130, 36))


@pytest.mark.parametrize("state", ["empty", "loading", "stale", "offline", "no-match", "too-small", "ascii", "mono"])
def test_every_state(state: str) -> None:
    stage = Stage(seconds=20)
    keys, size = ["2"], (100, 26)
    options, environment = Options(demo=True), {}
    match state:
        case "empty":
            stage.store.state = msgspec.structs.replace(stage.store.state, workers={}, jobs={}, history={})
            keys = []
        case "loading":
            stage.store.state = PoolState()
        case "stale":
            stage.at += 42.0
        case "offline":
            link = Link(
                state="offline", retry_at=stage.at + 8, detail="the coordinator at studio.lan:8787 does not answer"
            )
            stage.store.offer(Linked(link=link))
            stage.store.take(stage.at)
        case "no-match":
            keys = ["2", "slash", *"xyzzy", "enter"]
        case "too-small":
            size = (50, 12)
        case "ascii":
            options = Options(demo=True, ascii=True)
        case _:
            environment = {"NO_COLOR": "1"}
    app = stage.console(options, STILL, environment=environment)
    same_as_golden(f"state-{state}", app, keys, size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "dialog",
    ["help", "palette", "command", "menu", "invite", "revoke", "cancel", "ceiling", "token", "schedule", "drain"],
)
def test_every_dialog(dialog: str) -> None:
    keys = {
        "help": ["2", "question_mark"],
        "palette": ["2", "ctrl+p", *"pau"],
        "command": ["colon", *"inv"],
        "menu": ["2", "x"],
        "invite": ["i"],
        "revoke": ["2", "X"],
        "cancel": ["3", "X"],
        "ceiling": ["2", "t"],
        "token": ["7", "n"],
        "schedule": ["2", "T"],
        "drain": ["2", "d"],
    }[dialog]
    same_as_golden(f"dialog-{dialog}", Stage(seconds=20).console(settings=STILL), keys, (100, 30), dialog=True)
