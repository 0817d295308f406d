"""The pool end to end: one coordinator and two workers as processes on this machine, TLS, sealing, durable commits.

    python -m benchmarks.pool [--json] [--check]

Says where a tiny job's time goes, not only how long it takes.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import numpy as np
import psutil

from benchmarks.report import Result, fsync_seconds, percentile, result, run
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import Access
from moregpu.client.pool import Pool
from moregpu.jobs import Tensor
from moregpu.wire.api import JobView
from moregpu.workloads.kernel.spec import KernelSpec

WARM = 30
TINY_RUNS = 300
SUBMITTERS = 16
PROCESSES = 4
LOAD_S = 5.0
TINY = KernelSpec(operation="relu", inputs={"a": Tensor(dtype="float32", shape=(4,), data=bytes(16))})
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
                results += _throughput(local, Path(folder))
                results += _arrays(pool, local)
    return results + _starts()


def _tiny_latency(pool: Pool, local: LoopbackPool, fsync_s: float) -> list[Result]:
    """One waiting submitter: a job of four numbers, from the call to the array."""
    for _ in range(WARM):
        pool.submit_job(TINY, wait_s=10).result()
    before = _cpu(local)
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
    after = _cpu(local)
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


def _throughput(local: LoopbackPool, folder: Path) -> list[Result]:
    """Many submitters, each waiting for its own job; as processes, so that no interpreter lock is measured."""
    context = multiprocessing.get_context("spawn")
    stop, ready = context.Event(), context.Barrier(PROCESSES + 1)
    counts = context.Queue()
    access = local.access()
    processes = [
        context.Process(target=_submit_until, args=(access, SUBMITTERS // PROCESSES, ready, stop, counts))
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        ready.wait(60)
        before, begun = _cpu(local), time.perf_counter()
        time.sleep(LOAD_S / 2)
        busy_fsync = fsync_seconds(folder, 20)
        time.sleep(LOAD_S / 2)
        stop.set()
        wall = time.perf_counter() - begun
        after = _cpu(local)
        total = sum(counts.get(timeout=60) for _ in processes)
    finally:
        stop.set()
        for process in processes:
            process.join(60)
    results = [
        Result(
            name=f"tiny jobs a second, {SUBMITTERS} submitters over HTTP",
            value=total / wall,
            unit="jobs/s",
            better="higher",
            bar=1000.0,
            ok=total / wall >= 1000.0,
            note=f"{PROCESSES} client processes on the same cores",
        ),
        result("  fsync of 4 KiB meanwhile", [1e3 * spent for spent in busy_fsync], "ms"),
    ]
    for who in after:
        used = after[who] - before[who]
        results.append(
            Result(
                name=f"  CPU of {who}", value=1e3 * used / total, unit="ms a job", note=f"{used / wall:.0%} of a core"
            )
        )
    return results


def _submit_until(access: Access, threads: int, ready: Barrier, stop: Event, counts: object) -> None:
    """In a process of its own: submit, wait, again."""
    done = [0] * threads

    def submit(index: int, pool: Pool) -> None:
        while not stop.is_set():
            pool.submit_job(TINY, wait_s=20).result()
            done[index] += 1

    with Pool(access) as pool:
        pool.submit_job(TINY, wait_s=20).result()
        ready.wait(60)
        workers = [threading.Thread(target=submit, args=(index, pool)) for index in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    counts.put(sum(done))  # type: ignore[attr-defined]


def _arrays(pool: Pool, local: LoopbackPool) -> list[Result]:
    """Work with weight: products and bulk data, from the call to the array."""
    rng = np.random.default_rng(1)
    A, B = (rng.standard_normal((1024, 1024), dtype=np.float32) for _ in range(2))
    a, b = (rng.standard_normal(4_000_000, dtype=np.float32) for _ in range(2))
    moved_mb = 3 * a.nbytes / 1e6
    results = [
        result("matmul 1024, data mode", _times(lambda: pool.matmul(A, B), 7), "s", "lower", 0.2),
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
    ]
    time.sleep(5.0)  # what it settles at, not its peak
    memory = _memory(local) / 1e6
    return [*results, result("coordinator's memory after that", [memory], "MB", "lower", 150.0)]


def _starts() -> list[Result]:
    """What a person waits for before anything happens."""
    help_s = _times(lambda: subprocess.run([sys.executable, "-m", "moregpu", "--help"], capture_output=True), 7)
    bare_s = statistics.median(_times(lambda: subprocess.run([sys.executable, "-c", "pass"]), 7))
    import_s = _times(lambda: subprocess.run([sys.executable, "-c", "import moregpu"]), 7)
    return [
        result("moregpu --help", help_s, "s", "lower", 0.35),
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


def _cpu(local: LoopbackPool) -> dict[str, float]:
    """CPU seconds so far: the coordinator, all workers with what they started, and this client."""
    assert local.coordinator is not None
    return {
        "the coordinator": _cpu_of(local.coordinator.pid),
        "the workers": sum(_cpu_of(process.pid) for process in local.workers.values()),
        "this client": _cpu_of(psutil.Process().pid, children=False),
    }


def _cpu_of(pid: int, *, children: bool = True) -> float:
    process = psutil.Process(pid)
    family = [process, *(process.children(recursive=True) if children else [])]
    return sum(sum(member.cpu_times()[:2]) for member in family)


def _memory(local: LoopbackPool) -> int:
    assert local.coordinator is not None
    return int(psutil.Process(local.coordinator.pid).memory_info().rss)


if __name__ == "__main__":
    run("The pool, end to end", measure)
