"""The peer of the product's bar: onnxruntime's WebGPU provider on the same adapter, in a process of its own.

    python benchmarks/matmul_peer.py SIZE

prints {"provider": …} or {"skipped": reason}, then, for every line that it reads, the seconds of one run: so runs can
alternate with ours.

The model (one MatMul) is written as protobuf by hand: the `onnx` package would be a dependency for forty bytes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name: str, size: int) -> bytes:
    """ValueInfoProto of a float32 (size, size)."""
    dimension = field(1, field(1, size))
    return field(1, name.encode()) + field(2, field(1, field(1, 1) + field(2, dimension + dimension)))


def model(size: int) -> bytes:
    """ModelProto: C = MatMul(A, B), opset 18."""
    node = field(1, b"a") + field(1, b"b") + field(2, b"c") + field(4, b"MatMul")
    graph = field(1, node) + field(2, b"product")
    graph += field(11, tensor("a", size)) + field(11, tensor("b", size)) + field(12, tensor("c", size))
    return field(1, 8) + field(7, graph) + field(8, field(2, 18))


def prepare(size: int) -> tuple[dict[str, str], Callable[[], object] | None]:
    """Make a session and hold one result against float64; what to answer, and what to run."""
    try:
        import numpy as np
        import onnxruntime
    except ImportError as error:
        return {"skipped": f"{error}; pip install 'moregpu[bench]'"}, None
    if "WebGpuExecutionProvider" not in onnxruntime.get_available_providers():
        return {"skipped": "this onnxruntime has no WebGPU provider; pip install 'moregpu[bench]'"}, None
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # The graph stays on the device or fails: a silent run on the CPU would be no peer.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        session = onnxruntime.InferenceSession(model(size), options, providers=["WebGpuExecutionProvider"])
        rng = np.random.default_rng(0)
        feeds = {name: rng.standard_normal((size, size), dtype=np.float32) for name in ("a", "b")}
        product = session.run(None, feeds)[0]
    except Exception as error:  # noqa: BLE001 - a peer's failure of any kind is a reason to skip it
        return {"skipped": f"it does not run here: {str(error).strip().splitlines()[0][:160]}"}, None
    if not np.all(np.abs(product - feeds["a"].astype(np.float64) @ feeds["b"]) < 1e-2):
        return {"skipped": "its result is wrong on this adapter"}, None
    return {"provider": session.get_providers()[0]}, lambda: session.run(None, feeds)


def main() -> None:
    answer, work = prepare(int(sys.argv[1]))
    print("\n" + json.dumps(answer), flush=True)
    if work is None:
        return
    for _ in sys.stdin:
        begun = time.perf_counter()
        work()
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    main()
