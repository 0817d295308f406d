"""The coordinator's own price: whole task cycles, batched, with workers that cost next to nothing.

    python -m benchmarks.coordinator [--json] [--check]

A cycle is: lease, commit, assign over TLS and Noise, signed result, every check, commit, acknowledgement. Two light
workers run as processes; the queue is filled before they come, since filling it is not part of a cycle. It is measured
twice, each time in a pool of its own:

- each task a job of its own, a tiny kernel: so a cycle also ends a job, and its outputs are computed again here.
- all tasks of one job, a map of calls that are a task each: so a cycle also cuts its task from the job, and counts
  it there; nobody here can compute a call again. What ends the job at last is no part of it.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.crowd import Crowd
from benchmarks.report import Result, fsync_seconds, result, run
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.jobs import Tensor
from moregpu.workloads.function.spec import FunctionSpec
from moregpu.workloads.kernel.spec import KernelSpec

TASKS = 8_992
WARM = 1_500
"""Cycles before the clock starts: trust doubles from one task, and the workers are tried first."""
SUBMITTERS = 16
LIMIT_S = 60.0
BAR = 5000.0

TINY = KernelSpec(operation="relu", inputs={"a": Tensor(dtype="float32", shape=(4,), data=bytes(16))})
ARGUMENT = bytes(4)
CALLS = FunctionSpec(
    calls=(len(ARGUMENT),) * TASKS,
    inputs={
        "program": Tensor(dtype="uint8", shape=(8,), data=bytes(8)),
        "arguments": Tensor(dtype="uint8", shape=(TASKS * len(ARGUMENT),), data=TASKS * ARGUMENT),
    },
    isolate="task",
)
"""Light workers look at neither: a call is taken to give `None`."""


def measure() -> list[Result]:
    """One run of `TASKS` cycles of either form."""
    with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
        fsync = fsync_seconds(Path(folder))
    filled_s, each_a_job = _run(_fill, "task cycles a second, batched")
    _, of_one_job = _run(_fill_with_one, "the same, tasks of one job")
    return [
        result("fsync of 4 KiB, idle", [1e3 * spent for spent in fsync], "ms"),
        *each_a_job,
        *of_one_job,
        Result(
            name="jobs a second taken in, nobody waiting",
            value=TASKS / filled_s,
            unit="jobs/s",
            better="higher",
            note=f"{SUBMITTERS} threads of one client",
        ),
    ]


def _run(fill: Callable[[Pool], None], name: str) -> tuple[float, list[Result]]:
    """Seconds that filling a new pool's queue took, and what its cycles came to."""
    with (
        tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder,
        LoopbackPool(Path(folder) / "home") as local,
    ):
        local.start_coordinator()
        with local.connect() as pool:
            begun = time.perf_counter()
            fill(pool)
            filled_s = time.perf_counter() - begun
        assert local.coordinator is not None
        coordinator = psutil.Process(local.coordinator.pid)
        with Crowd(local, workers=2, processes=2) as crowd:
            return filled_s, _cycles(crowd, coordinator, Path(folder), name)


def _fill(pool: Pool) -> None:
    threads = [
        threading.Thread(target=lambda: [pool.submit_job(TINY) for _ in range(TASKS // SUBMITTERS)])
        for _ in range(SUBMITTERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _fill_with_one(pool: Pool) -> None:
    pool.submit_job(CALLS)


def _cycles(crowd: Crowd, coordinator: psutil.Process, folder: Path, name: str) -> list[Result]:
    first = crowd.wait(lambda said: said.accepted >= WARM, LIMIT_S)
    cpu = sum(coordinator.cpu_times()[:2])
    busy_fsync: list[float] = []
    rates: list[float] = []
    last = first
    while last.accepted < TASKS - WARM:
        busy_fsync += fsync_seconds(folder, 3)
        now = crowd.wait(lambda said, before=last: said.at > before.at + 0.2, LIMIT_S)
        rates.append((now.accepted - last.accepted) / (now.at - last.at))
        last = now
    spent = sum(coordinator.cpu_times()[:2]) - cpu
    done = last.accepted - first.accepted
    return [
        result(name, rates, "1/s", "higher", BAR),
        Result(name="  over the whole run", value=done / (last.at - first.at), unit="1/s", better="higher"),
        Result(
            name="  CPU of the coordinator",
            value=1e6 * spent / done,
            unit="µs a cycle",
            note=f"{spent / (last.at - first.at):.0%} of a core",
        ),
        result("  fsync of 4 KiB meanwhile", [1e3 * each for each in busy_fsync], "ms", of=statistics.median),
    ]


if __name__ == "__main__":
    run("The coordinator's cycles", measure)
