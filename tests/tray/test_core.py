"""The tray's core between the owner and the agent, against a coordinator that does what the test says."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from moregpu.worker.config import WorkerConfig
from moregpu.worker.enrol import enrol
from moregpu_tray.core import Core
from moregpu_tray.history import History
from moregpu_tray.view import View
from tests.worker.scripted import Coordinator


def test_a_pause_for_a_while_ends_for_the_menu_too_when_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "worker"
    seen: list[View] = []
    now = time.time

    async def story() -> None:
        coordinator = Coordinator(tmp_path / "certificate")
        await coordinator.start()
        enrol(folder, coordinator.invite)
        config = WorkerConfig(name="anna", cores=1, state=str(folder), yields=False)
        core = Core(config, History(folder), seen.append)
        core.start()
        try:
            await coordinator.until(lambda: core.view.status.state == "online")
            core.pause(0.3)
            monkeypatch.setattr(time, "time", lambda: now() - 11 * 3600.0)
            await coordinator.until(lambda: any(view.status.owner_paused for view in seen))
            await coordinator.until(lambda: core.view.status.state == "online" and not core.view.paused)
            assert core.view.paused_until is None
            core.set_limits(ceiling=0.5)
            await coordinator.until(lambda: core.view.status.ceiling == 0.5)
            assert core.view.status.state == "online", "a pause that is over does not come back"
        finally:
            assert await asyncio.to_thread(core.stop)
            await coordinator.stop()

    asyncio.run(story())
