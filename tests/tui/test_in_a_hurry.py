"""More than there is room or time for: keys ahead of screens, ten thousand workers at once, log floods, slow links."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from textual import events
from textual.css.query import NoMatches
from textual.pilot import Pilot

from moregpu.client.access import Access
from moregpu.coordinator.server import ServeConfig
from moregpu.wire.api import Event
from moregpu_tui.feed.live import LivePool
from moregpu_tui.forms.form import Form
from moregpu_tui.screens.events import Events
from moregpu_tui.screens.workers import Workers
from moregpu_tui.state.events import happened
from moregpu_tui.state.reduce import MAX_LOG
from moregpu_tui.state.store import Store
from moregpu_tui.widgets.line_table import LineTable
from moregpu_tui.widgets.log_view import LogView
from tests.coordinator.api.conftest import Pool, Running
from tests.coordinator.store import rows
from tests.tui.stage import Stage, played, press, settled, text_of, until

MANY = 10_000
SECRET = b"s" * 32
SLOW_BYTES_S = 10_000


# ---- keys


def burst(app: object, text: str | list[str]) -> None:
    """Keys as they come when a slow link delivers them all at once: letters, or keys by their names."""
    names = {"\n": "enter", "/": "slash", ".": "full_stop"}
    for character in text:
        key = events.Key(names.get(character, character), character if character.isprintable() else None)
        app.post_message(key)  # type: ignore[attr-defined]


def test_letters_typed_ahead_go_into_the_line_they_were_typed_for() -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        burst(app, "2/" + "drape" + "\n")  # as keys of the list: drain, sort, approve, pause, rename
        await until(pilot, lambda: isinstance(app.screen, Workers) and app.screen.filter_text == "drape", "the filter")
        await settled(app)
        assert len(app.screen_stack) == 1  # no dialog was opened
        assert not any(
            worker.paused != stage.store.state.workers[id].paused for id, worker in app.state.workers.items()
        )

    played(app, play)


def test_keys_typed_ahead_of_a_dialog_answer_that_dialog() -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        burst(app, "2t6\n")
        await until(pilot, lambda: "number from 5 to 100" in text_of(app), "an answer to the question")

    played(app, play)


def test_keys_typed_while_another_kinds_form_is_built_go_into_that_form() -> None:
    app = Stage(seconds=5).console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "5", "shift+tab")
        burst(app, ["right", "tab", *"train.py"])
        form = app.screen.query_one("#form", Form)

        def is_there() -> bool:
            with suppress(NoMatches):  # a row that is being built has no control yet
                return form.typed().get("program") == "train.py"
            return False

        await until(pilot, is_there, "the program's name")

    played(app, play)


def test_a_key_that_a_widget_has_not_handled_yet_is_waited_for_and_one_in_a_grave_is_not() -> None:
    app = Stage(seconds=5).console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "2")
        table = app.screen.query_one("#table", LineTable)
        key = events.Key("j", "j")
        key._set_forwarded()
        app._travelling, app._target = key, table
        table.post_message(key)
        await app._give_up()
        assert app._travelling is not None  # it is in the table's queue
        await until(pilot, lambda: app._travelling is None, "the table to handle it")
        app._travelling = key
        app._target = LineTable((), lambda _row, _column: ())  # never mounted: as good as gone
        await app._give_up()
        assert app._travelling is None

    played(app, play)


def test_n_goes_on_with_what_was_searched_also_when_the_filter_is_cleared() -> None:
    app = Stage(seconds=5).console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "2", "slash", *"emil", "enter", "escape", "g")
        table = app.screen.query_one("#table", LineTable)
        for key, name in (("n", "emil-cottage"), ("n", "emil-laptop"), ("n", "emil-cottage"), ("N", "emil-laptop")):
            await press(app, key)
            here = lambda name=name: app.state.workers[table.current or ""].name == name  # noqa: E731
            await until(pilot, here, f"{name} by {key}")
        assert len(table.rows) == len(app.state.workers)

    played(app, play)


def test_n_finds_the_next_line_of_the_log() -> None:
    app = Stage(seconds=20).console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "6", "slash", *"submitted", "enter", "escape", "g", "n")
        view = app.screen.query_one("#log", LogView)
        await until(pilot, lambda: "submitted" in (view.sought or ""), "a line that matches")
        first = view.sought
        await press(app, "n")
        await until(pilot, lambda: view.sought != first and "submitted" in (view.sought or ""), "the next one")
        assert not view.follow
        await until(pilot, lambda: (view.sought or "?") in text_of(app), "it in view")

    played(app, play)


def test_a_kind_of_operation_shows_its_own_fields_and_no_others() -> None:
    app = Stage(seconds=5).console()

    async def play(pilot: Pilot[int]) -> None:
        def shows(has: str, not_has: str) -> bool:
            return has in text_of(app) and not_has not in text_of(app)

        await press(app, "5")
        form = app.screen.query_one("#form", Form)
        assert "Formula" not in text_of(app)
        form.put({"operation": "formula"})
        await until(pilot, lambda: shows("Formula", "Kernel"), "a formula's own field")
        form.put({"operation": "custom"})
        await until(pilot, lambda: shows("Kernel", "Formula"), "a registered kernel's own field")

    played(app, play)


# ---- floods


def test_three_hundred_lines_a_second_stay_readable_and_bounded() -> None:
    stage = Stage(seconds=5)
    app = stage.console()

    async def play(pilot: Pilot[int]) -> None:
        await press(app, "6")
        for second in range(40):
            for batch in range(5):
                lines = [f"line {second}.{batch}.{number}" for number in range(60)]
                event = Event(type="log", id="j-X", at=stage.at + second, data={"lines": lines, "worker": "w-X"})
                app.store.offer(happened(event))
                app.store.take(stage.at)
        app.second()
        app.screen.refresh_all() if isinstance(app.screen, Events) else None
        await until(pilot, lambda: "line 39.4.59" in text_of(app), "the last line")
        assert len(app.state.log) == MAX_LOG
        await press(app, "g")  # reading stops the following
        event = Event(type="log", id="j-X", at=stage.at, data={"lines": ["newest"], "worker": "w-X"})
        app.offer(happened(event))
        await settled(app)
        assert "newest" not in text_of(app)
        await press(app, "f")
        await until(pilot, lambda: "newest" in text_of(app), "the newest line")

    played(app, play)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    config = ServeConfig(port=0, state=str(tmp_path / "pool"), profile="", name="crowd")
    with Running(config) as running:
        yield running


async def follow(source: LivePool, store: Store, condition: object, what: str, seconds: float = 120.0) -> None:
    """Take in what a source tells until something is so."""
    feeding = asyncio.create_task(source.run(store.offer))
    try:
        end = time.monotonic() + seconds
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < end, f"waited for {what}; the link is {store.state.link}"
            store.take(time.monotonic())
            await asyncio.sleep(0.05)
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await source.close()


@pytest.mark.slow
def test_ten_thousand_workers_that_join_at_once_are_lists_and_no_flood_of_questions(pool: Pool) -> None:
    source, store = LivePool(Access(addresses=(pool.address,), token=pool.admin, pin=pool.pin)), Store()
    asked: list[str] = []
    fetch = source._fetch_worker

    async def counted(id: str) -> None:
        asked.append(id)
        await fetch(id)

    source._fetch_worker = counted  # type: ignore[method-assign]

    async def enrol() -> None:
        book = pool.services.desk.store
        await book.add_invite(rows.invite("i-crowd", uses_left=MANY))
        for start in range(0, MANY, 500):
            await asyncio.gather(
                *(
                    book.enrol(rows.worker_row(f"w-{number:05d}"), "i-crowd", SECRET, pool.services.clock.wall())
                    for number in range(start, start + 500)
                )
            )

    async def play() -> None:
        begun = False

        def here() -> bool:
            nonlocal begun
            if store.state.link.state == "live" and not begun:
                begun = True
                threading.Thread(target=lambda: pool.run(enrol()), daemon=True).start()
            known = [worker for worker in store.state.workers.values() if worker.known]
            return len(known) >= MANY

        await follow(source, store, here, "ten thousand workers")

    asyncio.run(play())
    assert len(asked) < 200


class SlowLink:
    """A way to the pool on which few bytes a second come back."""

    def __init__(self, to: tuple[str, int]) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            threading.Thread(target=self._carry, args=(near, far, 0), daemon=True).start()
            threading.Thread(target=self._carry, args=(far, near, SLOW_BYTES_S), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, bytes_s: int) -> None:
        try:
            while data := source.recv(1024):
                target.sendall(data)
                if bytes_s:
                    time.sleep(len(data) / bytes_s)  # that is what a slow link does
        except OSError:
            pass
        finally:
            target.close()


@pytest.mark.slow
def test_a_pool_behind_ten_kilobytes_a_second_is_live_and_stays_so(pool: Pool) -> None:
    link = SlowLink((pool.host, pool.port))
    source = LivePool(Access(addresses=(f"127.0.0.1:{link.port}",), token=pool.admin, pin=pool.pin))
    store = Store()
    states: list[str] = []

    def here() -> bool:
        states.append(store.state.link.state)
        return store.state.pool is not None and store.state.tokens is not None and store.state.stats.at > 0

    asyncio.run(follow(source, store, here, "the pool over a slow link"))
    link.close()
    assert "offline" not in states[states.index("live") :]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="missing: a pty")
def test_a_terminal_that_takes_ten_kilobytes_a_second_is_followed(tmp_path: Path) -> None:
    parent, own = pty.openpty()
    environment = {**os.environ, "MOREGPU_HOME": str(tmp_path), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    console = subprocess.Popen(
        [sys.executable, "-m", "moregpu_tui", "--demo"], stdin=own, stdout=own, stderr=own, env=environment,
        start_new_session=True,
    )  # fmt: skip
    os.close(own)
    seen = bytearray()

    def read_until(wanted: bytes, seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while wanted not in seen:
            assert time.monotonic() < end, f"waited for {wanted!r}"
            if select.select([parent], [], [], 0.2)[0]:
                data = os.read(parent, 1000)
                seen.extend(data)
                time.sleep(len(data) / SLOW_BYTES_S)  # that is what a slow link does

    try:
        read_until(b"needs you")
        seen.clear()
        os.write(parent, b"2")
        read_until(b"DUTY")
        os.write(parent, b"\x11")
        read_until(b"\x1b[?1049l")  # the terminal is given back
        assert console.wait(30) == 0
    finally:
        console.kill()
        console.wait()
        os.close(parent)
