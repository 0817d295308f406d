"""What the tray costs while it idles, and how fast it starts, pauses and ends: on a real X server, bus and pool.

python -m benchmarks.tray --check
python -m benchmarks.tray --program dist/moregpu/moregpu-tray --check      the frozen one
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks import report
from benchmarks.report import Result, result
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.wire.api import InviteRequest
from moregpu.workloads import KernelSpec
from tests.tray.desktop import Desktop, compute_processes, desktop, spent, until

STARTS = 7
IDLE_S = 30.0
PAUSES = 5
FIRST = 5
UNLOAD_S = 3
"""The engine leaves memory after ten minutes without a task, unless `unload_s` says otherwise: here it does."""

SETTLED_S = 10.0
"""After the start, what only the start needed is given back."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command: list[str] | None = None
    if "--program" in given:
        place = given.index("--program")
        command = [str(Path(given[place + 1]).absolute())]
        del given[place : place + 2]
    report.run("Tray", lambda: measured(command), given)


def measured(command: list[str] | None) -> list[Result]:
    """All figures."""
    os.environ["MOREGPU_SECRETS"] = "file"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = [_start_to_icon(place, command)]
        with LoopbackPool(place / "pool") as local:
            local.start_coordinator()
            with local.connect() as pool:
                found += _idle(place / "idle", command, pool)
                found += _first_task(place / "first", command, pool)
                found += _pause_and_quit(place / "busy", command, pool)
    return found


def _start_to_icon(place: Path, command: list[str] | None) -> Result:
    taken: list[float] = []
    for number in range(STARTS):
        with desktop(place / f"start{number}", command=command) as found:
            begun = time.monotonic()
            found.tray.start()
            found.panel.icon()
            taken.append(time.monotonic() - begun)
    return result("start to icon", taken, "s", "lower", 1.5)


def _idle(place: Path, command: list[str] | None, pool: Pool) -> list[Result]:
    """What all of its processes cost together; the pool has measured it, and its engine has left memory."""
    with desktop(place, command=command, MOREGPU_YIELD="on") as found:
        process = _joined(found, pool)
        time.sleep(SETTLED_S)
        until(lambda: not process.children(recursive=True))
        before, begun = spent(_tree(process)), time.monotonic()
        time.sleep(IDLE_S)
        share = (spent(_tree(process)) - before) / (time.monotonic() - begun)
        memory = [each.memory_full_info() for each in _tree(process)]
    note = f"of {len(memory)} process{'es' if len(memory) > 1 else ''} together"
    return [
        result("idle", [100 * share], "% of a core", "lower", 0.5, note=note),
        result(
            "memory, no engine loaded: PSS", [sum(each.pss for each in memory) / 1e6], "MB", "lower", 60.0, note=note
        ),
        result(
            "memory, no engine loaded: RSS", [sum(each.rss for each in memory) / 1e6], "MB", "lower", 60.0, note=note
        ),
    ]


def _first_task(place: Path, command: list[str] | None, pool: Pool) -> list[Result]:
    """From submit to result of a small job: the first after idling waits for the engine, the next does not."""
    cold: list[float] = []
    warm: list[float] = []
    with desktop(place, command=command, MOREGPU_YIELD="off") as found:
        process = _joined(found, pool)
        _small_job_s(pool)  # not before it was measured
        for _ in range(FIRST):
            until(lambda: not process.children(recursive=True))
            cold.append(_small_job_s(pool))
            warm.append(_small_job_s(pool))
        found.tray.say("quit")
        process.wait(20)
    return [result("a small job, the first after idling", cold, "s"), result("a small job right after it", warm, "s")]


def _joined(found: Desktop, pool: Pool) -> psutil.Process:
    settings = found.tray.home / "config"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(f"[worker]\nunload_s = {UNLOAD_S}\n")
    process = found.tray.start("join", "--yes", given=pool.invite(InviteRequest(owner="eva")).line)
    found.tray.until(lambda told: told["view"]["status"]["worker"])
    return psutil.Process(process.pid)


def _small_job_s(pool: Pool) -> float:
    begun = time.monotonic()
    pool.submit_job(KernelSpec(operation="vector_add", size=1000, seed=1, name="small", check="none")).result()
    return time.monotonic() - begun


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _pause_and_quit(place: Path, command: list[str] | None, pool: Pool) -> list[Result]:
    with desktop(place, command=command, MOREGPU_YIELD="off") as found:
        process = found.tray.start("join", "--yes", given=pool.invite(InviteRequest(owner="ben")).line)
        found.tray.until(lambda told: told["view"]["status"]["worker"])
        job = pool.submit_job(KernelSpec(operation="matmul", size=12_000, seed=1, name="long", check="none"))
        until(lambda: found.tray.status()["view"]["status"]["running"])
        stops = [_pause(found, process.pid) for _ in range(PAUSES)]
        running = job.status().state == "running"
        begun = time.monotonic()
        found.tray.say("quit")
        process.wait(20)
        ended = time.monotonic() - begun
        job.cancel()
    return [
        result("pause to the last work of the compute process", stops, "s", "lower", 0.1, of=max),
        result("the paused job goes on", [float(running)], "1 = yes", "higher", 1.0),
        result("quit", [ended], "s", "lower", 2.0),
    ]


def _pause(found: Desktop, pid: int) -> float:
    """Click Pause; seconds until the compute process used the processor for the last time (ticks of 10 ms)."""
    children = compute_processes(pid)
    begun = spent(children)
    until(lambda: spent(children) - begun > 0.3)
    until(lambda: "Pause" in found.panel.menu())
    clicked = last = time.monotonic()
    found.panel.click("Pause")
    before = spent(children)
    while time.monotonic() - clicked < 1.0:
        now = spent(children)
        if now != before:
            before, last = now, time.monotonic()
        time.sleep(0.005)
    until(lambda: "Resume" in found.panel.menu())
    found.panel.click("Resume")
    return last - clicked


if __name__ == "__main__":
    main()
