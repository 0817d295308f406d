"""The whole loop for real: an X server, the agent, its compute process; input through XTEST, cuts by the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

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

LOADED_S = 0.5
"""CPU seconds that a compute process takes for its imports and its driver's."""

REST_S = 0.03
"""Longer than any rest at a high duty, shorter than those at the duty of an owner who is there."""

STILL_S = 0.001
"""What a compute process takes to listen in that time."""

_seen: dict[str, float] = {}


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


class Cut(NamedTuple):
    """What one input did to the work that ran."""

    decided_s: float
    """Until the duty was cut."""
    rested_s: float
    """Until the compute process had ended what it was at, and rested: nothing was submitted, or begun, any more."""
    share: float
    """Of a core that it took in the half second that began 0.1 s after the input."""


async def input_to_cut(folder: Path, screen: str, times: int, engine: Literal["cpu", "gpu"] = "cpu") -> list[Cut]:
    """Touch the machine so often while the worker computes. `gpu` takes any adapter, software too."""
    coordinator = Coordinator(folder / "certificate")
    await coordinator.start()
    enrol(folder / "worker", coordinator.invite)
    home = WorkerHome.existing(folder / "worker")
    seen: list[tuple[float, Status]] = []
    agent = Agent(
        home,
        WorkerConfig(name="anna", cores=1, yields=True, engine=engine),
        lambda status: seen.append((time.monotonic(), status)),
        sense=lambda noticed, cpu: Senses(noticed, OwnLoadOnly(cpu._own), lambda: X11Seat(screen)),
    )
    running = asyncio.get_running_loop().create_task(agent.run())
    mouse = Mouse(screen)
    device, size = ("gpu0", 5_000) if engine == "gpu" else ("cpu", 12_000)
    cuts: list[Cut] = []
    try:
        await coordinator.online()
        tasks = iter(range(1, 255))
        for _ in range(times):
            await _until(lambda: agent.status().duty > 0.0)
            if not agent.status().running:
                await coordinator.assign(endless(next(tasks), size=size))
            await _until(lambda: agent.status().running and agent.status().duty > 0.2 and _works(agent, device))
            seen.clear()
            moved_at = mouse.move()
            rested_at = await _rest(agent, device)
            await _until(lambda: any(status.duty <= ACTIVE_DUTY for _, status in seen))
            cut_at = next(at for at, status in seen if status.duty <= ACTIVE_DUTY)
            await asyncio.sleep(max(0.0, moved_at + 0.1 - time.monotonic()))
            begun, before = time.monotonic(), _spent(agent, device)
            await asyncio.sleep(0.5)
            share = (_spent(agent, device) - before) / (time.monotonic() - begun)
            cuts.append(Cut(cut_at - moved_at, rested_at - moved_at, share))
    finally:
        agent.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(running, DEADLINE_S)
        home.close()
        mouse.close()
        await coordinator.stop()
    return cuts


def _spent(agent: Agent, device: str) -> float:
    """CPU seconds of a device's compute process, its driver's threads among them, to the nanosecond."""
    pid = agent._computes[device].pid
    # As clock_getcpuclockid(3) makes it of a process's number.
    return 0.0 if pid is None else time.clock_gettime((~pid << 3) | 2)


def _works(agent: Agent, device: str) -> bool:
    """Whether it is in the middle of work: it took CPU since the last look, and has loaded what it needs before."""
    spent = _spent(agent, device)
    before, _seen[device] = _seen.get(device, spent), spent
    return spent > LOADED_S and spent > before


async def _rest(agent: Agent, device: str) -> float:
    """When the compute process began its first rest of REST_S from now on."""
    begun_at, before = time.monotonic(), _spent(agent, device)
    async with asyncio.timeout(DEADLINE_S):
        while time.monotonic() - begun_at < REST_S:
            await asyncio.sleep(0.002)
            spent = _spent(agent, device)
            if spent - before > STILL_S:
                begun_at, before = time.monotonic(), spent
    return begun_at


async def _until(met: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not met():  # noqa: ASYNC110 — a process's times tell nobody when they change
            await asyncio.sleep(0.005)
