"""The native calls that need work done: parts of a product as they come, and the network as it was measured."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import Any

import msgspec
import numpy as np
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from moregpu.blobs.format import open_into, seal
from moregpu.jobs import Blob, Tensor
from moregpu.wire.link import (
    LINK_SUBPROTOCOL,
    MAX_FROM_LINK_BYTES,
    Ended,
    FromLink,
    Part,
    Progress,
    Refused,
    Submit,
)
from moregpu.workloads.kernel.spec import KernelSpec

from .conftest import OldPool


def call(live: OldPool, method: str, path: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(live.base + path, data=body, method=method)
    request.add_header("authorization", f"Bearer {live.admin}")
    with urllib.request.urlopen(request, timeout=60, context=live.context) as answer:
        return answer.read()


def put(live: OldPool, array: Any) -> Tensor:
    blob, sealed = seal(array.tobytes())
    call(live, "PUT", f"/v1/blobs/{blob.digest}", bytes(sealed))
    return Tensor(dtype="float32", shape=array.shape, data=blob)


def opened(live: OldPool, tensor: Tensor) -> Any:
    data = tensor.data
    if isinstance(data, Blob):
        out = bytearray(data.size_bytes)
        open_into(data, call(live, "GET", f"/v1/blobs/{data.digest}"), out)
        data = bytes(out)
    return np.frombuffer(data, np.float32).reshape(tensor.shape)


@pytest.mark.slow
def test_parts_of_a_product_come_before_its_end_and_make_the_whole(live: OldPool) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((1800, 1400), (1400, 1000)))
    spec = KernelSpec(operation="matmul", inputs={"a": put(live, a), "b": put(live, b)})
    submit = Submit(
        id=1, spec=msgspec.Raw(msgspec.msgpack.encode(spec)), idempotency_key="parts", progress=True, parts=True
    )
    whole = np.full((1800, 1000), np.nan, np.float32)
    shares: list[float] = []
    with connect(
        live.base.replace("https://", "wss://") + "/v1/link",
        ssl=live.context,
        subprotocols=[Subprotocol(LINK_SUBPROTOCOL)],
        additional_headers={"Authorization": f"Bearer {live.admin}"},
        max_size=MAX_FROM_LINK_BYTES,
    ) as socket:
        socket.send(msgspec.msgpack.encode(submit))
        parts = lost = 0
        while True:
            message = msgspec.msgpack.decode(socket.recv(60), type=FromLink)
            assert not isinstance(message, Refused), message
            if isinstance(message, Progress):
                shares.append(message.grains_done / message.grains)
            elif isinstance(message, Part):
                parts += 1
                rows, columns = message.places["out"]
                try:
                    whole[slice(*rows), slice(*columns)] = opened(live, message.outputs["out"])
                except urllib.error.HTTPError as error:
                    assert error.code == 404  # the job ended meanwhile: only its result is kept
                    lost += 1
            elif isinstance(message, Ended):
                break
    assert message.job.state == "done" and message.job.result is not None
    assert shares == sorted(shares) and shares[-1] == 1.0
    result = opened(live, message.job.result.outputs["out"])
    assert np.allclose(result, a @ b, atol=1e-3)
    filled = ~np.isnan(whole)
    assert np.array_equal(whole[filled], result[filled])
    assert filled.all() or lost
    assert parts > 1


@pytest.mark.slow
def test_the_network_was_measured_by_what_moved(live: OldPool) -> None:
    rng = np.random.default_rng(2)
    deadline = time.monotonic() + 60
    while True:
        large = put(live, rng.random(200_000, np.float32))  # larger ones pass as files of this machine's
        spec = KernelSpec(operation="relu", inputs={"a": large})
        call(live, "POST", "/v1/jobs?wait=30", msgspec.json.encode(spec))
        links = msgspec.json.decode(call(live, "GET", "/v1/network"))["links"]
        assert {link["name"] for link in links} == {"ada", "bob"}
        if all(link["to_worker_bytes_s"] and link["from_worker_bytes_s"] for link in links):
            break
        assert time.monotonic() < deadline, links
    assert all(link["product_size"] >= 1 and "products from" in link["allows"] for link in links)
