"""As a Python program of MoreGPU 1.x talks: urllib, base64 float32, JSON bodies, the record's fields."""

from __future__ import annotations

import array
import base64
import math
import struct
import time
from typing import Any

import numpy as np
import pytest

from .conftest import OldPool

KERNELS = ("matmul", "vector_add", "vector_mul", "saxpy", "relu", "gelu", "scale", "softmax", "layernorm")
RECORD = {"id", "status", "kernel", "size", "sealed", "submittedAt", "dataMode", "verified", "ms", "shards", "signed"}


def b64(values: Any) -> str:
    return base64.b64encode(array.array("f", values).tobytes()).decode()


def floats(text: str) -> list[float]:
    values = array.array("f")
    values.frombytes(base64.b64decode(text))
    return list(values)


def run(live: OldPool, **body: Any) -> list[float]:
    status, record = live.ask("/submit", body)
    assert (status, record["status"]) == (200, "done"), record
    assert record["verified"] and record["signed"]
    return floats(record["output"])


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_as_a_benchmark(live: OldPool, kernel: str) -> None:
    size = 128 if kernel == "matmul" else 1000
    status, record = live.ask("/submit", {"kernel": kernel, "size": size})
    assert status == 200
    assert set(record) >= RECORD
    assert (record["status"], record["kernel"], record["size"]) == ("done", kernel, size)
    assert record["sealed"] is record["verified"] is record["signed"] is True
    assert record["dataMode"] is False and "output" not in record
    assert abs(record["submittedAt"] / 1000 - time.time()) < 3600 and record["ms"] > 0
    assert ("gflops" in record) == (kernel == "matmul")
    work = size * size if kernel == "matmul" else size * 128 if kernel in ("softmax", "layernorm") else size
    assert sum(shard["work"] for shard in record["shards"]) == work
    assert all(set(shard) == {"worker", "backend", "work", "ms"} for shard in record["shards"])
    assert {shard["backend"] for shard in record["shards"]} == {"cpu"}


def test_the_worked_example_of_their_readme(live: OldPool) -> None:
    assert run(live, kernel="matmul", a=b64([1, 2, 3, 4, 5, 6]), b=b64([7, 8, 9, 10, 11, 12]), M=2, N=2, K=3) == [
        58.0, 64.0, 139.0, 154.0,
    ]  # fmt: skip


def test_elementwise_kernels_on_ones_own_data(live: OldPool) -> None:
    assert run(live, kernel="vector_add", a=b64([1, 2]), b=b64([3, 4])) == [4.0, 6.0]
    assert run(live, kernel="vector_mul", a=b64([1, 2]), b=b64([3, 4])) == [3.0, 8.0]
    assert run(live, kernel="saxpy", a=b64([1, 2]), b=b64([3, 4]), scalar=10) == [13.0, 24.0]
    assert run(live, kernel="scale", a=b64([1, 2]), scalar="0.5") == [0.5, 1.0]  # JavaScript's Number("0.5")
    assert run(live, kernel="relu", a=b64([-1, 2, -3, 4])) == [0.0, 2.0, 0.0, 4.0]
    gelu = run(live, kernel="gelu", a=b64([1.0]))[0]
    assert gelu == pytest.approx(0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715)), rel=1e-5)


def test_defaults_of_what_is_left_out(live: OldPool) -> None:
    assert run(live, kernel="vector_add", a=b64([1, 2])) == [1.0, 2.0]  # b: zeros
    assert run(live, kernel="scale", a=b64([1, 2])) == [1.0, 2.0]  # scalar: 1
    assert run(live, kernel="matmul", a=b64([1, 2, 3, 4]), b=b64([1, 0, 0, 1])) == [1.0, 2.0, 3.0, 4.0]  # square
    assert run(live, kernel="matmul", a=b64([1, 2, 3, 4])) == [0.0] * 4
    rows = run(live, kernel="softmax", a=b64([0.0] * 256))  # rows of 128
    assert rows == pytest.approx([1 / 128] * 256)
    assert run(live, kernel="softmax", a=b64([0.0] * 6), M=2, N=3) == pytest.approx([1 / 3] * 6)
    normal = run(live, kernel="layernorm", a=b64([1.0, -1.0]), N=2)
    assert normal == pytest.approx([1.0, -1.0], abs=1e-4)


def test_an_attention_head_composed_as_theirs(live: OldPool) -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((4, 8)).astype(np.float32) for _ in range(3))

    def product(a: Any, b: Any, m: int, n: int, inner: int) -> list[float]:
        return run(live, kernel="matmul", a=b64(np.ravel(a)), b=b64(np.ravel(b)), M=m, N=n, K=inner)

    scores = product(q, k.T.copy(), 4, 4, 8)
    scaled = run(live, kernel="scale", a=b64(scores), scalar=1 / math.sqrt(8))
    weights = run(live, kernel="softmax", a=b64(scaled), M=4, N=4)
    ours = np.array(product(weights, v, 4, 8, 4)).reshape(4, 8)
    logits = q @ k.T / math.sqrt(8)
    right = np.exp(logits - logits.max(1, keepdims=True))
    assert np.allclose(ours, right / right.sum(1, keepdims=True) @ v, atol=1e-5)


def test_large_arrays_travel_as_base64_both_ways(live: OldPool) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.random(600_000, np.float32), rng.random(600_000, np.float32)
    body = {"kernel": "vector_add", "a": base64.b64encode(a).decode(), "b": base64.b64encode(b).decode()}
    status, record = live.ask("/submit", body)
    assert (status, record["outLen"], record["verified"]) == (200, 600_000, True)
    assert np.array_equal(np.frombuffer(base64.b64decode(record["output"]), np.float32), a + b)
    again = live.ask(f"/jobs/{record['id']}")[1]
    assert again["output"] == record["output"]


