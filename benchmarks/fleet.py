"""A coordinator with many workers: what idle ones cost, how they come back, what bulk data does to heartbeats.

    python -m benchmarks.fleet [--workers N] [--idle] [--blobs] [--heartbeats] [--restart] [--json] [--check]

Workers are light (real sessions over TLS and Noise, no compute), in a few processes. Bars are those of 10,000 workers;
with fewer, the CPU's bar is their share of it. A part that is named is read alone (its workers enrol in any case).
Light workers share the machine with the coordinator, so beside the time of a return stands the CPU of both. Each figure
is said on standard error as it comes, the table at the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path

import psutil

from benchmarks.crowd import Crowd, Said
from benchmarks.report import Result, fsync_seconds, result, run, say, tell
from moregpu.blobs import nearby
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool

WORKERS = 10_000
PROCESSES = 2
JOIN_S = 900.0
TELL_S = 10.0
SETTLED_SHARE = 0.05
"""Trials have ended when the coordinator takes less of a core than this and twice the bar of so many workers."""
SETTLE_S = 60.0
CALM_S = 50.0
"""Then who came last has beaten twice as a newcomer does, and may be silent for longer from there on."""
IDLE_S = 20.0
PARTS = ("idle", "blobs", "heartbeats", "restart")
BLOB_BYTES = 64 << 20
MOVED = 4
SATURATED_S = 16.0
STREAMS = 2


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = {f"--{part}" for part in PARTS} & set(given)

    def measured(workers: int) -> list[Result]:
        return measure(workers, {word[2:] for word in words} or set(PARTS))

    run("The coordinator with many workers", measured, [word for word in given if word not in words], workers=WORKERS)


def measure(workers: int, parts: Set[str]) -> list[Result]:
    """Some parts, in one pool."""
    nearby.find = lambda pin, address: None  # files of this machine would go round the link that is measured
    with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
        fsync = fsync_seconds(Path(folder))
        with LoopbackPool(Path(folder) / "home") as local:
            local.start_coordinator()
            bare_mb = _memory_mb(local)
            begun = time.perf_counter()
            with Crowd(local, workers, PROCESSES) as crowd:
                crowd.wait(_told(workers, lambda said: said.online == workers), JOIN_S)
                joined = workers / (time.perf_counter() - begun)
                results = tell(
                    result("fsync of 4 KiB, idle", [1e3 * spent for spent in fsync], "ms"),
                    Result(name=f"{workers:,} workers enrol and are tried", value=joined, unit="1/s", better="higher"),
                )
                if "idle" in parts:
                    results += tell(*_idle(local, workers, bare_mb))
                if "blobs" in parts:
                    results += tell(*_blobs(local))
                if "heartbeats" in parts:
                    results += tell(_heartbeats_under_load(local, crowd))
                if "restart" in parts:
                    results += tell(*_restart(local, crowd, workers))
    return results


def _told(workers: int, condition: Callable[[Said], bool]) -> Callable[[Said], bool]:
    """The condition, which says now and then how many are there."""
    due = time.monotonic() + TELL_S

    def holds(said: Said) -> bool:
        nonlocal due
        if time.monotonic() > due:
            due += TELL_S
            say(f"{said.online:,} of {workers:,} workers are there")
        return condition(said)

    return holds


def _idle(local: LoopbackPool, workers: int, bare_mb: float) -> list[Result]:
    bar = 5.0 * workers / WORKERS
    until = time.monotonic() + SETTLE_S
    while _share(local, 2.0) > SETTLED_SHARE + 2.0 * bar / 100 and time.monotonic() < until:
        pass
    newcomers = _share(local, CALM_S)
    share, memory_mb = _share(local, IDLE_S), _memory_mb(local)
    return [
        _bounded(f"CPU of the coordinator, {workers:,} idle workers", 100 * share, "% of a core", bar),
        Result(name="  just before, while the last beat as newcomers", value=100 * newcomers, unit="% of a core"),
        _bounded("  its memory", memory_mb, "MB", 450.0),
        Result(name="  a worker", value=1e3 * (memory_mb - bare_mb) / workers, unit="kB"),
    ]


def _share(local: LoopbackPool, seconds: float) -> float:
    """Of one core that the coordinator takes."""
    before, begun = _cpu_s(local), time.perf_counter()
    time.sleep(seconds)
    return (_cpu_s(local) - before) / (time.perf_counter() - begun)


def _blobs(local: LoopbackPool) -> list[Result]:
    """MB moved for each second of the coordinator's CPU, one stream, sealed and opened by the client."""
    data = bytearray(os.urandom(1 << 20)) * (BLOB_BYTES >> 20)
    up: list[float] = []
    down: list[float] = []
    before_mb = peak_mb = _memory_mb(local)
    with local.connect() as pool:
        blobs = pool.blobs()
        for _ in range(MOVED):
            cpu = _cpu_s(local)
            blob = blobs.upload_stream(data)
            up.append(BLOB_BYTES / 1e6 / max(0.01, _cpu_s(local) - cpu))
            peak_mb = max(peak_mb, _memory_mb(local))
            cpu = _cpu_s(local)
            blobs.download_into(blob, data)
            down.append(BLOB_BYTES / 1e6 / max(0.01, _cpu_s(local) - cpu))
            peak_mb = max(peak_mb, _memory_mb(local))
    return [
        result("blob upload, by a core of the coordinator", up, "MB/s", "higher", 220.0),
        result("blob download, by a core of the coordinator", down, "MB/s", "higher", 420.0),
        _bounded("  memory that it takes for that", peak_mb - before_mb, "MB", 32.0),
    ]


