"""Other programs for minutes: short bursts, as the plant's noise trace has them, and what the worker makes of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
import psutil

from benchmarks.throttle_plant import STEP_S, Trace, reversals
from moregpu.wire.messages import Cancel
from moregpu.worker.agent import Agent
from moregpu.worker.config import WorkerConfig
from moregpu.worker.enrol import enrol
from moregpu.worker.home import WorkerHome
from moregpu.worker.probes.cpu import CpuLoad
from moregpu.worker.probes.senses import Senses
from moregpu.worker.probes.x11 import X11Seat
from moregpu.worker.throttle.controller import Load
from tests.worker.scripted import Coordinator, endless, ref

TASK_S = 15.0
"""After so long a task makes room for the next: its end would be half a gigabyte to store."""

LOOK_S = 0.5
SETTLED_S = 30.0
CEILING = 0.85


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    reversals_per_min: float
    harvested: float
    """Of what is free: the ceiling less what the noise, or all other programs, used."""
    computed: float
    """The same of the CPU time that the compute process got; less than asked where others want the machine."""
    others: float
    """Mean share of the machine that everything but the pool used, whoever it was given way to."""
    duties: list[float]


class NoiseAlone(CpuLoad):
    """The machine as if nothing but the pool and the noise ran on it."""

    def __init__(self, own: Callable[[], Iterable[int]], noise: Iterable[int]):
        self._noise = CpuLoad(lambda: noise)
        super().__init__(own)

    def sample(self) -> Load | None:
        """The load of both."""
        load, noise = super().sample(), self._noise.sample()
        if load is None:
            return None
        others = 0.0 if noise is None else noise.own
        self.others = min(1.0, others)
        return Load(total=load.own + others, own=load.own)


@contextmanager
def noise(seed: int, seconds: float) -> Generator[list[int]]:
    """Play a noise trace on every core; gives the processes' ids."""
    playing = [
        subprocess.Popen([sys.executable, "-m", "tests.worker.noise", str(seed), str(seconds)])
        for _ in range(psutil.cpu_count() or 1)
    ]
    try:
        yield [process.pid for process in playing]
    finally:
        for process in playing:
            process.kill()
            process.wait()


async def through_noise(folder: Path, screen: str, seconds: float, *, seed: int = 0, alone: bool = True) -> Heard:
    """Compute through a noise trace with the whole loop. `alone`: give way to the noise, and to nothing else."""
    coordinator = Coordinator(folder / "certificate")
    await coordinator.start()
    enrol(folder / "worker", coordinator.invite)
    home = WorkerHome.existing(folder / "worker")
    cores = psutil.cpu_count() or 1
    with noise(seed, seconds) as playing:
        agent = Agent(
            home,
            WorkerConfig(name="anna", cores=cores, ceiling=CEILING, yields=True),
            sense=lambda noticed, cpu: Senses(
                noticed, NoiseAlone(cpu._own, playing) if alone else cpu, lambda: X11Seat(screen)
            ),
        )
        running = asyncio.get_running_loop().create_task(agent.run())
        try:
            await coordinator.online()
            return await _listen(coordinator, agent, playing, seconds, alone)
        finally:
            agent.stop()
            with suppress(TimeoutError):
                await asyncio.wait_for(running, 30.0)
            home.close()
            await coordinator.stop()


async def _listen(coordinator: Coordinator, agent: Agent, playing: list[int], seconds: float, alone: bool) -> Heard:
    begun = time.monotonic()
    pool, theirs = CpuLoad(agent._own_processes), CpuLoad(lambda: playing)
    before = task = endless(1, size=12_000)
    await coordinator.assign(task)
    number, next_at = 1, begun + TASK_S
    duties: list[float] = []
    free: list[float] = []
    computed: list[float] = []
    busy: list[float] = []
    while (now := time.monotonic()) - begun < seconds:
        if now >= next_at:
            before, number, next_at = task, number % 250 + 1, now + TASK_S
            task = endless(number, size=12_000)
            await coordinator.assign(task)
            await coordinator.say(Cancel(leases=[ref(before)], reason="the next one"))
        await asyncio.sleep(LOOK_S)
        ours, noisy = pool.sample(), theirs.sample()
        if now - begun < SETTLED_S or ours is None or noisy is None:
            continue
        duties.append(agent.status().duty)
        busy.append(pool.others)
        free.append(max(CEILING - (noisy.own if alone else pool.others), 0.0))
        computed.append(ours.own)
    least = np.minimum
    total = float(np.sum(free)) or 1.0
    return Heard(
        reversals_per_min=reversals(np.array(duties)) / (len(duties) * LOOK_S / 60),
        harvested=float(least(duties, free).sum()) / total,
        computed=float(least(computed, free).sum()) / total,
        others=float(np.mean(busy)),
        duties=[round(duty, 3) for duty in duties],
    )


def play(seed: int, seconds: float) -> None:
    """Use one core as the trace says, step by step."""
    use = Trace("noise", seed, seconds).use
    begun = time.monotonic()
    for step, share in enumerate(use):
        end = begun + (step + share) * STEP_S
        if share > 0.1:  # the trace's rest is a sensor's noise, which a real one has by itself
            while time.monotonic() < end:
                pass
        time.sleep(max(0.0, begun + (step + 1) * STEP_S - time.monotonic()))


if __name__ == "__main__":
    play(int(sys.argv[1]), float(sys.argv[2]))
