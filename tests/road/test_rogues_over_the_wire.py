"""The five rogues against a real coordinator, through TLS, WebSocket, Noise and HTTP: no lie is ever called checked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from moregpu_kernels.reference import expect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from moregpu.blobs.regions import read_part
from moregpu.blobs.transfer import BlobHTTP
from moregpu.cli.loopback import LoopbackPool
from moregpu.client.pool import Pool
from moregpu.client.signatures import verify_signed
from moregpu.errors import JobFailed
from moregpu.jobs import Blob, JobState, Tensor
from moregpu.wire.api import InviteRequest
from moregpu.wire.invite import parse_invite
from moregpu.wire.messages import MAX_INLINE_BYTES, SUBPROTOCOL, Assignment, ResultEntry
from moregpu.wire.tls import advisory_context
from moregpu.workloads.arrays import as_bytes
from tests.rogue.workers import ROGUES, HonestWorker, ReturnsYesterdays

SIDE = 300  # a megabyte or so with its inputs: outputs travel as blobs, as a real job's do


class Socket:
    """A real WebSocket as the rogues know one."""

    peer = ""

    def __init__(self, socket: ClientConnection):
        self._socket = socket

    async def receive(self) -> bytes | None:
        try:
            data = await self._socket.recv()
        except ConnectionClosed:
            return None
        assert isinstance(data, bytes)
        return data

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send(data)
        except ConnectionClosed as error:
            raise ConnectionError from error

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self._socket.close(code, reason)


class Remote(HonestWorker):
    """A rogue whose blobs go over HTTP, and that waits with its lies until it was let in and measured."""

    http: BlobHTTP
    lying = False

    def compute(self, assignment: Assignment) -> ResultEntry:
        return super().compute(assignment) if self.lying else HonestWorker.compute(self, assignment)

    def outputs(self, assignment: Assignment, arrays: Mapping[str, Any]) -> dict[str, Any]:
        if self.lying:
            return super().outputs(assignment, arrays)
        return HonestWorker.outputs(self, assignment, arrays)

    def sign(self, entries: Any) -> bytes:
        return super().sign(entries) if self.lying else HonestWorker.sign(self, entries)

    def open(self, tensor: Tensor) -> Any:
        if isinstance(tensor.data, Blob):
            return read_part(tensor, self.http.reader(tensor.data))
        return super().open(tensor)

    def give(self, assignment: Assignment, name: str, array: Any) -> Tensor:
        plain = as_bytes(array)
        if len(plain) <= MAX_INLINE_BYTES // len(assignment.outputs):
            return super().give(assignment, name, array)
        planned = assignment.outputs[name]
        return Tensor(dtype=planned.dtype, shape=array.shape, data=self.http.upload_stream(plain))


@contextmanager
def rogue(local: LoopbackPool, pool: Pool, name: str) -> Iterator[Remote]:
    """A rogue on a thread of its own, let in by an honest invite."""
    invite = parse_invite(pool.invite(InviteRequest(owner="rogue")).line)
    kind = type(name, (Remote, ROGUES[name]), {})
    keys: Any = SimpleNamespace(cs_pub=invite.cs_pub, pool_id=invite.pool_id)
    worker: Remote = kind(keys, None, name=name, invite=(invite.invite_id, invite.secret))
    worker.http = BlobHTTP(
        invite.addresses[0], invite.pin, lambda: worker.welcome.blob_token if worker.welcome else "", 10.0
    )
    ends: list[Any] = []

    async def live() -> None:
        ends.append((asyncio.get_running_loop(), asyncio.current_task()))
        address = invite.addresses[0]
        async with connect(
            f"wss://{address}/v1/worker",
            ssl=advisory_context(),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            ping_interval=None,
            proxy=None,
        ) as socket:
            await worker.run(Socket(socket))

    def run() -> None:
        try:
            asyncio.run(live())
        except asyncio.CancelledError:
            pass

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        local.wait_for_workers(name)
        worker.lying = True
        yield worker
    finally:
        loop, task = ends[0]
        with suppress(RuntimeError):  # the pool may have thrown it out already
            loop.call_soon_threadsafe(task.cancel)
        thread.join(10)
        worker.http.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ROGUES))
def test_a_lie_is_never_checked_and_an_honest_worker_mends_it(lone: LoopbackPool, name: str) -> None:
    A, B, C, D = (np.random.default_rng(seed).uniform(0.5, 2.0, (SIDE, SIDE)).astype(np.float32) for seed in range(4))
    with lone.connect() as pool, rogue(lone, pool, name) as liar:
        if isinstance(liar, ReturnsYesterdays):
            assert pool.kernel("matmul", A, B).wait(30).checked, "yesterday's work was honest"
            liar.day_over = True
        # Alone with the liar: the job fails or waits for somebody honest. It never has a result.
        alone = pool.kernel("matmul", C, D, retries=1)
        until = time.monotonic() + 30
        while all(one.verdict == "accepted" for one in liar.verdicts):
            assert time.monotonic() < until, "the lie was not refused"
        view = alone.status()
        assert view.state is not JobState.DONE
        assert not view.checked
        assert view.result is None
        # With somebody honest beside it.
        lone.start_worker("anna")
        lone.wait_for_workers("anna")
        mended = pool.kernel("matmul", C, D)
        ratio = expect("matmul", {"a": C, "b": D}, {}, "float32").ratio(mended.result(60))
        assert (ratio <= 1.0).all()
        view = mended.status()
        assert view.checked
        assert {verify_signed(mended.id, one).worker for one in mended.statements()} == {
            worker.id for worker in pool.workers() if worker.name == "anna"
        }
        assert pool.audit().ok
        try:
            ratio = expect("matmul", {"a": C, "b": D}, {}, "float32").ratio(alone.result(60))
        except JobFailed as error:
            assert "Traceback" not in str(error)
        else:
            assert (ratio <= 1.0).all()
