"""What happens to a contributor's machine in mid task: it sleeps, loses power, disk, clock or the pool for a day."""

from __future__ import annotations

import asyncio
import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import psutil
import pytest

import moregpu.worker.agent
import moregpu.worker.duties
import moregpu.worker.limits
from moregpu.wire.messages import Cancel, Heartbeat, Limits, Policy, Started
from moregpu.worker.agent import Agent
from moregpu.worker.probes.presence import Presence
from moregpu.worker.probes.senses import Senses
from moregpu.worker.probes.surroundings import SurroundingsWatch
from tests.worker.scripted import Coordinator, Machine, endless, ref, tell, tiny
from tests.worker.yielding import OwnLoadOnly

HOURS_S = 6 * 3600.0
Story = Callable[[Coordinator, Machine], Coroutine[Any, Any, None]]


class Clock:
    """The monotonic clock of this process, ahead of the real one by what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._real = time.monotonic
        self.ahead_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self._real() + self.ahead_s)


class Hurried(selectors.DefaultSelector):
    """Where nothing but time would come, time comes at once."""

    clock: Clock
    is_hurried = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.is_hurried or timeout is None or timeout <= 0.0:
            return super().select(timeout)
        found = super().select(min(timeout, 0.002))
        if not found:
            self.clock.ahead_s += timeout
        return found


def on(selector: selectors.BaseSelector) -> Callable[[], asyncio.AbstractEventLoop]:
    """A loop that follows Python's clock."""
    return lambda: asyncio.SelectorEventLoop(selector)


def child_of(agent: Agent) -> psutil.Process:
    pid = agent._computes["cpu"].pid
    assert pid is not None
    return psutil.Process(pid)


def spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def computing(coordinator: Coordinator, machine: Machine) -> psutil.Process:
    """Begin a long task; its process, as soon as it is at it."""
    agent = machine.agent
    assert agent is not None
    await coordinator.until(lambda: agent.status().duty > 0.0)
    await coordinator.assign(endless(1))
    await coordinator.until(lambda: bool(coordinator.all(Started)))
    begun = spent(child_of(agent))
    await coordinator.until(lambda: spent(child_of(agent)) > begun + 0.2)
    return child_of(agent)


# ---- the pool is away for a day ----


@pytest.mark.slow
def test_a_pool_that_is_away_for_hours_is_asked_patiently_and_gets_the_result_that_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moregpu.worker.duties, "DECIDE_S", 60.0)  # or the hours would be 50,000 looks at the schedule
    hurried = Hurried()
    hurried.clock = Clock(monkeypatch)

    async def story(coordinator: Coordinator, machine: Machine) -> None:
        agent = machine.agent
        assert agent is not None
        await coordinator.assign(tiny(1))
        entry = await coordinator.result()
        await coordinator.stop()
        machine.seen.clear()
        hurried.is_hurried = True
        await asyncio.sleep(HOURS_S)
        waits = [status.retry_s for status in machine.seen if status.retry_s is not None]
        assert HOURS_S / 30 < len(waits) < HOURS_S / 10, "four times a minute, once it has been away for long"
        assert agent.status().state == "connecting" and "does not answer" in agent.status().line
        assert agent._computes["cpu"].pid is None, "nothing lies in memory for nothing"
        await coordinator.start()
        await asyncio.sleep(180.0)
        hurried.is_hurried = False
        assert coordinator.results[-1] == entry
        await coordinator.assign(tiny(2))
        await coordinator.until(lambda: coordinator.results[-1].task == "t-2")

    tell(tmp_path, story, loop=on(hurried))


# ---- sleep and wake ----


def test_a_machine_that_slept_for_a_night_goes_on_with_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    async def story(coordinator: Coordinator, machine: Machine) -> None:
        agent = machine.agent
        assert agent is not None
        child = await computing(coordinator, machine)
        child.suspend()  # all of a machine sleeps; the clock that goes on is that of Windows, or of a guest
        clock.ahead_s += 8 * 3600.0
        await coordinator.online(2)
        await asyncio.sleep(1.0)  # several looks at the child
        child.resume()
        before = spent(child)
        await coordinator.until(lambda: spent(child) > before + 0.2)
        assert child_of(agent).pid == child.pid and agent._computes["cpu"].replaced == 0
        await coordinator.until(lambda: coordinator.all(Heartbeat)[-1].held == [ref(endless(1))])
        assert agent.status().failed == 0
        await coordinator.say(Cancel(leases=[ref(endless(1))], reason="enough"))
        await coordinator.until(lambda: agent.status().running == 0)

    tell(tmp_path, story, loop=on(selectors.DefaultSelector()))


# ---- power ----


class Away:
    """A seat that nobody sits at."""

    def presence(self) -> Presence:
        return Presence(idle_s=float("inf"))

    def close(self) -> None:
        pass


