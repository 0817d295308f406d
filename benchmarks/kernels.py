"""The WGSL kernel library on this machine's adapter: the best variants against the naive one, against peers, overheads.

    python -m benchmarks.kernels [--json] [--check]

A software adapter's figures are labelled so; shares of a real GPU's peak and bandwidth come from a real GPU only.
`python -m benchmarks.kernel_peers` gets what the comparison with onnxruntime-webgpu needs, a newer Mesa among it: then
everything here runs on that.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from moregpu_kernels.compiled import Resident
from moregpu_kernels.device import Device, open_device
from moregpu_kernels.errors import NoAdapter
from moregpu_kernels.executor import Executor
from moregpu_kernels.fuse import Step, step

from benchmarks import kernel_peers
from benchmarks.cpu_engine import one_thread
from benchmarks.kernel_overheads import SMALL, apart
from benchmarks.report import Result, percentile, result, run

RUNS = 7
PEER_SIZES = (512, 1024, 2048)
PEER_TIMEOUT_S = 300
CHAIN_ELEMENTS = 1 << 22

Work = Callable[[], object]


def measure() -> list[Result]:
    """Everything on the best adapter there is, in one process."""
    cpu = _numpy_engine()
    kernel_peers.use_driver()
    try:
        device = open_device()
    except NoAdapter as error:
        return [*cpu, Result(name="GPU kernels", value=float("nan"), unit="", skipped=f"missing: {error.detail}")]
    executor = Executor(device)
    note = f"{device.info.label}, {device.info.driver}"
    results = [*_product(executor, note), *_peer(executor, note)]
    results += [*_overheads(device, note), _chain(executor, note), *_slices(executor, note)]
    results += _share_of_peak(executor, note)
    return [*results, *cpu]


def alternating(works: dict[str, Work], device: Device | None = None) -> dict[str, list[float]]:
    """Seconds of each, one after the other in turn: what else the machine does meets all alike.

    On a software device they are seconds of CPU: it is threads of this process, and what they wait for is others.
    """
    clock = time.process_time if device is not None and device.info.is_software else time.perf_counter
    for work in works.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(RUNS):
        for name, work in works.items():
            begun = clock()
            work()
            seconds[name].append(clock() - begun)
    return seconds


def _numpy_engine() -> list[Result]:
    """The worker's CPU engine against the same in plain NumPy, in a process with one BLAS thread (`cpu_engine.py`)."""
    command = [sys.executable, "-m", "benchmarks.cpu_engine"]
    done = subprocess.run(command, env=one_thread(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return [result(f"CPU engine / plain NumPy: {why}", [float("nan")], "×", "lower", 1.1)]
    return [
        result(f"CPU engine / plain NumPy, {name}", ratios, "×", "lower", 1.1, "CPU time of one thread")
        for name, ratios in json.loads(done.stdout).items()
    ]


def _uploaded(executor: Executor, *shapes: tuple[int, ...]) -> list[Resident]:
    rng = np.random.default_rng(0)
    return [executor.upload(rng.standard_normal(shape, dtype=np.float32)) for shape in shapes]


def _product(executor: Executor, note: str) -> list[Result]:
    """512³ on resident inputs: the library's own choice against one invocation an element."""
    a, b = _uploaded(executor, (512, 512), (512, 512))
    feeds = {"a": a, "b": b}
    one = [step("matmul", {"a": "a", "b": "b"}, "c")]
    seconds = alternating(
        {
            "best": lambda: executor.run(one, feeds, ["c"]),
            "naive": lambda: executor.run(one, feeds, ["c"], variant="naive"),
        },
        executor.device,
    )
    ratios = [slow / quick for slow, quick in zip(seconds["naive"], seconds["best"], strict=True)]
    for resident in (a, b):
        executor.release(resident)
    gflops = [2 * 512**3 / one_s / 1e9 for one_s in seconds["best"]]
    note += ", CPU time" if executor.device.info.is_software else ""
    return [
        result("product 512: best variant / naive", ratios, "×", "higher", 10.0, note),
        result("product 512, inputs resident, result read", gflops, "GFLOP/s", note=note),
    ]


def _peer(executor: Executor, note: str) -> list[Result]:
    """The same product by onnxruntime's WebGPU provider, in turn: both upload their inputs and read the result."""
    rng = np.random.default_rng(0)
    results: list[Result] = []
    for size in PEER_SIZES:
        name = f"product {size}: onnxruntime-webgpu / ours"
        with Peer(size) as peer:
            if peer.skipped:
                results.append(Result(name=name, value=float("nan"), unit="×", skipped=peer.skipped, note=note))
                continue
            arrays = {key: rng.standard_normal((size, size), dtype=np.float32) for key in ("a", "b")}
            executor.apply("matmul", arrays)
            ours: list[float] = []
            theirs: list[float] = []
            for _ in range(RUNS if size < PEER_SIZES[-1] else 5):
                theirs.append(peer.seconds())
                begun = time.perf_counter()
                executor.apply("matmul", arrays)
                ours.append(time.perf_counter() - begun)
        one = result(name, [t / o for t, o in zip(theirs, ours, strict=True)], "×", "higher", 1.2, note)
        one.peers = {"onnxruntime-webgpu, s": statistics.median(theirs), "ours, s": statistics.median(ours)}
        results.append(one)
    return results


class Peer:
    """`matmul_peer.py` in a process of its own; `skipped` says why it does not run here."""

    def __init__(self, size: int):
        self._command = [kernel_peers.python(), str(Path(__file__).with_name("matmul_peer.py")), str(size)]
        self._process: subprocess.Popen[str] | None = None
        self.skipped = "it ended without an answer"

    def __enter__(self) -> Peer:
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError as error:
            self.skipped = f"it does not start: {error}"
            return self
        # A driver that hangs ends the process, and with it the waiting for a line.
        self._timer = threading.Timer(PEER_TIMEOUT_S, self._process.kill)
        self._timer.start()
        for line in self._process.stdout or ():
            if line.startswith("{"):
                self.skipped = str(json.loads(line).get("skipped", ""))
                break
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._timer.cancel()
            self._process.kill()
            self._process.communicate()

    def seconds(self) -> float:
        """Seconds of one run, measured over there."""
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            return float("nan")
        try:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            return float(self._process.stdout.readline() or "nan")
        except (OSError, ValueError):
            return float("nan")


def _overheads(device: Device, note: str) -> list[Result]:
    """Of our calls; a software adapter's own threads, which it wakes for each dispatch, are shown beside."""
    if not device.info.is_software:
        return _overhead(True, note, "", 150.0, 25.0)
    return [
        *_overhead(False, f"{note}, all in one thread (LP_NUM_THREADS=0)", "", 150.0, 25.0),
        *_overhead(True, note, ", with the driver's own threads", None, None),
    ]


def _overhead(threads: bool, note: str, suffix: str, bar: float | None, bar_each: float | None) -> list[Result]:
    names = (f"one warm dispatch above a bare submit{suffix}", f"{SMALL} small operations in one submit, each{suffix}")
    try:
        seconds = apart(threads=threads)
    except OSError as error:
        return [result(f"{name}: {error}", [float("nan")], "µs", "lower", bar or 0.0) for name in names]
    empty = statistics.median(seconds["empty"])
    above = [1e6 * (one - empty) for one in seconds["single"]]
    each = [1e6 * one / SMALL for one in seconds["hundred"]]
    one, hundred = (
        result(names[0], above, "µs", "lower", bar, note),
        result(names[1], each, "µs", "lower", bar_each, note),
    )
    one.peers = {"only recorded, nothing read": 1e6 * (statistics.median(seconds["recorded"]) - empty)}
    hundred.peers = {"only recorded": 1e6 * statistics.median(seconds["hundred recorded"]) / SMALL}
    if seconds["submits"] != [1]:
        hundred.ok, hundred.note = False, f"{note}: it took {seconds['submits'][0]} submits"
    return [one, hundred]


def _chain(executor: Executor, note: str) -> Result:
    """Five elementwise operations on 16 MiB, resident."""
    (x,) = _uploaded(executor, (CHAIN_ELEMENTS,))
    five: list[Step] = [
        step("scale", {"a": "x"}, "p", scalar=2.0),
        step("vector_add", {"a": "p", "b": "x"}, "q"),
        step("relu", {"a": "q"}, "r"),
        step("vector_mul", {"a": "r", "b": "x"}, "s"),
        step("scale", {"a": "s"}, "t", scalar=0.5),
        step("sum", {"a": "t"}, "total"),
    ]
    seconds = alternating(
        {
            "fused": lambda: executor.run(five, {"x": x}, ["total"]),
            "unfused": lambda: executor.run(five, {"x": x}, ["total"], fused=False),
            "sum": lambda: executor.run([step("sum", {"a": "x"}, "total")], {"x": x}, ["total"]),
        },
        executor.device,
    )
    executor.release(x)
    # The sum keeps 16 MiB from being read back, which would drown the difference; its own time is taken off.
    rest = statistics.median(seconds["sum"])
    ratios = [(slow - rest) / (quick - rest) for slow, quick in zip(seconds["unfused"], seconds["fused"], strict=True)]
    return result("chain of five: unfused / fused", ratios, "×", "higher", 2.5, note)


def _slices(executor: Executor, note: str) -> list[Result]:
    """The longest between two calls of the throttle's hook, in products of about a second: work, and by the clock."""
    software = executor.device.info.is_software
    side, cores = (1024, os.cpu_count() or 1) if software else (8192, 1)
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((side, side), dtype=np.float32) for name in ("a", "b")}
    executor.apply("matmul", arrays)
    waits: list[float] = []
    works: list[float] = []
    for _ in range(3):
        marks: list[tuple[float, float]] = []

        def mark(into: list[tuple[float, float]] = marks) -> None:
            into.append((time.perf_counter(), time.process_time()))

        executor.apply("matmul", arrays, between=mark)
        for before, after in itertools.pairwise(marks):
            waits.append(1e3 * (after[0] - before[0]))
            works.append(1e3 * (after[1] - before[1]) / cores)
    name = f"product {side}: 95 of 100 slices"
    work = [result(f"{name} work at most", works, "ms", "lower", 20.0, note, of=percentile(0.95))] if software else []
    return [
        *work,
        result(f"{name} are over in", waits, "ms", "lower", 50.0 if software else 20.0, note, of=percentile(0.95)),
    ]


def _share_of_peak(executor: Executor, note: str) -> list[Result]:
    names = ("product 4096: share of the measured peak", "vector_add: share of the copy bandwidth")
    if executor.device.info.is_software:
        why = "software adapter: such a share is a real GPU's figure"
        return [Result(name=name, value=float("nan"), unit="%", skipped=why, note=note) for name in names]
    return [_peak(executor, names[0], note), _bandwidth(executor, names[1], note)]


def _peak(executor: Executor, name: str, note: str) -> Result:
    """A product of 4096 against a chain of multiply-adds that touches no memory."""
    a, b = _uploaded(executor, (4096, 4096), (4096, 4096))
    x, y = _uploaded(executor, (1 << 22,), (1 << 22,))
    text = "x"
    for _ in range(90):
        text = f"({text})*y+x" if len(text) < 400 else text
    repeats = text.count("*")
    product = [step("matmul", {"a": "a", "b": "b"}, "c"), step("max", {"a": "c"}, "m")]
    arithmetic = [step("formula", {"x": "x", "y": "y"}, "z", text=text), step("max", {"a": "z"}, "m")]
    seconds = alternating(
        {
            "product": lambda: executor.run(product, {"a": a, "b": b}, ["m"]),
            "peak": lambda: executor.run(arithmetic, {"x": x, "y": y}, ["m"]),
        }
    )
    for resident in (a, b, x, y):
        executor.release(resident)
    peak = 2 * repeats * (1 << 22) / statistics.median(seconds["peak"])
    return result(name, [100 * 2 * 4096**3 / one / peak for one in seconds["product"]], "%", "higher", 60.0, note)


def _bandwidth(executor: Executor, name: str, note: str) -> Result:
    count = 1 << 25
    a, b = _uploaded(executor, (count,), (count,))
    add = [step("vector_add", {"a": "a", "b": "b"}, "c"), step("max", {"a": "c"}, "m")]
    copy = [step("scale", {"a": "a"}, "c", scalar=1.0), step("max", {"a": "c"}, "m")]
    rest = [step("max", {"a": "a"}, "m")]
    seconds = alternating(
        {
            "add": lambda: executor.run(add, {"a": a, "b": b}, ["m"]),
            "copy": lambda: executor.run(copy, {"a": a}, ["m"]),
            "rest": lambda: executor.run(rest, {"a": a}, ["m"]),
        }
    )
    for resident in (a, b):
        executor.release(resident)
    base = statistics.median(seconds["rest"])
    speed = 2 * count * 4 / (statistics.median(seconds["copy"]) - base)
    return result(
        name, [100 * 3 * count * 4 / (one - base) / speed for one in seconds["add"]], "%", "higher", 80.0, note
    )


if __name__ == "__main__":
    run("The kernel library on this machine's adapter", measure)
