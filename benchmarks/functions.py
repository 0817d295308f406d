"""Python calls on two single-slot workers of this machine, beside what else does that.

    python -m benchmarks.functions [--peers dask,ray,gpumesh,processpool] [--check] [--json]

Peers run in this interpreter, or in the one that MOREGPU_PEERS_PYTHON names (`pip install "moregpu[bench]"`). Theirs
are neither durable, sealed, signed nor sandboxed; ours are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.function_peers import Calls, measure
from benchmarks.report import ROOT, Result, fsync_seconds, result, run
from moregpu.cli.loopback import LoopbackPool

PEERS_S = 900
WORKERS = ("anna", "ben")
FIGURES = (
    ("one_ms", "one trivial call", "ms", "lower"),
    ("map_s", "500 trivial calls", "calls/s", "higher"),
    ("array_mb_s", "50 results of 4 MiB", "MB/s", "higher"),
    ("kill_s", "20 × 0.25 s, one of two workers killed", "s", "lower"),
)


class Ours:
    """A pool of processes on this machine, TLS, sealing, durable commits, sandboxes."""

    def __init__(self, folder: Path):
        environment = {name: os.environ[name] for name in ("MOREGPU_FUNCTIONS_USER",) if name in os.environ}
        if os.geteuid() == 0:
            environment.setdefault("MOREGPU_FUNCTIONS_USER", "65534")
        self.local = LoopbackPool(folder / "home", environment=environment)
        self.local.start_coordinator()
        for name in WORKERS:
            self.local.start_worker(name, "--allow", "functions", "--ceiling", "1.0")
        self.isolation = self.local.wait_for_workers()[0].isolation
        self.pool = self.local.connect()

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        """As the others are asked: everything at once."""
        return [future.result(240) for future in [self.pool.submit(function, **call) for call in calls]]

    def kill_one(self) -> None:
        """Kill an agent, as its machine might; its supervisor starts another."""
        supervisor = psutil.Process(self.local.workers["anna"].pid)
        for child in supervisor.children():
            child.kill()

    def stop(self) -> None:
        """End."""
        self.pool.close()
        self.local.stop()


def measured(peers: list[str]) -> Callable[[], list[Result]]:
    """What to run."""

    def measure_all() -> list[Result]:
        theirs = {name: _peer(name) for name in peers}
        with tempfile.TemporaryDirectory(prefix="moregpu-bench-") as folder:
            fsync = result("fsync of 4 KiB", [1e3 * spent for spent in fsync_seconds(Path(folder))], "ms")
            ours = Ours(Path(folder))
            try:
                figures = measure(ours)
            finally:
                ours.stop()
        results = [fsync]
        for key, name, unit, better in FIGURES:
            beside = {peer: found[key] for peer, found in theirs.items() if isinstance(found, dict)}
            made = result(name, [figures[key]], unit, better, _bar(key, beside), f"sandbox: {ours.isolation}")  # type: ignore[arg-type]
            made.peers = beside
            results.append(made)
        results += [
            Result(name=peer, value=0.0, unit="", skipped=found)
            for peer, found in theirs.items()
            if isinstance(found, str)
        ]
        return results

    return measure_all


def _bar(key: str, peers: dict[str, float]) -> float | None:
    """What `docs/functions.md` promises beside these."""
    match key:
        case "one_ms" if "ray" in peers:
            return 0.6 * peers["ray"]
        case "map_s" if "ray" in peers:
            return 3.0 * peers["ray"]
        case "array_mb_s" if peers.keys() & {"dask", "ray"}:
            return max(peers.get("dask", 0.0), 0.8 * peers.get("ray", 0.0))
        case "kill_s" if "ray" in peers:
            return peers["ray"] + 0.2
        case _:
            return None


def _peer(name: str) -> dict[str, float] | str:
    python = os.environ.get("MOREGPU_PEERS_PYTHON", sys.executable)
    try:
        done = subprocess.run(
            [python, "-m", "benchmarks.function_peers", name],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PEERS_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {PEERS_S} s"
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else f"exit {done.returncode}"
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Run it."""
    peers: list[str] = []
    words = sys.argv[1:]
    if "--peers" in words:
        place = words.index("--peers")
        peers = [name for name in words[place + 1].split(",") if name]
        del sys.argv[place + 1 : place + 3]
    run("Python functions", measured(peers))


if __name__ == "__main__":
    main()
