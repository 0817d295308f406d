"""Python calls on two single-slot workers of this machine, beside what else does that.

    python -m benchmarks.functions [--peers dask,ray,gpumesh,processpool] [--check] [--json]

Peers run in this interpreter, or in the one that MOREGPU_PEERS_PYTHON names (`pip install "moregpu[bench]"`). Theirs
are neither durable, sealed, signed nor sandboxed; ours are. All of ours is read a second time on workers on whose
machine nothing confines (`sandbox off`).
"""

from __future__ import annotations

import compileall
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import psutil

from benchmarks import function_work as work
from benchmarks.function_peers import RUNS, Calls, Figures, measure
from benchmarks.report import ROOT, Result, fsync_seconds, result, run
from benchmarks.unconfined import confine_nothing
from moregpu.cli.loopback import LoopbackPool
from moregpu.jobs import JobState

PEERS_S = 900
WORKERS = ("anna", "ben")
OFF = "sandbox off"
MANY = 10_000
NUMPYS = ("numpy", "numpy>=1.26", "numpy>=2", "numpy<9", "numpy!=2.0.0")
"""Five environments that hold the same: none of them is there before."""

STAY_OFF = "functions stay off"
"""A worker's word on why it takes no calls, at the end of its line."""

PRIVATE = (
    "root's private folders, where environments lie, are not shown to functions without a sandbox: run it as a user"
)

STARTED_S = 30.0
_LOOK_S = 0.01


class Figure(NamedTuple):
    """A line of the table."""

    key: str
    name: str
    unit: str
    better: Literal["lower", "higher"]
    bar: Callable[[dict[str, float]], float | None]  # beside these medians of peers


FIGURES = (
    Figure("one_ms", "one trivial call", "ms", "lower", lambda peers: _times(0.6, peers.get("ray"))),
    Figure("map_s", "500 trivial calls", "calls/s", "higher", lambda peers: _times(3.0, peers.get("ray"))),
    Figure("array_mb_s", "50 results of 4 MiB", "MB/s", "higher", lambda peers: _arrays(peers)),
    Figure("big_s", "200 MB there and back, one call", "s", "lower", lambda _: 3.0),
    Figure(
        "kill_s", "20 × 0.25 s, one of two workers killed", "s", "lower", lambda peers: _plus(0.2, peers.get("ray"))
    ),
    Figure("cancel_s", "cancel two calls, until both slots take others", "s", "lower", lambda _: 0.5),
    Figure("grown_mb", "coordinator's memory after 10,000 trivial calls more", "MB", "lower", lambda _: 2.0),
    Figure("build_s", "a call that needs numpy, its environment built for it", "s", "lower", lambda _: 20.0),
    Figure("reuse_ms", "the same again, beyond a call that needs nothing", "ms", "lower", lambda _: 5.0),
)


class Unreadable(Exception):
    """Why there is nothing to read."""


class Ours:
    """A pool of processes on this machine, TLS, sealing, durable commits, sandboxes."""

    def __init__(self, folder: Path):
        environment = {name: os.environ[name] for name in ("MOREGPU_FUNCTIONS_USER",) if name in os.environ}
        # As installed, with its bytecode: a worker that is started again reads it, and so does its sandbox.
        compileall.compile_dir(ROOT / "moregpu", quiet=1)
        if os.geteuid() == 0:
            environment.setdefault("MOREGPU_FUNCTIONS_USER", "65534")
        self.local = LoopbackPool(folder / "home", environment=environment)
        self.local.start_coordinator()
        for name in WORKERS:
            self.local.start_worker(name, "--allow", "functions", "--allow", "unconfined", "--ceiling", "1.0")
        self._victims = itertools.cycle(WORKERS)
        workers = self.local.wait_for_workers()
        if not all("function" in worker.kinds for worker in workers):
            said = self.local.log(WORKERS[0]).strip().splitlines()[-1]
            self.local.stop()
            raise Unreadable(said[said.find(STAY_OFF) :] if STAY_OFF in said else said)
        self.isolation = workers[0].isolation
        self.pool = self.local.connect()

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        """As the others are asked: everything at once."""
        return [future.result(240) for future in [self.pool.submit(function, **call) for call in calls]]

    def kill_one(self) -> None:
        """Kill an agent, as its machine might; its supervisor starts another. The one that was not killed last."""
        supervisor = psutil.Process(self.local.workers[next(self._victims)].pid)
        for child in supervisor.children():
            child.kill()

    def wait_for_two(self) -> None:
        """Wait until both take calls."""
        self.local.wait_for_workers()

    def stop(self) -> None:
        """End."""
        self.pool.close()
        self.local.stop()

    # -- what the others are not asked for

    def more(self) -> Figures:
        """What only ours is asked for."""
        figures = {"cancel_s": [self.cancelled() for _ in range(RUNS)]}
        self.grown()  # what is kept of a bounded number of jobs is full by then
        figures["grown_mb"] = [self.grown() for _ in range(RUNS)]
        if self.isolation != "none" or os.geteuid() != 0:
            figures["build_s"] = [self.with_numpy(requires) for requires in NUMPYS]
            figures["reuse_ms"] = self.reused()
        return figures

    def cancelled(self) -> float:
        """Seconds from the cancelling of two calls that run until two others have run in their place."""
        busy = [self.pool.submit(work.sleeper, i=i, seconds=300.0) for i in range(2)]
        until = time.monotonic() + STARTED_S
        while not all(self._runs(future) for future in busy):
            assert time.monotonic() < until, "calls did not begin"
            time.sleep(_LOOK_S)
        time.sleep(0.3)  # they are given out; now they sleep
        begun = time.perf_counter()
        for future in busy:
            future.cancel()
        self.map(work.trivial, [{"i": i} for i in range(2)])
        return time.perf_counter() - begun

    def _runs(self, future: Any) -> bool:
        return bool(future.job) and self.pool.job(future.job).status().state is JobState.RUNNING

    def coordinator_mb(self) -> float:
        """What the coordinator's processes hold."""
        assert self.local.coordinator is not None
        root = psutil.Process(self.local.coordinator.pid)
        return sum(each.memory_info().rss for each in (root, *root.children(recursive=True))) / 1e6

    def grown(self) -> float:
        """Megabytes that ten thousand more calls leave the coordinator larger by."""
        before = self.coordinator_mb()
        self.map(work.trivial, [{"i": i} for i in range(MANY)])
        return self.coordinator_mb() - before

    def with_numpy(self, requires: str) -> float:
        """Seconds of one call that needs a package."""
        begun = time.perf_counter()
        assert self.pool.calls(requires=[requires]).submit(work.has_numpy, i=1).result(240) == 2
        return time.perf_counter() - begun

    def reused(self) -> list[float]:
        """Milliseconds by which a call in an environment that is there takes longer than one that needs none."""
        pinned = [self.pool.calls(requires=[NUMPYS[0]]).submit(work.sleeper, i=i, seconds=0.5) for i in range(4)]
        for future in pinned:  # both workers have it now, and a warm process
            future.result(240)
        extra: list[float] = []
        for _ in range(RUNS):
            needing = statistics.median(self.with_numpy(NUMPYS[0]) for _ in range(9))
            plain = statistics.median(_seconds(lambda: self.map(work.trivial, [{"i": 1}])) for _ in range(9))
            extra.append(1e3 * (needing - plain))
        return extra


