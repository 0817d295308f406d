"""Every door while the disk is full, and while bulk data goes through others: rows 24 and 28 of hostile conditions."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import numpy as np
import pytest
from websockets.sync.client import connect

from moregpu.client.access import Access
from moregpu.client.old import MoreGPU
from moregpu.client.pool import Pool as Client
from moregpu.errors import MoreGPUError, OutOfSpace
from moregpu.wire.invite import ClientLine
from moregpu.wire.link import Accepted, Refused, Show, Shown
from moregpu.wire.messages import SUBPROTOCOL
from moregpu.wire.session import Channel

from .conftest import Pool
from .test_link import link

LARGE = np.arange(200_000, dtype=np.float32)
SEALED_HERE = {"dtype": "float32", "shape": [40_000], "data": base64.b64encode(bytes(160_000)).decode()}
SPEC = {"kind": "kernel", "operation": "relu", "inputs": {"a": SEALED_HERE}}


@pytest.fixture(scope="module")
def token(pool: Pool) -> str:
    return pool.token("submitter")


def client_of(pool: Pool, token: str) -> Client:
    return Client(Access(addresses=(pool.address,), token=token, pin=pool.pin))


# ---- row 24: the disk is full ----------------------------------------------------------------------------------------


def http(verb: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Callable[[Pool, str], object]:
    def go(pool: Pool, token: str) -> object:
        answer = pool.ask(verb, path, token, body, headers or {})
        if answer.status == 507:
            if answer.headers["content-type"] == "application/problem+json":
                assert answer.code == "out-of-space" and answer.json()["hint"]
            raise OutOfSpace(answer.body.decode())
        assert answer.status in (200, 201, 202), answer
        return answer.json()

    return go


def by_link(pool: Pool, token: str) -> object:
    packed = {**SPEC, "inputs": {"a": SEALED_HERE | {"shape": [13_000], "data": bytes(52_000)}}}
    with link(pool, token) as line:
        line.submit(1, packed, early=True)
        answer = line.receive()
        if isinstance(answer, Refused):
            assert answer.problem.type == "about:moregpu/out-of-space"
            raise OutOfSpace(answer.problem.detail)
        assert isinstance(answer, Accepted)
        return answer.job


def by_sdk(pool: Pool, token: str) -> object:
    with client_of(pool, token) as client:
        return client.kernel("relu", LARGE).cancel()


def by_put(pool: Pool, token: str) -> object:
    with client_of(pool, token) as client:
        return client.put("kept", LARGE)


def by_class_of_1x(pool: Pool, token: str) -> object:
    line = ClientLine(addresses=(pool.address,), pin=pool.pin, token=token).line()
    return MoreGPU(f"https://{pool.address}", line).upload_weight("w", LARGE[:40_000].tolist(), 200, 200)


FULL: dict[str, Callable[[Pool, str], object]] = {
    "POST /v1/blobs": lambda pool, token: http("POST", "/v1/blobs", os.urandom(100_000))(pool, token),
    "PUT /v1/blobs": lambda pool, token: http(
        "PUT", f"/v1/blobs/{DIGEST}", CONTENT, {"Upload-Length": str(len(CONTENT))}
    )(pool, token),
    "POST /v1/jobs": http("POST", "/v1/jobs", SPEC),
    "the link": by_link,
    "the SDK": by_sdk,
    "pool.put": by_put,
    "POST /weights": http(
        "POST", "/weights", {"id": "w", "rows": 200, "cols": 200, "dtype": "f32", "data": SEALED_HERE["data"]}
    ),
    "POST /submit": http("POST", "/submit?async=1", {"kernel": "relu", "a": SEALED_HERE["data"]}),
    "the class of 1.x": by_class_of_1x,
}


def _content() -> tuple[bytes, str]:
    from blake3 import blake3

    content = os.urandom(100_000)
    return content, blake3(content).hexdigest()


CONTENT, DIGEST = _content()


@pytest.mark.parametrize("door", FULL.values(), ids=FULL)
def test_a_full_disk_is_told_at_every_door_keeps_nothing_and_is_over_when_there_is_room(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, door: Callable[[Pool, str], object]
) -> None:
    token, blobs = pool.token("submitter"), pool.services.blobs
    used, listed = blobs.used_bytes(), len(pool.ask("GET", "/v1/jobs?limit=500", token).json()["items"])
    with monkeypatch.context() as full:
        full.setattr(blobs, "free_bytes", lambda: 0)
        with pytest.raises(MoreGPUError) as refused:
            door(pool, token)
        assert refused.value.code == "out-of-space" or "disk" in str(refused.value)
        assert blobs.used_bytes() == used
        assert len(pool.ask("GET", "/v1/jobs?limit=500", token).json()["items"]) == listed
        assert pool.ask("GET", "/v1/tensors", token).json() == []
        assert pool.ask("GET", "/v1/me", token).status == 200
    assert door(pool, token) is not None


# ---- row 28: bulk data on the way ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bulk(pool: Pool, token: str) -> Iterator[list[str]]:
    """What is large, by each door that gives or takes it: on its way, and nobody takes any more of it."""
    size = 24 << 20
    job = pool.submit(token)
    pool.finish(job, {"out": ("uint8", (size,), bytes(size))})
    digest = pool.ask("POST", "/v1/blobs", token, os.urandom(size)).json()["digest"]
    down = [f"/v1/jobs/{job}/result", f"/jobs/{job}", f"/v1/blobs/{digest}"]
    up = [("POST", "/v1/blobs"), ("PUT", f"/v1/blobs/{'0' * 64}")]
    with ExitStack() as held:
        for path in down * 4:
            secure = held.enter_context(pool.socket())
            secure.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            assert secure.recv(100).startswith(b"HTTP/1.1 200")
        for verb, path in up * 4:
            secure = held.enter_context(pool.socket())
            secure.sendall(
                f"{verb} {path} HTTP/1.1\r\nHost: {pool.address}\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Length: {size}\r\nUpload-Length: {size}\r\n\r\n".encode()
            )
            secure.sendall(bytes(1 << 20))
        yield down


def _health(pool: Pool, token: str) -> None:
    assert pool.ask("GET", "/health").status == 200


def _submit(pool: Pool, token: str) -> None:
    assert pool.ask("DELETE", f"/v1/jobs/{pool.submit(token)}", token).status == 200


def _link(pool: Pool, token: str) -> None:
    with link(pool, token) as line:
        line.submit(1, {"kind": "kernel", "operation": "relu", "size": 4}, early=True)
        job = line.until(Accepted, 1).job
        line.send(Show(id=2, job=job.id))
        assert line.until(Shown, 2).job.id == job.id


def _events(pool: Pool, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with connect(f"wss://{pool.address}/v1/events", ssl=pool.context(), additional_headers=headers) as stream:
        assert msgspec.json.decode(stream.recv(20))["type"] == "snapshot"


def _worker(pool: Pool, token: str) -> None:
    """A worker's handshake: what its heartbeats travel by."""
    with connect(f"wss://{pool.address}/v1/worker", ssl=pool.context(), subprotocols=[SUBPROTOCOL]) as socket:
        channel = Channel.initiator(pool.worker.ws, pool.services.keys.cs_pub, pool.services.pool.id)
        socket.send(channel.start())
        assert isinstance(socket.recv(20), bytes)


CONTROL: dict[str, Callable[[Pool, str], None]] = {
    "health": _health, "jobs": _submit, "the link": _link, "events": _events, "workers": _worker
}  # fmt: skip


@pytest.mark.parametrize("door", CONTROL.values(), ids=CONTROL)
def test_bulk_data_that_stands_still_at_every_door_keeps_nobody_waiting(
    pool: Pool, token: str, bulk: list[str], door: Callable[[Pool, str], None]
) -> None:
    door(pool, token)
    assert len(pool.services.inflight) == 1, "the bulk is still on its way"
