"""The pool end to end: one coordinator and two workers as processes on this machine, TLS, sealing, durable commits.

    python -m benchmarks.pool [--json] [--check]

Says where a tiny job's time goes, not only how long it takes.
"""

from __future__ import annotations

import base64
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.pool_rate import TINY, cpu_seconds, rate
from benchmarks.report import Result, fsync_seconds, percentile, result, run
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.wire.api import Health, JobView

WARM = 30
TINY_RUNS = 300
HEALTH_RUNS = 300
WORKERS = ("anna", "ben")


def measure() -> list[Result]:
    """Everything, in the order in which a reader asks."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
        idle_fsync = fsync_seconds(Path(folder))
        results.append(result("fsync of 4 KiB, idle", [1e3 * spent for spent in idle_fsync], "ms"))
        with LoopbackPool(Path(folder) / "home") as local:
            local.start_coordinator()
            for name in WORKERS:
                local.start_worker(name)
            local.wait_for_workers()
            with local.connect() as pool:
                results += _tiny_latency(pool, local, statistics.median(idle_fsync))
                results += rate(local, Path(folder), "http", 1000.0)
                results += rate(local, Path(folder), "link", 1500.0)
                results += _arrays(pool, local)
                results += _health(pool)
                results += _starts(local)
    return results


def _tiny_latency(pool: Pool, local: LoopbackPool, fsync_s: float) -> list[Result]:
    """One waiting submitter: a job of four numbers, from the call to the array."""
    for _ in range(WARM):
        pool.submit_job(TINY, wait_s=10).result()
    before = cpu_seconds(local)
    spent: list[float] = []
    parts: dict[str, list[float]] = {}
    begun_all = time.perf_counter()
    for _ in range(TINY_RUNS):
        begun = time.perf_counter()
        handle = pool.submit_job(TINY, wait_s=10)
        handle.result()
        total = time.perf_counter() - begun
        spent.append(1e3 * total)
        for part, seconds in _parts(handle.view, total).items():
            parts.setdefault(part, []).append(1e3 * seconds)
    wall = time.perf_counter() - begun_all
    after = cpu_seconds(local)
    quick = fsync_s <= 0.0005
    bar = 3.0 if quick else 2.0 + 1e3 * fsync_s
    results = [
        result("tiny job, one waiting submitter", spent, "ms", "lower", bar),
        result("  p95", spent, "ms", "lower", 2 * bar, of=percentile(0.95)),
    ]
    median = statistics.median(spent)
    for part, values in parts.items():
        share = statistics.median(values) / median
        results.append(result(f"  of which {part}", values, "ms", note=f"{share:.0%}"))
    for who in after:
        used = 1e3 * (after[who] - before[who]) / TINY_RUNS
        results.append(
            Result(
                name=f"  CPU of {who}", value=used, unit="ms a job", note=f"{used * TINY_RUNS / 1e3 / wall:.0%} busy"
            )
        )
    return results


def _parts(view: JobView, total_s: float) -> dict[str, float]:
    """The parts as the coordinator timed them; what is left is the client, HTTP, TLS and the commits around them."""
    timing = view.timing
    known = {
        "queued (until leased)": timing.queued_s,
        "running (out and back, compute)": timing.running_s,
        "checking": timing.checking_s,
        "combining": timing.combining_s,
    }
    return {**known, "client, HTTP, TLS, commit": max(0.0, total_s - sum(known.values()))}


def _arrays(pool: Pool, local: LoopbackPool) -> list[Result]:
    """Work with weight: products and bulk data, from the call to the array."""
    rng = np.random.default_rng(1)
    A, B = (rng.standard_normal((1024, 1024), dtype=np.float32) for _ in range(2))
    a, b = (rng.standard_normal(4_000_000, dtype=np.float32) for _ in range(2))
    moved_mb = 3 * a.nbytes / 1e6
    results = [
        result("matmul 1024, data mode", _times(lambda: pool.matmul(A, B), 7), "s", "lower", 0.2),
        result(
            "  through the base64 call",
            _times(lambda: _old_call(pool, "matmul", A, B, M=1024, K=1024, N=1024), 7),
            "s",
            "lower",
            0.75,
        ),
        result(
            "matmul 2048, benchmark mode, checked",
            _times(lambda: pool.benchmark("matmul", 2048).wait(60), 5),
            "s",
            "lower",
            1.5,
        ),
        result(
            "vector_add of 4 million elements",
            [moved_mb / spent for spent in _times(lambda: pool.vector_add(a, b), 7)],
            "MB/s",
            "higher",
            120.0,
        ),
        result(
            "  through the base64 call",
            [moved_mb / spent for spent in _times(lambda: _old_call(pool, "vector_add", a, b), 5)],
            "MB/s",
            "higher",
            50.0,
        ),
    ]
    time.sleep(5.0)  # what it settles at, not its peak
    memory = _memory(local) / 1e6
    return [*results, result("coordinator's memory after that", [memory], "MB", "lower", 150.0)]


def _old_call(pool: Pool, kernel: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], **sizes: int) -> Any:
    """`POST /submit` as programs of MoreGPU 1.x call it: base64 in JSON, there and back, made and read in the time."""
    data = {name: base64.b64encode(array.data).decode() for name, array in (("a", a), ("b", b))}
    record = pool.doors.call("POST", "/submit", dict[str, Any], body={"kernel": kernel, **data, **sizes}, timeout_s=60)
    return np.frombuffer(base64.b64decode(record["output"]), np.float32)


def _health(pool: Pool) -> list[Result]:
    """How fast the coordinator answers the smallest question while it checks large products."""
    asked = threading.Event()

    def products() -> None:
        while not asked.is_set():
            pool.benchmark("matmul", 2048).wait(60)

    busy = threading.Thread(target=products)
    busy.start()
    spent: list[float] = []
    try:
        for _ in range(HEALTH_RUNS):
            begun = time.perf_counter()
            pool.doors.call("GET", "/health", Health)
            spent.append(1e3 * (time.perf_counter() - begun))
            time.sleep(0.01)
    finally:
        asked.set()
        busy.join()
    return [
        result("/health while products of 2048 are checked", spent, "ms"),
        result("  p95", spent, "ms", "lower", 20.0, of=percentile(0.95)),
    ]


def _starts(local: LoopbackPool) -> list[Result]:
    """What a person waits for before anything happens."""
    help_s = _times(lambda: local.run("--help"), 7)
    workers_s = _times(lambda: local.run("workers"), 7)
    bare_s = statistics.median(_times(lambda: subprocess.run([sys.executable, "-c", "pass"]), 7))
    import_s = _times(lambda: subprocess.run([sys.executable, "-c", "import moregpu"]), 7)
    return [
        result("moregpu --help", help_s, "s", "lower", 0.35),
        result("moregpu workers", workers_s, "s", "lower", 0.5),
        result("import moregpu", [spent - bare_s for spent in import_s], "s", "lower", 0.06),
    ]


def _times(work: Callable[[], object], runs: int) -> list[float]:
    """Seconds of each run, after one to warm up."""
    work()
    spent: list[float] = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begun)
    return spent


def _memory(local: LoopbackPool) -> int:
    assert local.coordinator is not None
    return int(psutil.Process(local.coordinator.pid).memory_info().rss)


if __name__ == "__main__":
    run("The pool, end to end", measure)
