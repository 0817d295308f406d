"""A whole engine room in one process: real desk, real store, real blobs; workers on in-memory sockets."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from moregpu.blobs.format import seal
from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.desk import PoolDesk
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.store.memory import MemoryDisk, MemoryStore
from moregpu.coordinator.store.protocol import BlobRow, InviteRow, JobRow
from moregpu.ids import named
from moregpu.jobs import JOB_ENDED, Tensor
from moregpu.wire.identity import PoolKeys, WorkerKeys
from moregpu.wire.invite import secret_hash
from moregpu.workloads import KernelSpec
from moregpu.workloads.arrays import as_array
from tests.rogue.workers import HonestWorker

T = TypeVar("T")
ANN = Principal(id="t-ann", role="submitter", label="ann")
BOB = Principal(id="t-bob", role="submitter", label="bob")
ADMIN = Principal(id="t-admin", role="admin", label="admin")
DTYPES: dict[str, Any] = {"float32": "float32", "float16": "float16", "float64": "float64"}


class SteadyClock:
    """The machine's clock, which a test may push forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s

    def wall(self) -> float:
        return time.time() + self.ahead_s


class Socket:
    """One end of an in-memory WebSocket."""

    def __init__(self) -> None:
        self.peer = ""
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: Socket | None = None
        self.closed: tuple[int, str] | None = None
        self.sent = 0

    @staticmethod
    def pair() -> tuple[Socket, Socket]:
        near, far = Socket(), Socket()
        near.other, far.other = far, near
        return near, far

    async def receive(self) -> bytes | None:
        if self.closed is not None and self.inbox.empty():
            return None
        return await self.inbox.get()

    async def send(self, data: bytes) -> None:
        assert self.other is not None
        if self.closed is not None or self.other.closed is not None:
            raise ConnectionResetError("closed")
        self.sent += 1
        self.other.inbox.put_nowait(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        assert self.other is not None
        for end in (self, self.other):
            if end.closed is None:
                end.closed = (code, reason)
                end.inbox.put_nowait(None)


class Room:
    """A started desk, and ways to bring workers and jobs to it."""

    def __init__(self, desk: PoolDesk, store: MemoryStore, keys: PoolKeys, blobs: BlobFiles, clock: SteadyClock):
        self.desk = desk
        self.store = store
        self.keys = keys
        self.blobs = blobs
        self.clock = clock
        self.tasks: list[asyncio.Task[Any]] = []
        self.sockets: dict[str, Socket] = {}

    async def invite(self, uses: int = 1, expires_s: float = 3600.0, auto_approve: bool = True) -> tuple[str, bytes]:
        secret = os.urandom(16)
        row = InviteRow(
            id=named("i", os.urandom(16)),
            secret_hash=secret_hash(secret),
            owner="",
            uses_left=uses,
            expires_at=self.clock.wall() + expires_s,
            created_at=self.clock.wall(),
            auto_approve=auto_approve,
        )
        await self.store.add_invite(row)
        return row.id, secret

    async def worker(
        self, kind: type[HonestWorker] = HonestWorker, name: str = "", keys: WorkerKeys | None = None
    ) -> HonestWorker:
        """A worker that was invited, came in, and said its first heartbeat."""
        worker = kind(self.keys, self.blobs, name or kind.__name__, keys=keys, invite=await self.invite())
        self.connect(worker)
        await worker.welcomed()
        await worker.heartbeat([])
        return worker

    def connect(self, worker: HonestWorker, peer: str = "") -> Socket:
        """Open a connection and serve both its ends; returns the worker's end."""
        near, far = Socket.pair()
        far.peer = peer
        worker.record = lambda digest, length: self.store.add_blob(
            BlobRow(digest=digest, sealed_bytes=length, principal=worker.id, created_at=self.clock.wall())
        )
        self.sockets[worker.name] = near
        self.tasks.append(asyncio.create_task(self.desk.serve_worker(far)))
        self.tasks.append(asyncio.create_task(worker.run(near)))
        return near

    async def upload(self, who: Principal, array: Any) -> Tensor:
        """An array as a blob of somebody's."""
        blob, sealed = seal(memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))
        upload = self.blobs.begin(who.id, blob.digest, len(sealed))
        upload.write(sealed)
        upload.finish()
        await self.store.add_blob(
            BlobRow(digest=blob.digest, sealed_bytes=len(sealed), principal=who.id, created_at=self.clock.wall())
        )
        return Tensor(dtype=str(array.dtype), shape=array.shape, data=blob)

    async def spec(self, operation: str, *arrays: Any, who: Principal = ANN, **fields: Any) -> KernelSpec:
        """A job over arrays: inline when small, blobs when not."""
        inputs: dict[str, Tensor] = {}
        for name, array in zip("ab", arrays, strict=False):
            if array.nbytes <= 16 * 1024:
                inputs[name] = Tensor(dtype=str(array.dtype), shape=array.shape, data=array.tobytes())
            else:
                inputs[name] = await self.upload(who, array)
        dtype = str(arrays[0].dtype)
        return KernelSpec(operation=operation, dtype=dtype, inputs=inputs, **fields)

    async def submit(self, spec: KernelSpec, wait_s: float = 20.0, who: Principal = ANN, key: str = "") -> JobRow:
        return await self.desk.submit(who, spec, key, wait_s)

    async def ended(self, job: JobRow, within_s: float = 20.0) -> JobRow:
        row = await self.desk.wait(job.id, within_s)
        assert row.state in JOB_ENDED, f"{row.id} is still {row.state}"
        return row

    def output(self, row: JobRow) -> Any:
        """A finished job's output as an array."""
        assert row.result is not None, f"{row.id} is {row.state}: {row.error}"
        tensor = row.result.outputs["out"]
        opened = self.desk.open_tensor(tensor)
        return as_array(opened.read(0, opened.size_bytes), tensor.dtype, tensor.shape)

    async def until(self, condition: Callable[[], Any], within_s: float = 10.0) -> None:
        """Wait for something that other tasks of the loop bring about."""
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 — it waits for many things
                await asyncio.sleep(0.002)

    async def hang_up(self, worker: HonestWorker) -> None:
        """The worker's socket closes without a word."""
        await self.sockets[worker.name].close(1006, "")


@asynccontextmanager
async def room(
    tmp: Path,
    disk: MemoryDisk | None = None,
    keys: PoolKeys | None = None,
    **settings: Any,
) -> AsyncIterator[Room]:
    """A running engine room. Without trials and with short periods, unless told otherwise."""
    config = DeskConfig(**{"pool_name": "test", "measure": False, "tick_s": 0.02, "stats_s": 0.05, **settings})
    clock = SteadyClock()
    keys = keys or PoolKeys.generate()
    blobs = BlobFiles(tmp / "blobs")
    store = MemoryStore(clock, disk=disk)
    await store.open(clock.monotonic())
    with ThreadPoolExecutor(2) as threads:

        async def offload(work: Callable[[], T]) -> T:
            return await asyncio.get_running_loop().run_in_executor(threads, work)

        desk = PoolDesk(store, keys, blobs, clock, offload, os.urandom, config)
        await desk.start()
        here = Room(desk, store, keys, blobs, clock)
        try:
            yield here
        finally:
            await desk.stop()
            for task in here.tasks:
                task.cancel()
            await asyncio.gather(*here.tasks, return_exceptions=True)


def product(rows: int, inner: int, columns: int, seed: int = 1, dtype: str = "float32") -> tuple[Any, Any]:
    """Two random matrices."""
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((rows, inner)).astype(dtype),
        rng.standard_normal((inner, columns)).astype(dtype),
    )