def test_the_work_rests_when_the_plug_is_pulled_and_goes_on_with_the_same_task_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moregpu.worker.probes.surroundings.BATTERY_S", 0.1)
    supplies = tmp_path / "power_supply"
    for name, facts in {"BAT0": {"type": "Battery", "status": "Charging"}, "AC": {"type": "Mains"}}.items():
        (supplies / name).mkdir(parents=True)
        for fact, value in facts.items():
            (supplies / name / fact).write_text(value)

    def plug(*, is_in: bool) -> None:
        (supplies / "AC" / "online").write_text("1" if is_in else "0")
        (supplies / "BAT0" / "status").write_text("Charging" if is_in else "Discharging")

    def sense(noticed: Callable[[], None], cpu: Any) -> Senses:
        return Senses(noticed, OwnLoadOnly(cpu._own), Away, lambda changed: SurroundingsWatch(changed, supplies))

    monkeypatch.setattr(moregpu.worker.agent.Agent.__init__, "__kwdefaults__", {
        **(moregpu.worker.agent.Agent.__init__.__kwdefaults__ or {}), "sense": sense,
    })  # fmt: skip
    plug(is_in=True)

    async def story(coordinator: Coordinator, machine: Machine) -> None:
        agent = machine.agent
        assert agent is not None
        child = await computing(coordinator, machine)
        plug(is_in=False)
        await coordinator.until(lambda: "on battery" in agent.status().line)
        await coordinator.until(lambda: _rests(child))
        assert agent.status().running == 1, "nothing is lost"
        plug(is_in=True)
        before = spent(child)
        await coordinator.until(lambda: spent(child) > before + 0.2)

    tell(tmp_path, story, yields=True)


def _rests(process: psutil.Process) -> bool:
    before = spent(process)
    time.sleep(0.3)
    return spent(process) == before


# ---- the clock on the wall ----


def test_a_clock_that_is_set_opens_and_closes_the_schedule_and_costs_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall = [datetime(2026, 3, 2, 23, 0)]

    class Set(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return wall[0].astimezone(tz)

    monkeypatch.setattr(moregpu.worker.limits, "datetime", Set)

    async def story(coordinator: Coordinator, machine: Machine) -> None:
        agent = machine.agent
        assert agent is not None
        child = await computing(coordinator, machine)
        wall[0] -= timedelta(hours=11)  # noon
        await coordinator.until(lambda: "outside the schedule" in agent.status().line)
        await coordinator.until(lambda: _rests(child))
        wall[0] += timedelta(days=400, hours=11)  # an empty battery on the board, then the network's time
        before = spent(child)
        await coordinator.until(lambda: spent(child) > before + 0.2)
        assert agent.status().running == 1 and coordinator.connections == 1

    tell(tmp_path, story, schedule="22:00-07:00")


# ---- the disk ----


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_FSIZE of another process")
def test_a_full_disk_costs_the_log_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from moregpu.platform import logs

    handler = logs.set_up(path=tmp_path / "logs" / "worker.log")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    async def story(coordinator: Coordinator, machine: Machine) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # every write to a file fails from here on
        try:
            await coordinator.assign(tiny(1))
            entry = await coordinator.result()
            coordinator.cut()
            assert await coordinator.result(2) == entry, "it is kept in memory"
            await asyncio.sleep(0.3)  # it is older than a result that is not written
            await coordinator.acknowledge(entry)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    try:
        tell(tmp_path, story)
    finally:
        handler.close()
        import logging

        logging.getLogger().removeHandler(handler)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_invite_that_cannot_be_noted_is_told_in_words(tmp_path: Path) -> None:
    async def an_invite() -> str:
        coordinator = Coordinator(tmp_path / "certificate")
        coordinator.port = 1
        return coordinator.invite.line()

    line = asyncio.run(an_invite())
    for command in (["-m", "moregpu", "join"], ["-m", "moregpu_tray", "join", "--yes", "--exit"]):
        status, said = _on_a_full_disk(tmp_path, command, line)
        assert status == 9, said
        assert "cannot be written" in said and "space" in said
        assert "Traceback" not in said


def _on_a_full_disk(folder: Path, command: list[str], given: str) -> tuple[int, str]:
    import subprocess

    def fill() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    home = folder / command[1]
    read, write = os.pipe()  # a pipe, since a file could not be written
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "MOREGPU_HOME": str(home), "MOREGPU_SECRETS": "file"},
        stdin=subprocess.PIPE, stdout=write, stderr=write, text=True, preexec_fn=fill,
    )  # fmt: skip
    os.close(write)
    process.communicate(given, timeout=60)
    with os.fdopen(read) as said:
        return process.returncode, said.read()


# ---- who says how much ----


def test_an_admin_who_asks_for_more_than_the_owner_allows_gets_what_the_owner_allows(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator, machine: Machine) -> None:
        agent = machine.agent
        assert agent is not None
        await coordinator.say(Policy(limits=Limits(ceiling=1.0)))
        await coordinator.until(lambda: agent.status().asked == 1.0)
        await coordinator.assign(tiny(1))
        await coordinator.result()
        assert agent.status().ceiling == 0.5
        assert coordinator.duty == 0.5
        assert coordinator.all(Heartbeat)[-1].duty["cpu"] <= 0.5

    tell(tmp_path, story, ceiling=0.5)
