"""What the owner chooses in quick succession is all kept: each click has a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moregpu.platform.instance import Instance
from moregpu.platform.settings import read_section
from moregpu.worker.config import WorkerConfig
from moregpu_tray import app as tray
from moregpu_tray import chosen
from moregpu_tray.icon.no_icon import NoIcon
from moregpu_tray.menu import Do, Item

SECOND_S = 0.5
"""So long the first choice waits for the second to overtake it; one that may not is still waiting then."""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tray.App]:
    monkeypatch.setenv("MOREGPU_HOME", str(tmp_path / "home"))
    instance = Instance.claim("tray")
    assert instance is not None
    config = WorkerConfig(name="anna", cores=1, state=str(tmp_path / "worker"), yields=True)
    yield tray.App(config, tmp_path / "worker", NoIcon(), instance, tmp_path / "log")
    instance.close()


def test_of_two_choices_at_once_none_is_written_over(app: tray.App, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, overtaken = threading.Semaphore(0), threading.Event()
    second: list[Callable[[], None]] = [lambda: app.click(Item(do=Do.SCHEDULE, value="22:00-07:00"))]

    def slowly(config: WorkerConfig) -> None:
        if second:
            second.pop()()
            overtaken.wait(SECOND_S)
        chosen.save(config)
        overtaken.set()
        kept.release()

    monkeypatch.setattr(tray, "save", slowly)
    app.click(Item(do=Do.CEILING, value=0.5))
    assert kept.acquire(timeout=10) and kept.acquire(timeout=10)
    section = read_section("worker")
    assert (section["ceiling"], section["schedule"]) == (0.5, "22:00-07:00")