def _heartbeats_under_load(local: LoopbackPool, crowd: Crowd) -> Result:
    """Streams that never rest, while heartbeats go their way."""
    ending = threading.Event()
    with local.connect() as pool:
        streams = [threading.Thread(target=_stream, args=(pool, ending.is_set)) for _ in range(STREAMS)]
        for stream in streams:
            stream.start()
        time.sleep(SATURATED_S)
        said = crowd.said
        ending.set()
        for stream in streams:
            stream.join()
    found = _bounded("p99 of heartbeats while blobs saturate it", said.p99_s, "s", 1.0)
    found.note, found.ok = f"{said.trips} round trips", found.ok and said.trips > 0
    return found


def _stream(pool: Pool, ended: Callable[[], bool]) -> None:
    blobs, data = pool.blobs(), bytearray(BLOB_BYTES // 4)
    while not ended():
        blobs.download_into(blobs.upload_stream(data), data)


def _restart(local: LoopbackPool, crowd: Crowd, workers: int) -> list[Result]:
    """Kill it, start it again: how long until everybody is back."""
    local.kill_coordinator()
    killed = time.time()
    local.start_coordinator()
    answers = time.time()
    before = _cpu_s(local), crowd.cpu_s()

    def back(said: Said) -> bool:
        return said.online == workers and said.last_welcome > killed and said.at > killed + 2.0

    said = crowd.wait(_told(workers, back), JOIN_S)
    spent = _cpu_s(local) - before[0], crowd.cpu_s() - before[1]
    bar = 10.0 if workers <= 2000 else 35.0
    return [
        _bounded(f"{workers:,} workers are back after a restart", max(0.0, said.last_welcome - answers), "s", bar),
        Result(name="  from the kill until it answers", value=answers - killed, unit="s"),
        Result(name="  CPU of the coordinator, a worker", value=1e3 * spent[0] / workers, unit="ms"),
        Result(name="  CPU of a light worker", value=1e3 * spent[1] / workers, unit="ms"),
    ]


def _bounded(name: str, value: float, unit: str, bar: float) -> Result:
    return Result(name=name, value=value, unit=unit, better="lower", bar=bar, ok=value <= bar)


def _cpu_s(local: LoopbackPool) -> float:
    assert local.coordinator is not None
    return sum(psutil.Process(local.coordinator.pid).cpu_times()[:2])


def _memory_mb(local: LoopbackPool) -> float:
    assert local.coordinator is not None
    return psutil.Process(local.coordinator.pid).memory_info().rss / 1e6


if __name__ == "__main__":
    main()
