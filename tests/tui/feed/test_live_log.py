"""A function from the form to its log: planned, sent, and what it prints is told whole, as it comes, and clean."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from moregpu.client.access import Access
from moregpu.coordinator.server import ServeConfig
from moregpu.errors import InvalidRequest
from moregpu.wire.api import LogLine, TokenRequest
from moregpu.wire.invite import parse_client_line
from moregpu.workloads import FunctionSpec
from moregpu_tui.feed.live import LivePool
from moregpu_tui.feed.live_log import read_lines
from moregpu_tui.feed.source import Draft
from moregpu_tui.state.events import Input, JobLog
from moregpu_tui.state.model import LogEntry
from moregpu_tui.state.store import Store
from tests.coordinator.api.conftest import Pool, Running

SPEC = FunctionSpec(calls=(), inputs={})


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    with Running(ServeConfig(port=0, state=str(tmp_path / "pool"), profile="", name="printing")) as running:
        yield running


class Console:
    """A live source, and what it told."""

    def __init__(self, pool: Pool, token: str = "") -> None:
        self.source = LivePool(Access(addresses=(pool.address,), token=token or pool.admin, pin=pool.pin))
        self.store = Store()
        self.told: list[Input] = []
        self._news = asyncio.Event()
        self.source.offer = self.offer

    def offer(self, *inputs: Input) -> None:
        self.told += inputs
        self.store.offer(*inputs)
        self.store.take(0.0)
        self._news.set()

    def log(self, job: str) -> list[LogEntry]:
        detail = self.store.state.details.get(job)
        return list(detail.log or ()) if detail is not None else []

    async def until(self, job: str, text: str) -> list[LogEntry]:
        async with asyncio.timeout(30):
            while not any(text in entry.text for entry in self.log(job)):
                await self._news.wait()
                self._news.clear()
        return self.log(job)


def drafted(tmp_path: Path, text: str = "def train(rate):\n    print(rate)\n", place: str = "sweep.py:train") -> Draft:
    (tmp_path / "sweep.py").write_text(text)
    return Draft(spec=SPEC, program=str(tmp_path / place), payloads="[0.1, 0.2]")


def test_a_function_of_a_file_is_planned_and_sent_once(pool: Pool, tmp_path: Path) -> None:
    async def play() -> None:
        console = Console(pool)
        draft = drafted(tmp_path)
        plan = await console.source.plan(draft)
        assert plan.grains == 2
        assert "no worker" in plan.waiting_reason
        large = drafted(tmp_path, "def train(rate):\n    return rate\n#" + "x" * 100_000)  # more than a message holds
        view = await console.source.submit(large, "key-1")
        again = await console.source.submit(large, "key-1")
        assert (view.id, view.kind, view.name) == (again.id, "function", "sweep.py:train")
        with pytest.raises(InvalidRequest, match="defines no function"):
            await console.source.plan(drafted(tmp_path, place="sweep.py:nobody"))
        await console.source.close()

    asyncio.run(play())


def test_what_was_printed_before_anybody_looked_comes_first_and_the_rest_as_it_is_printed(
    pool: Pool, tmp_path: Path
) -> None:
    async def play() -> None:
        console = Console(pool)
        job = (await console.source.submit(drafted(tmp_path), "key-1")).id
        printed, clock = pool.services.desk.printed, pool.services.clock

        async def say(*lines: str) -> None:
            printed.add(job, 0, "anna-nas", lines, clock.wall())

        pool.run(say("epoch 1", "epoch 2"))
        following = asyncio.create_task(console.source.follow_log(job))
        earlier = [entry.text for entry in await console.until(job, "epoch 2")]
        assert earlier[0].startswith("queued: ")
        assert earlier[1:] == ["anna-nas: epoch 1", "anna-nas: epoch 2"]
        pool.run(say("epoch 3", "\x1b]52;c;aGFja2Vk\x07\x1b[2Jred\u202e"))
        await console.source.cancel(job)
        await following  # it ends with the job
        lines = console.log(job)
        assert [entry.text for entry in lines].count("anna-nas: epoch 3") == 1
        assert not any(ord(letter) < 32 or letter in "\x7f\x9b\u202e" for entry in lines for letter in entry.text)
        assert next(one.begin for one in console.told if isinstance(one, JobLog))
        await console.source.close()

    asyncio.run(play())


def test_a_log_that_is_not_ours_to_read_is_no_error(pool: Pool, tmp_path: Path) -> None:
    async def play() -> None:
        admin = Console(pool)
        job = (await admin.source.submit(drafted(tmp_path), "key-1")).id
        made = await admin.source.create_token(TokenRequest(label="wall", role="viewer"))
        viewer = Console(pool, parse_client_line(made.line).token)
        async with asyncio.timeout(30):
            await viewer.source.follow_log(job)
        assert viewer.log(job) == []
        for console in (admin, viewer):
            await console.source.close()

    asyncio.run(play())


def test_lines_are_read_however_they_are_cut() -> None:
    body = b'event: line\ndata: {"at":1.0,"level":"info","message":"a"}\n\n: quiet\n\ndata: {"new":1}\n\n' * 2
    for size in (1, 7, 1000):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        assert list(read_lines(iter(pieces))) == [LogLine(at=1.0, level="info", message="a")] * 2
