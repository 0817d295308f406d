"""What a small dispatch costs from Python, beside the same dispatches recorded with nothing of ours around them.

Run by `benchmarks.kernels` in processes of its own: Mesa's software adapter hands every dispatch to threads of its own
unless it is told to have none, and then the figure is how long this machine takes to wake them, twice a dispatch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from moregpu_kernels.compiled import Compiled, Resident, compile_steps
from moregpu_kernels.device import Device, open_device
from moregpu_kernels.executor import Executor
from moregpu_kernels.fuse import Step, step
from moregpu_kernels.native import Call
from moregpu_kernels.program import UNIFORM_STEP
from moregpu_kernels.transfer import Buffers

SMALL = 100
RUNS = 200
ROOT = Path(__file__).parent.parent

Seconds = dict[str, list[float]]
Work = Callable[[], object]


def apart(*, threads: bool) -> Seconds:
    """Measure in a process of its own, with the software driver's threads or without any. Raises OSError."""
    environment = dict(os.environ)
    if not threads:
        environment["LP_NUM_THREADS"] = "0"
    command = [sys.executable, "-m", "benchmarks.kernel_overheads"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def main() -> None:
    """Print one line of JSON: of each kind of work the seconds of all runs, and how many submits a hundred took."""
    device = open_device()
    executor = Executor(device)
    x = executor.upload(np.zeros(64, np.float32))
    single = [step("relu", {"a": "x"}, "y")]
    hundred = [step("vector_add", {"a": f"t{i - 1}" if i else "x", "b": "x"}, f"t{i}") for i in range(SMALL)]
    last = f"t{SMALL - 1}"
    bare_single, bare_hundred = _recorded(executor, x, single, "y"), _recorded(executor, x, hundred, last)
    seconds = _in_turn(
        {
            "empty": lambda: _submit(device, []),
            "recorded": lambda: _submit(device, bare_single),
            "single": lambda: executor.run(single, {"x": x}, ["y"]),
        }
    )
    seconds |= _in_turn(
        {
            "hundred recorded": lambda: _submit(device, bare_hundred),
            "hundred": lambda: executor.run(hundred, {"x": x}, [last], fused=False),
        }
    )
    before = executor.submits
    executor.run(hundred, {"x": x}, [last], fused=False)
    seconds["submits"] = [executor.submits - before]
    sys.stdout.write(json.dumps(seconds) + "\n")


def _recorded(executor: Executor, x: Resident, steps: list[Step], output: str) -> list[tuple[Call, int, int]]:
    """The dispatches of steps, ready to be recorded again and again."""
    device = executor.device
    compiled: Compiled = compile_steps(
        device, executor.programs, Buffers(device), steps, {"x": x}, [output], fused=False
    )
    for piece in compiled.pieces:
        data = piece.program.pack(0, piece.groups, piece.uniforms)
        device.queue.write_buffer(compiled.uniforms, piece.slot * UNIFORM_STEP, data)
    _kept.append(compiled)
    return [(piece.call, piece.groups, 1) for piece in compiled.pieces]


_kept: list[Compiled] = []
"""What the recorded calls name lives as long as this does."""


def _submit(device: Device, calls: list[tuple[Call, int, int]]) -> None:
    device.fast.submit(calls)
    device.wait()


def _in_turn(works: dict[str, Work]) -> Seconds:
    for work in works.values():
        work()
    seconds: Seconds = {name: [] for name in works}
    for _ in range(RUNS):
        for name, work in works.items():
            begun = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - begun)
    return seconds


if __name__ == "__main__":
    main()
