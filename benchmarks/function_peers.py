"""One other system doing the work of `function_work`: two single-slot workers. Prints one JSON object.

python -m benchmarks.function_peers dask|ray|gpumesh|processpool
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple, Protocol

import cloudpickle
import numpy as np
import psutil

from benchmarks import function_work as work

cloudpickle.register_pickle_by_value(work)

Calls = list[dict[str, Any]]
Figures = dict[str, list[float]]
RUNS = 5

BIG_BYTES = 200_000_000
"""There and back, in one argument and one result."""


class Size(NamedTuple):
    """How much of it one system is given."""

    maps: int = 500
    arrays: int = 50
    big_bytes: int = BIG_BYTES
    kills: int = RUNS


FULL = Size()
SIZES = {"gpumesh": Size(maps=100, arrays=10, big_bytes=0, kills=1), "processpool": Size(kills=1)}
"""What takes minutes else: gpumesh moves megabytes a second, and starts no worker again."""


class System(Protocol):
    """What does calls."""

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        """All results, in order."""
        ...

    def kill_one(self) -> None:
        """End one worker by SIGKILL."""
        ...

    def wait_for_two(self) -> None:
        """Wait until two workers are there, where one that was killed comes back."""
        ...

    def stop(self) -> None:
        """End."""
        ...


def measure(system: System, size: Size = FULL, more: Callable[[], Figures] = dict) -> Figures:
    """The figures of one system: each run's value, by name. `more`: others, read before gigabytes go to the disk."""
    os.sync()  # what was written before, and thrown away, is no part of it
    system.map(work.trivial, [{"i": i} for i in range(4)])
    one = [_timed(system, work.trivial, [{"i": i}]) for i in range(15)]
    many = [size.maps / _timed(system, work.trivial, [{"i": i} for i in range(size.maps)]) for _ in range(RUNS)]
    figures = {"one_ms": [1e3 * spent for spent in one], "map_s": many}
    figures["kill_s"] = [_with_a_kill(system) for _ in range(size.kills)]
    system.wait_for_two()
    figures |= more()
    calls = [{"i": i} for i in range(size.arrays)]
    figures["array_mb_s"] = [size.arrays * 4.194304 / _timed(system, work.four_mib, calls) for _ in range(RUNS)]
    if size.big_bytes:
        big = np.random.default_rng(0).random(size.big_bytes // 8)
        figures["big_s"] = [_timed(system, work.echo, [{"array": big}]) for _ in range(RUNS)]
    return figures


def _with_a_kill(system: System) -> float:
    """Twenty calls, while one of two workers is killed after a second."""
    system.wait_for_two()
    timer = threading.Timer(1.0, system.kill_one)
    timer.start()
    try:
        return _timed(system, work.sleeper, [{"i": i, "seconds": 0.25} for i in range(20)])
    finally:
        timer.join()


def _timed(system: System, function: Callable[..., Any], calls: Calls) -> float:
    begun = time.perf_counter()
    results = system.map(function, calls)
    spent = time.perf_counter() - begun
    assert len(results) == len(calls)
    if function is work.echo:
        assert np.array_equal(results[0], calls[0]["array"])
    elif function is not work.four_mib:
        assert results == [function(**{**call, **({"seconds": 0} if "seconds" in call else {})}) for call in calls]
    return spent


class Dask:
    """Over TLS it would be slower; this is its plain TCP."""

    def __init__(self) -> None:
        from distributed import Client, LocalCluster

        self.cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
        self.client = Client(self.cluster)

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        return self.client.gather([self.client.submit(function, **call, pure=False) for call in calls])

    def kill_one(self) -> None:
        os.kill(next(iter(self.cluster.workers.values())).process.process.pid, signal.SIGKILL)

    def wait_for_two(self) -> None:
        """After some kills the cluster forgets the one that it began to start again; it is asked for another then."""
        try:
            self.client.wait_for_workers(2, timeout=20)
        except TimeoutError:
            self.cluster.scale(len(self.cluster.workers))
            self.cluster.scale(2)
            self.client.wait_for_workers(2, timeout=60)

    def stop(self) -> None:
        self.client.close()
        self.cluster.close()


class Ray:
    def __init__(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray = ray
        ray.init(
            num_cpus=2, include_dashboard=False, object_store_memory=1 << 30, log_to_driver=False,
            _node_ip_address="127.0.0.1", _temp_dir=tempfile.mkdtemp(prefix="r"),
        )  # fmt: skip

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        remote = self.ray.remote(function)
        return self.ray.get([remote.remote(**call) for call in calls])

    def kill_one(self) -> None:
        found = [
            p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [""])[0].startswith("ray::sleeper")
        ]
        if found:
            os.kill(found[0].pid, signal.SIGKILL)

    def wait_for_two(self) -> None:
        self.map(work.trivial, [{"i": i} for i in range(4)])

    def stop(self) -> None:
        self.ray.shutdown()


class Processpool:
    """The floor: two processes of this machine, nothing kept, nothing sealed. A worker's death breaks it."""

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(2)

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        try:
            return list(self.pool.map(_opened, [cloudpickle.dumps((function, call)) for call in calls]))
        except OSError:
            return [function(**call) for call in calls]

    def kill_one(self) -> None:
        """It would not survive."""

    def wait_for_two(self) -> None:
        """They are."""

    def stop(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


class Gpumesh:
    def __init__(self) -> None:
        from gpumesh import GPUMesh

        home = tempfile.mkdtemp(prefix="gpumesh")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        token, self.processes = secrets.token_hex(16), []
        self._environment = dict(os.environ, HOME=home, GPUMESH_COLOR="0")
        self._start(
            "serve", "--port", str(port), "--token", token, "--no-discovery", "--no-self-worker", "--db", f"{home}/db"
        )
        self.mesh = GPUMesh(f"http://127.0.0.1:{port}", token=token)
        for _ in range(2):
            self._start("join", f"http://127.0.0.1:{port}", "--token", token)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if sum(worker["alive"] for worker in self.mesh.workers()) >= 2:
                    return
            except Exception:  # noqa: BLE001, S110 — it comes up
                pass
            time.sleep(0.1)

    def _start(self, *words: str) -> None:
        self.processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "gpumesh", *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def map(self, function: Callable[..., Any], calls: Calls) -> list[Any]:
        return self.mesh.distribute(function, calls, timeout=240)

    def kill_one(self) -> None:
        os.kill(self.processes[1].pid, signal.SIGKILL)

    def wait_for_two(self) -> None:
        """They were, at the start."""

    def stop(self) -> None:
        for process in self.processes:
            process.kill()


def _opened(content: bytes) -> Any:
    function, call = cloudpickle.loads(content)
    return function(**call)


SYSTEMS: dict[str, Callable[[], System]] = {"dask": Dask, "ray": Ray, "gpumesh": Gpumesh, "processpool": Processpool}


def main() -> None:
    """Measure one."""
    name = sys.argv[1]
    system = SYSTEMS[name]()
    try:
        figures = measure(system, SIZES.get(name, FULL))
    finally:
        system.stop()
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
