"""`from moregpu import MoreGPU`: the class that programs of MoreGPU 1.x know, thin over the calls of 1.x.

Flat lists of numbers in and out, as theirs. New programs use `moregpu.connect()`: arrays, no base64, typed errors.
"""

from __future__ import annotations

import base64
import math
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, cast
from urllib.parse import quote

from moregpu.client.access import find_access
from moregpu.client.doors import Doors
from moregpu.errors import Unavailable
from moregpu.workloads.kernel.spec import KERNELS

_LATER = (
    "train_", "diloco_", "model_", "shard_", "generate", "vision_", "data_push", "push_safetensors", "worker_caps",
)  # fmt: skip
"""Calls of 1.x that come with the model tier: they are there, as programs ask by `hasattr`, and say so."""

_PATIENCE_S = 10.0


class MoreGPU:
    """A pool, for programs written for 1.x. `admin_token` is a token or a whole `MGPUC1-` line, which pins too."""

    def __init__(self, base_url: str, admin_token: str, timeout: float = 120.0):
        self.base = base_url.rstrip("/")
        self.token = admin_token
        self.timeout = timeout
        self._doors = Doors(find_access(base_url, admin_token))
        weakref.finalize(self, self._doors.close)  # programs of 1.x close nothing

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith(_LATER):
            raise AttributeError(f"MoreGPU has no {name}")

        def later(*arguments: object, **named: object) -> NoReturn:
            raise Unavailable(f"{name} comes with the model tier", "linear, mlp and attention run today")

        return later

    def health(self) -> dict[str, Any]:
        """Give `{ok, fleet, queue}`."""
        return self._call("GET", "/health")

    def device(self) -> dict[str, Any]:
        """Describe the pool as one device."""
        return self._call("GET", "/device")

    def gpu(self) -> dict[str, Any]:
        """Describe what the pool has done."""
        return self._call("GET", "/gpu")

    def workers(self) -> list[dict[str, Any]]:
        """List the workers."""
        return self._call("GET", "/workers")

    def net(self, pings: int = 20, sustained_mb: int = 0) -> dict[str, Any]:
        """How well the workers are connected, from what moved: nothing is probed, whatever is asked for."""
        return self._call("GET", f"/net?pings={pings}&sustained_mb={sustained_mb}")

    def job(self, jid: str) -> dict[str, Any]:
        """Give one job's record."""
        return self._call("GET", f"/jobs/{quote(jid, safe='')}")

    def jobs(self) -> list[dict[str, Any]]:
        """Give the records of the newest jobs."""
        return self._call("GET", "/jobs")

    def submit(self, kernel: str = "matmul", size: int = 512) -> dict[str, Any]:
        """Run a benchmark; the record."""
        return self._call("POST", "/submit", {"kernel": _known(kernel), "size": size})

    def submit_batch(self, specs: list[tuple[str, int]], workers: int = 8) -> list[dict[str, Any]]:
        """Run several benchmarks side by side."""
        with ThreadPoolExecutor(max_workers=workers) as threads:
            return list(threads.map(self._submit_one, specs))

    def _submit_one(self, spec: tuple[str, int]) -> dict[str, Any]:
        return self.submit(*spec)

    def run(
        self,
        kernel: str,
        a: Sequence[float],
        b: Sequence[float] | None = None,
        scalar: float | None = None,
        M: int | None = None,
        N: int | None = None,
        K: int | None = None,
    ) -> dict[str, Any]:
        """Run a kernel on one's own data; the record, with `output_decoded`. `RuntimeError` where it is not done."""
        body: dict[str, Any] = {"kernel": _known(kernel), "a": _text(a)}
        more = {"b": None if b is None else _text(b), "scalar": scalar, "M": M, "N": N, "K": K}
        return self._done(body | {name: value for name, value in more.items() if value is not None})

    def matmul(self, A: Sequence[float], B: Sequence[float], M: int, N: int, K: int) -> list[float]:
        """A (M × K) times B (K × N)."""
        return self.run("matmul", A, B, M=M, N=N, K=K)["output_decoded"]

    def linear(
        self, X: Sequence[float], W: Sequence[float], b: Sequence[float] | None, M: int, K: int, N: int
    ) -> list[float]:
        """X (M × K) times W (K × N), plus b for each row."""
        product = self.matmul(X, W, M, N, K)
        return product if b is None else [value + b[place % N] for place, value in enumerate(product)]

    def mlp(
        self,
        X: Sequence[float],
        layers: Sequence[tuple[Sequence[float], Sequence[float] | None, int]],
        M: int,
        K: int,
        act: str = "relu",
    ) -> list[float]:
        """Chain linear layers, each followed by the activation: `layers` are (W, b or None, width of the output)."""
        hidden, width = list(X), K
        for weight, bias, wide in layers:
            hidden = self.run(act, self.linear(hidden, weight, bias, M, width, wide))["output_decoded"]
            width = wide
        return hidden

    def attention(
        self,
        Q: Sequence[float],
        K: Sequence[float],
        V: Sequence[float],
        seq: int,
        d: int,
        scale: float | None = None,
    ) -> list[float]:
        """softmax(Q · Kᵀ · scale) · V, each seq × d; scale is 1/√d unless given."""
        turned = [K[row * d + column] for column in range(d) for row in range(seq)]
        factor = 1.0 / math.sqrt(d) if scale is None else scale
        scores = self.run("scale", self.matmul(Q, turned, seq, seq, d), scalar=factor)["output_decoded"]
        weights = self.run("softmax", scores, M=seq, N=seq)["output_decoded"]
        return self.matmul(weights, V, seq, d, seq)

    def dot(self, a: Sequence[float], b: Sequence[float]) -> float:
        """Sum of the products."""
        return self.matmul(a, b, 1, 1, len(a))[0]

    def sum(self, a: Sequence[float]) -> float:
        """Sum."""
        return self.dot(a, [1.0] * len(a))

    def mean(self, a: Sequence[float]) -> float:
        """Mean."""
        return self.sum(a) / len(a)

    def norm(self, a: Sequence[float]) -> float:
        """Euclidean norm."""
        return math.sqrt(self.dot(a, a))

    def upload_weight(
        self,
        wid: str,
        data: Sequence[float],
        rows: int,
        cols: int,
        worker: str | None = None,
        dtype: str = "f32",
    ) -> dict[str, Any]:
        """Keep a weight on the pool. The pool moves it where it is needed: `worker` is noted, not obeyed."""
        body = {"id": wid, "data": _text(data, half=dtype == "f16"), "rows": rows, "cols": cols, "dtype": dtype}
        return self._call("POST", "/weights", body | ({"worker": worker} if worker else {}))

    def weights(self) -> list[dict[str, Any]]:
        """List the weights that are kept."""
        return self._call("GET", "/weights")

    def matmul_resident(self, A: Sequence[float], weight_id: str, M: int) -> list[float]:
        """A (M × K) times a weight that is kept."""
        return self._done({"kernel": "matmul", "a": _text(A), "bRef": weight_id, "M": M})["output_decoded"]

    def _done(self, body: dict[str, Any]) -> dict[str, Any]:
        record = self._call("POST", "/submit", body)
        if record.get("status") != "done":
            reason = record.get("error") or record.get("note")
            raise RuntimeError(f"job {record.get('id')} is not done: {record.get('status')}, {reason}")
        output = record.get("output")
        record["output_decoded"] = _floats(output) if output else []
        return record

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._doors.call(
            method, path, cast("type[Any]", Any), body=body, timeout_s=self.timeout, patience_s=_PATIENCE_S
        )


def _known(kernel: str) -> str:
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}; choose from {', '.join(KERNELS)}")
    return kernel


def _text(values: Iterable[float], *, half: bool = False) -> str:
    if half:
        import numpy as np  # `array` knows no float16

        return base64.b64encode(np.fromiter(values, "<f2").tobytes()).decode()
    return base64.b64encode(_little(array("f", values)).tobytes()).decode()


def _floats(text: str) -> list[float]:
    values = array("f")
    values.frombytes(base64.b64decode(text))
    return list(_little(values))


def _little(values: array[float]) -> array[float]:
    """Swap where this machine is big-endian: the wire is little-endian."""
    import sys

    if sys.byteorder == "big":
        values.byteswap()
    return values
