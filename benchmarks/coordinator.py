"""The coordinator's own price: whole task cycles, batched, with workers that cost next to nothing.

    python -m benchmarks.coordinator [--json] [--check]

A cycle is: lease, commit, assign over TLS and Noise, signed result, every check, commit, acknowledgement. Each task is
a job of its own here, so a cycle also ends a job: dearer than a task among many. Two light workers run as processes;
the queue is filled before they come, since filling it is not part of a cycle.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil

from benchmarks.crowd import Crowd
from benchmarks.report import Result, fsync_seconds, result, run
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.jobs import Tensor
from moregpu.workloads.kernel.spec import KernelSpec

TINY = KernelSpec(operation="relu", inputs={"a": Tensor(dtype="float32", shape=(4,), data=bytes(16))})
JOBS = 9_000
WARM = 1_500
"""Cycles before the clock starts: trust doubles from one task, and the workers are tried first."""
SUBMITTERS = 16
LIMIT_S = 60.0
BAR = 5000.0


def measure() -> list[Result]:
    """One run of `JOBS` cycles."""
    with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
        fsync = fsync_seconds(Path(folder))
        with LoopbackPool(Path(folder) / "home") as local:
            local.start_coordinator()
            with local.connect() as pool:
                filled_s = _fill(pool)
            assert local.coordinator is not None
            coordinator = psutil.Process(local.coordinator.pid)
            with Crowd(local, workers=2, processes=2) as crowd:
                figures = _cycles(crowd, coordinator, Path(folder))
    return [
        result("fsync of 4 KiB, idle", [1e3 * spent for spent in fsync], "ms"),
        *figures,
        Result(
            name="jobs a second taken in, nobody waiting",
            value=JOBS / filled_s,
            unit="jobs/s",
            better="higher",
            note=f"{SUBMITTERS} threads of one client",
        ),
    ]


def _fill(pool: Pool) -> float:
    begun = time.perf_counter()
    threads = [
        threading.Thread(target=lambda: [pool.submit_job(TINY) for _ in range(JOBS // SUBMITTERS)])
        for _ in range(SUBMITTERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def _cycles(crowd: Crowd, coordinator: psutil.Process, folder: Path) -> list[Result]:
    first = crowd.wait(lambda said: said.accepted >= WARM, LIMIT_S)
    cpu = sum(coordinator.cpu_times()[:2])
    busy_fsync: list[float] = []
    rates: list[float] = []
    last = first
    total = JOBS // SUBMITTERS * SUBMITTERS
    while last.accepted < total - WARM:
        busy_fsync += fsync_seconds(folder, 3)
        now = crowd.wait(lambda said, before=last: said.at > before.at + 0.2, LIMIT_S)
        rates.append((now.accepted - last.accepted) / (now.at - last.at))
        last = now
    spent = sum(coordinator.cpu_times()[:2]) - cpu
    done = last.accepted - first.accepted
    return [
        result("task cycles a second, batched", rates, "1/s", "higher", BAR),
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