def test_async_answers_202_and_is_polled(live: OldPool) -> None:
    status, pending = live.ask("/submit?async=1", {"kernel": "relu", "size": 50_000})
    assert status == 202
    assert pending["kernel"] == "relu" and pending["poll"] == f"/jobs/{pending['id']}" and "note" not in pending
    deadline = time.monotonic() + 30
    while (record := live.ask(pending["poll"])[1])["status"] not in ("done", "failed"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert record["status"] == "done" and record["verified"]
    listed = live.ask("/jobs")[1]
    assert listed[0]["id"] == pending["id"] and len(listed) <= 50
    assert all("hasOutput" in entry and "output" not in entry for entry in listed)


def test_resident_weights(live: OldPool) -> None:
    weight = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    half = base64.b64encode(struct.pack("<6e", *weight)).decode()
    status, kept = live.ask("/weights", {"id": "w1", "data": b64(weight), "rows": 3, "cols": 2})
    assert status == 200 and kept == {"ok": True, "id": "w1", "worker": "pool", "rows": 3, "cols": 2, "dtype": "f32"}
    kept = live.ask("/weights", {"id": "w2", "data": half, "rows": 3, "cols": 2, "dtype": "f16", "worker": "ada"})[1]
    assert (kept["dtype"], kept["worker"]) == ("f16", "ada")
    assert {row["id"] for row in live.ask("/weights")[1]} >= {"w1", "w2"}
    for id in ("w1", "w2"):
        assert run(live, kernel="matmul", a=b64([1, 1, 1]), bRef=id, M=1) == [9.0, 12.0]
    assert live.ask("/submit", {"kernel": "matmul", "a": b64([1, 1, 1]), "bRef": "none", "M": 1})[0] == 400
    assert live.ask("/submit", {"kernel": "matmul", "a": b64([1, 1]), "bRef": "w1", "M": 1})[0] == 400
    other = {"authorization": f"Bearer {live.token('submitter')}"}
    assert live.ask("/weights", headers=other) == (200, [])


@pytest.mark.parametrize(
    "body",
    [
        {"kernel": "fft", "size": 4}, {"kernel": "matmul", "size": -1}, {"kernel": "matmul", "size": 1.5},
        {"kernel": "matmul", "size": "large"}, {"kernel": 7}, {"kernel": "relu", "a": "not base64!"},
        {"kernel": "relu", "a": "AAA="}, {"kernel": "softmax", "a": b64([0.0] * 130)},
        {"kernel": "relu", "b": b64([1])}, {"kernel": "matmul", "a": b64([1, 2, 3]), "M": 2, "K": 2},
        {"kernel": "vector_add", "a": b64([1]), "b": b64([1, 2])}, {"kernel": "matmul", "size": "nan"},
        b'{"kernel": "matmul", "size": NaN}', b"{", b"[]", b"null",
        b"kernel=matmul&size=4", b"\xff\xfe", b'{"kernel":"scale","a":"AACAPw==","scalar":1e999}', b"[" * 100_000,
    ],
    ids=lambda body: str(body)[:40],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_with_a_clear_error(live: OldPool, body: Any) -> None:
    status, answer = live.ask("/submit", body, method="POST")
    assert status in (400, 413)
    assert list(answer) == ["error"] and len(answer["error"]) > 10


def test_who_asks(live: OldPool) -> None:
    def status(headers: dict[str, str]) -> int:
        return live.ask("/device", headers=headers)[0]

    assert status({"authorization": live.admin}) == 200
    assert status({"authorization": f"bearer {live.admin}"}) == 200
    assert status({"Authorization": f"BEARER  {live.admin}"}) == 200
    assert status({"x-admin-token": live.admin}) == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"x-admin-token": ""}):
        code, answer = live.ask("/device", headers=headers)
        assert code == 401 and answer["error"].startswith("unauthorized")


def test_a_result_is_its_owners(live: OldPool) -> None:
    mine, other = live.token("submitter"), live.token("submitter")
    record = live.ask("/submit", {"kernel": "relu", "a": b64([1])}, headers={"x-admin-token": mine})[1]
    assert "output" in record
    path = f"/jobs/{record['id']}"
    assert live.ask(path, headers={"x-admin-token": mine})[1]["output"] == record["output"]
    assert live.ask(path, headers={"x-admin-token": other})[0] == 404
    assert live.ask("/jobs", headers={"x-admin-token": other})[1] == []
    viewer = live.ask(path, headers={"x-admin-token": live.token("viewer")})
    assert viewer[0] == 200 and "output" not in viewer[1]


def test_an_unmodified_script_needs_only_its_environment(live: OldPool) -> None:
    done = live.script(
        "import json, os, urllib.request\n"
        "base, token = os.environ['MOREGPU_BASE'], os.environ['MOREGPU_ADMIN_TOKEN']\n"
        "body = json.dumps({'kernel': 'matmul', 'size': 64}).encode()\n"
        "request = urllib.request.Request(base.rstrip('/') + '/submit', data=body, method='POST')\n"
        "request.add_header('content-type', 'application/json')\n"
        "request.add_header('authorization', f'Bearer {token}')\n"
        "with urllib.request.urlopen(request, timeout=120) as r:\n"
        "    job = json.loads(r.read().decode())\n"
        "print(job['status'], job['verified'], job['signed'])\n"
    )
    assert done.stdout == "done True True\n", done.stderr


def test_models_and_training_are_told_to_come_later(live: OldPool) -> None:
    for path in ("/model/load", "/model/generate", "/train/diloco/round"):
        status, answer = live.ask(path, {"model": "gpt2"})
        assert status == 501 and "later" in answer["error"]