def measure_ours(folder: Path) -> tuple[Figures, str]:
    """All of ours, and what confined it."""
    ours = Ours(folder)
    try:
        return measure(ours, more=ours.more), ours.isolation
    finally:
        ours.stop()


def measured(peers: list[str]) -> Callable[[], list[Result]]:
    """What to run."""

    def measure_all() -> list[Result]:
        theirs = {name: _apart([_python(), "-m", "benchmarks.function_peers", name]) for name in peers}
        os.sync()
        with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
            fsync = result("fsync of 4 KiB", [1e3 * spent for spent in fsync_seconds(Path(folder))], "ms")
            figures, isolation = measure_ours(Path(folder))
        theirs[OFF] = _apart([sys.executable, "-m", "benchmarks.functions", "--unconfined"])
        return [fsync, *_table(figures, isolation, theirs)]

    return measure_all


def _table(figures: Figures, isolation: str, theirs: dict[str, Figures | str]) -> list[Result]:
    """Ours beside the others; the same once more without a sandbox, held to the same bars."""
    results: list[Result] = []
    ours = {f"sandbox: {isolation}": figures}
    off = theirs.pop(OFF)
    if isinstance(off, dict):
        ours[OFF] = off
    for figure in FIGURES:
        beside = {
            peer: statistics.median(found[figure.key])
            for peer, found in theirs.items()
            if isinstance(found, dict) and figure.key in found
        }
        for how, found in ours.items():
            name = figure.name if found is figures else f"  {OFF}"
            if figure.key not in found:
                results.append(Result(name=name, value=0.0, unit="", skipped=PRIVATE))
                continue
            note = how if found is figures and figure is FIGURES[0] else ""
            made = result(name, found[figure.key], figure.unit, figure.better, figure.bar(beside), note)
            made.peers = beside if found is figures else {}
            results.append(made)
    skipped = {**theirs, OFF: off}
    return results + [
        Result(name=peer, value=0.0, unit="", skipped=found, ok=peer != OFF)
        for peer, found in skipped.items()
        if isinstance(found, str)
    ]


def _times(factor: float, peer: float | None) -> float | None:
    return None if peer is None else factor * peer


def _plus(seconds: float, peer: float | None) -> float | None:
    return None if peer is None else peer + seconds


def _arrays(peers: dict[str, float]) -> float | None:
    """What `docs/functions.md` promises where both ends share the coordinator's machine."""
    bars = [peers["dask"]] if "dask" in peers else []
    bars += [0.8 * peers["ray"]] if "ray" in peers else []
    return max(bars, default=None)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _python() -> str:
    return os.environ.get("MOREGPU_PEERS_PYTHON", sys.executable)


def _apart(command: list[str]) -> Figures | str:
    """The figures that a process of its own prints, or why there are none."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PEERS_S, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {PEERS_S} s"
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1][:400] if done.stderr.strip() else f"exit {done.returncode}"
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Run it."""
    if sys.argv[1:] == ["--unconfined"]:
        confine_nothing()
        try:
            with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
                figures, isolation = measure_ours(Path(folder))
        except Unreadable as error:
            sys.exit(str(error))
        assert isolation == "none", f"{isolation} confines here"
        print(json.dumps(figures), flush=True)
        return
    peers: list[str] = []
    words = sys.argv[1:]
    if "--peers" in words:
        place = words.index("--peers")
        peers = [name for name in words[place + 1].split(",") if name]
        del sys.argv[place + 1 : place + 3]
    run("Python functions", measured(peers))


if __name__ == "__main__":
    main()
