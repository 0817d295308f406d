"""How many tiny jobs a pool takes in a second, by each of its doors, and what each costs every part in CPU."""

from __future__ import annotations

import multiprocessing
import secrets
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Literal

import psutil

from benchmarks.report import Result, fsync_seconds, result
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import Access
from moregpu.client.pool import Pool
from moregpu.errors import MoreGPUError
from moregpu.jobs import JobState, Tensor
from moregpu.wire.api import JobView
from moregpu.workloads.kernel.spec import KernelSpec

SUBMITTERS = 16
PROCESSES = 4
LOAD_S = 5.0
TINY = KernelSpec(operation="relu", inputs={"a": Tensor(dtype="float32", shape=(4,), data=bytes(16))})

By = Literal["http", "link"]
_NAMES: dict[By, str] = {"http": "over HTTP", "link": "by the SDK's link"}


def rate(local: LoopbackPool, folder: Path, by: By, bar: float) -> list[Result]:
    """Many submitters, each waiting for its own job; as processes, so that no interpreter lock is measured."""
    context = multiprocessing.get_context("spawn")
    stop, ready = context.Event(), context.Barrier(PROCESSES + 1)
    counts = context.Queue()
    access = local.access()
    processes = [
        context.Process(target=_submit_until, args=(access, SUBMITTERS // PROCESSES, by, ready, stop, counts))
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        ready.wait(60)
        submitters = [process.pid for process in processes if process.pid]
        before, begun = cpu_seconds(local, submitters), time.perf_counter()
        time.sleep(LOAD_S / 2)
        busy_fsync = fsync_seconds(folder, 20)
        time.sleep(LOAD_S / 2)
        after = cpu_seconds(local, submitters)
        stop.set()
        wall = time.perf_counter() - begun
        total = sum(counts.get(timeout=60) for _ in processes)
    finally:
        stop.set()
        for process in processes:
            process.join(60)
    results = [
        Result(
            name=f"tiny jobs a second, {SUBMITTERS} submitters {_NAMES[by]}",
            value=total / wall,
            unit="jobs/s",
            better="higher",
            bar=bar,
            ok=total / wall >= bar,
            note=f"{PROCESSES} client processes on the same cores",
        ),
        result("  fsync of 4 KiB meanwhile", [1e3 * spent for spent in busy_fsync], "ms"),
    ]
    for who, until in after.items():
        used = until - before[who]
        note = f"{used / wall:.0%} of a core"
        results.append(Result(name=f"  CPU of {who}", value=1e3 * used / total, unit="ms a job", note=note))
    return results


def cpu_seconds(local: LoopbackPool, clients: list[int] | None = None) -> dict[str, float]:
    """CPU seconds so far: the coordinator, all workers with what they started, and who submits (default: this)."""
    assert local.coordinator is not None
    return {
        "the coordinator": _cpu_of(local.coordinator.pid),
        "the workers": sum(_cpu_of(process.pid) for process in local.workers.values()),
        "the submitters": sum(_cpu_of(pid, children=False) for pid in clients or [psutil.Process().pid]),
    }


def _submit_until(access: Access, threads: int, by: By, ready: Barrier, stop: Event, counts: object) -> None:
    """In a process of its own: submit, wait, again."""
    done = [0] * threads

    def submit(index: int, once: Callable[[], None]) -> None:
        while not stop.is_set():
            once()
            done[index] += 1

    with Pool(access) as pool:
        once = (lambda: by_http(pool)) if by == "http" else (lambda: by_link(pool))
        once()
        ready.wait(60)
        workers = [threading.Thread(target=submit, args=(index, once)) for index in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    counts.put(sum(done))  # type: ignore[attr-defined]


def by_link(pool: Pool) -> None:
    """One tiny job as `pool.kernel(…).result()` runs it."""
    pool.submit_job(TINY, wait_s=20).result()


def by_http(pool: Pool) -> None:
    """One tiny job as `curl` runs it: one held request."""
    view = pool.doors.call(
        "POST", "/v1/jobs", JobView, body=TINY, query={"wait": "20"}, idempotency_key=secrets.token_hex(16)
    )
    if view.state is not JobState.DONE:
        raise MoreGPUError(f"{view.id} is {view.state}")


def _cpu_of(pid: int, *, children: bool = True) -> float:
    process = psutil.Process(pid)
    family = [process, *(process.children(recursive=True) if children else [])]
    return sum(sum(member.cpu_times()[:2]) for member in family)
