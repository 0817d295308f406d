"""The worker's CPU engine, slices and all, against the same in plain NumPy: the nine operations and a formula.

Run by `benchmarks.kernels` in a process of its own, where BLAS has one thread: CPU time then says what each costs,
whoever else uses the machine. (BLAS threads that wait for each other spin, and that counts as CPU time too.)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import msgspec
import numpy as np

from moregpu.worker.child_process import THREAD_VARIABLES
from moregpu.worker.engines.numpy_engine import NumpyEngine

ROUNDS = 21
ELEMENTS = 8_000_000
"""As many as a task of one input has."""

SCALAR = np.float32(2.5)
FORMULA = "exp(-x*x) * sin(y)"

Work = Callable[[], object]


class Unhurried:
    """A throttle that never holds anything up."""

    slice_s = 0.03

    def pause_point(self, share_done: float | None = None) -> None:
        """Go on."""
        del share_done


def one_thread() -> dict[str, str]:
    """The environment of a process where BLAS has one thread."""
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}


def main() -> None:
    """Print one line of JSON: of each operation, the ratios of all rounds."""
    ratios: dict[str, list[float]] = {}
    for name, (ours, plain) in pairs().items():
        ratios[name] = [_seconds(ours) / _seconds(plain) for _ in range(ROUNDS)]
    sys.stdout.write(msgspec.json.encode(ratios).decode() + "\n")


def pairs() -> dict[str, tuple[Work, Work]]:
    """Of each operation: by the engine, and by NumPy as one would write it."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((1536, 1536), dtype=np.float32) for _ in range(2))
    x, y = (rng.standard_normal(ELEMENTS, dtype=np.float32) for _ in range(2))
    rows = x.reshape(-1, 1000)
    engine, slicer = NumpyEngine(), Unhurried()

    def ours(operation: str, **arrays: np.ndarray) -> Work:
        return lambda: engine.run(operation, arrays, {"scalar": SCALAR, "text": FORMULA}, slicer)

    return {
        "matmul": (ours("matmul", a=a, b=b), lambda: a @ b),
        "vector_add": (ours("vector_add", a=x, b=y), lambda: x + y),
        "vector_mul": (ours("vector_mul", a=x, b=y), lambda: x * y),
        "saxpy": (ours("saxpy", a=x, b=y), lambda: SCALAR * x + y),
        "relu": (ours("relu", a=x), lambda: np.maximum(x, np.float32(0))),
        "gelu": (ours("gelu", a=x), lambda: _gelu(x)),
        "scale": (ours("scale", a=x), lambda: SCALAR * x),
        "softmax": (ours("softmax", a=rows), lambda: _softmax(rows)),
        "layernorm": (ours("layernorm", a=rows), lambda: _layernorm(rows)),
        f"formula {FORMULA}": (ours("formula", x=x, y=y), lambda: np.exp(-x * x) * np.sin(y)),
    }


def _seconds(work: Work) -> float:
    """Seconds of one run after another of the same: the first finds the memory as the other one left it."""
    work()
    begun = time.process_time()
    made = work()
    took = time.process_time() - begun
    del made
    return took


def _gelu(a: np.ndarray) -> np.ndarray:
    return np.float32(0.5) * a * (1 + np.tanh(np.float32(0.7978846) * (a + np.float32(0.044715) * a * a * a)))


def _softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _layernorm(a: np.ndarray) -> np.ndarray:
    return (a - a.mean(axis=-1, keepdims=True)) / np.sqrt(a.var(axis=-1, keepdims=True) + np.float32(1e-5))


if __name__ == "__main__":
    main()
