"""The whole loop for real: an X server, the agent, its compute process; input through XTEST, cuts by the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from Xlib import X, display
from Xlib.ext import xtest

from moregpu.worker.agent import Agent
from moregpu.worker.config import WorkerConfig
from moregpu.worker.enrol import enrol
from moregpu.worker.home import WorkerHome
from moregpu.worker.probes.cpu import CpuLoad
from moregpu.worker.probes.senses import Senses
from moregpu.worker.probes.x11 import X11Seat
from moregpu.worker.status import Status
from moregpu.worker.throttle.controller import ACTIVE_DUTY, Load
from tests.worker.scripted import Coordinator, endless

DEADLINE_S = 90.0


class OwnLoadOnly(CpuLoad):
    """The machine as if nothing else ran on it: other tests do, and would be given way to."""

    def sample(self) -> Load | None:
        load = super().sample()
        self.others = 0.0
        return None if load is None else Load(total=load.own, own=load.own)


class Mouse:
    """An owner's hand."""

    def __init__(self, screen: str):
        self._display = display.Display(screen)
        self._at = 10

    def move(self) -> float:
        """Move it; returns when."""
        self._at = 10 if self._at > 300 else self._at + 7
        moved_at = time.monotonic()
        xtest.fake_input(self._display, X.MotionNotify, x=self._at, y=self._at)
        self._display.sync()
        return moved_at

    def close(self) -> None:
        self._display.close()


async def input_to_cut(folder: Path, screen: str, times: int) -> list[tuple[float, float]]:
    """Of each input, while the worker computes: seconds until the duty was cut, and the share of a core that its
    compute process took in the half second that began 0.1 s after the input."""
    coordinator = Coordinator(folder / "certificate")
    await coordinator.start()
    enrol(folder / "worker", coordinator.invite)
    home = WorkerHome.existing(folder / "worker")
    seen: list[tuple[float, Status]] = []
    agent = Agent(
        home,
        WorkerConfig(name="anna", cores=1, yields=True),
        lambda status: seen.append((time.monotonic(), status)),
        sense=lambda noticed, cpu: Senses(noticed, OwnLoadOnly(cpu._own), lambda: X11Seat(screen)),
    )
    running = asyncio.get_running_loop().create_task(agent.run())
    mouse = Mouse(screen)
    cuts: list[tuple[float, float]] = []
    try:
        await coordinator.online()
        tasks = iter(range(1, 255))
        for _ in range(times):
            await _until(lambda: agent.status().duty > 0.0)
            if not agent.status().running:
                await coordinator.assign(endless(next(tasks), size=12_000))
            await _until(lambda: agent.status().running and agent.status().duty > 0.2 and _spent(agent) > 0.1)
            seen.clear()
            moved_at = mouse.move()
            await _until(lambda: any(status.duty <= ACTIVE_DUTY for _, status in seen))
            cut_at = next(at for at, status in seen if status.duty <= ACTIVE_DUTY)
            await asyncio.sleep(max(0.0, moved_at + 0.1 - time.monotonic()))
            begun, before = time.monotonic(), _spent(agent)
            await asyncio.sleep(0.5)
            cuts.append((cut_at - moved_at, (_spent(agent) - before) / (time.monotonic() - begun)))
    finally:
        agent.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(running, DEADLINE_S)
        home.close()
        mouse.close()
        await coordinator.stop()
    return cuts


def _spent(agent: Agent) -> float:
    pid = agent._computes["cpu"].pid
    if pid is None:
        return 0.0
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


async def _until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not met():  # noqa: ASYNC110 — a process's times tell nobody when they change
            await asyncio.sleep(0.005)
