"""The simulated coordinator: the real engine room on a simulated disk, started, killed and started again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from moregpu.coordinator.desk import PoolDesk
from moregpu.coordinator.housekeeping import Housekeeping
from moregpu.coordinator.limits import DeskConfig
from moregpu.coordinator.opening import plain_part
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.store.protocol import BlobRow, JobRow
from moregpu.errors import MoreGPUError, NotFound, Unauthorized, Unreachable
from moregpu.jobs import Blob, Tensor
from tests.simulation.channel import PlainChannel
from tests.simulation.disk import Drive, MemoryBlobs, SimulatedStore
from tests.simulation.loop import Entropy, Process, SimulatedClock
from tests.simulation.network import Connection

if TYPE_CHECKING:
    from tests.simulation.history import History

T = TypeVar("T")
ADMIN = Principal(id="t-admin", role="admin", label="admin")


class Coordinator:
    """One coordinator across its lives."""

    store_class = SimulatedStore

    def __init__(self, history: History) -> None:
        self.history = history
        self.loop = history.loop
        self.drive = Drive()
        self.clock = SimulatedClock(self.loop)
        self.lives = 0
        self.up = False
        self.connections: list[Connection] = []
        self._calls: dict[asyncio.Future[Any], None] = {}

    # -- life

    def start(self) -> None:
        """A new process on the same disk."""
        self.lives += 1
        seed = f"{self.history.script.seed} coordinator {self.lives}"
        self.process = Process("coordinator")
        self.process.when_killed = self.crash
        self.random = random.Random(seed)
        self.entropy = Entropy(random.Random(f"{seed} entropy"))
        self.store = self.store_class(
            self.drive,
            self.history.watch,
            self.clock,
            self.entropy,
            random.Random(f"{seed} disk"),
            self.history.script.keep_ended,
        )
        self.blobs = MemoryBlobs(self.drive, self.history.watch, self.clock.wall)
        self.loop.spawn(self.process, self._start())

    async def _start(self) -> None:
        script = self.history.script
        config = DeskConfig(
            pool_name="simulated", measure=script.trials, tick_s=0.25, idle_beats=script.idle_beats
        )  # fmt: skip
        await self.store.open(self.clock.monotonic())
        desk = PoolDesk(
            self.store, self.history.pool_keys, self.blobs, self.clock, self._offload, self.entropy, config
        )  # fmt: skip
        if not self.history.script.noise:
            keys, entropy = self.history.pool_keys, self.entropy
            desk._hub.channel = lambda: PlainChannel(keys.cs_pub, entropy, initiator=False)  # type: ignore[method-assign]
        await desk.start()
        self.desk = desk
        self.up = True
        self.history.trace("coordinator is up")

    def crash(self) -> None:
        """`kill -9`, and after some time another life."""
        if not self.process.alive:
            return
        self.history.trace("coordinator dies")
        self.store.die()
        self._end()

    def _end(self) -> None:
        self.up = False
        self.loop.kill(self.process)
        for connection in self.connections:
            connection.sever()
        self.connections.clear()
        calls, self._calls = self._calls, {}
        for answer in calls:
            if not answer.done():
                answer.set_exception(ConnectionResetError("the coordinator is gone"))
        self.loop.call_later(self.random.choice((0.01, 0.5, 3.0, 12.0)), self._again, context=self.history.nobody())

    def _again(self) -> None:
        if not self.process.alive:
            self.start()

    def restart(self) -> None:
        """An orderly end, and another life."""
        if self.up:
            self.up = False
            self.loop.spawn(self.process, self._stop(self.process))

    async def _stop(self, process: Process) -> None:
        await self.desk.stop()
        try:
            await self.store.close()
        except MoreGPUError:
            pass  # a full disk: what was not told is lost
        if process.alive:
            self.history.trace("coordinator stops")
            self._end()

    async def _offload(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(self.random.choice((0.0, 0.002, 0.05)))
        result = work()
        await asyncio.sleep(self.random.choice((0.0, 0.01)))
        return result

    # -- doors

    def accept(self, random_: random.Random, delay_s: float) -> Connection | None:
        """A worker dials; None when nobody listens."""
        if not self.up:
            return None
        connection = Connection(self.loop, random_, delay_s)
        self.connections = [each for each in self.connections if not each.over]
        self.connections.append(connection)
        self.loop.spawn(self.process, self.desk.serve_worker(connection.socket))
        return connection

    async def call(self, random_: random.Random, work: Callable[[PoolDesk], Awaitable[T]], *, lossy: bool = False) -> T:
        """An HTTP request of a client or an agent. Raises `Unreachable` when no answer came, whatever was done."""
        await asyncio.sleep(random_.uniform(0.001, 0.02))
        if lossy and random_.random() < 0.3:
            await asyncio.sleep(random_.uniform(0.1, 5.0))
            raise Unreachable("the request was lost")
        if not self.up:
            raise Unreachable("nobody listens")
        answer: asyncio.Future[Any] = self.loop.create_future()
        self._calls[answer] = None
        serving = self.loop.spawn(self.process, self._serve(work, answer))
        try:
            result = await answer
        except ConnectionResetError as error:
            raise Unreachable("the connection broke") from error
        except asyncio.CancelledError:
            serving.cancel()  # as the server does when its client hangs up
            raise
        finally:
            self._calls.pop(answer, None)
        await asyncio.sleep(random_.uniform(0.001, 0.02))
        if lossy and random_.random() < 0.3:
            await asyncio.sleep(random_.uniform(0.1, 5.0))
            raise Unreachable("the answer was lost")
        return result

    async def _serve(self, work: Callable[[PoolDesk], Awaitable[Any]], answer: asyncio.Future[Any]) -> None:
        began = self.loop.now
        try:
            result = await work(self.desk)
        except MoreGPUError as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if isinstance(result, JobRow):
            self.history.watch.told(result, began)
        if not answer.done():
            answer.set_result(result)

    async def upload(self, principal: str, sealed: bytes | bytearray) -> str:
        """What the door does with a POST of a blob: blob durable → row → answer."""
        upload = self.blobs.begin(principal, None, len(sealed))
        upload.write(sealed)
        digest = upload.finish()
        await self.store.add_blob(
            BlobRow(digest=digest, sealed_bytes=len(sealed), principal=principal, created_at=self.clock.wall())
        )
        return digest

    async def upload_as_worker(self, bearer: str, sealed: bytes | bytearray) -> str:
        """The same under a session's token."""
        right = await self.desk.blob_right(bearer, "")
        if right is None:
            raise Unauthorized("no such session")
        if len(sealed) > right[1].write_bytes:
            raise NotFound("no lease lets this worker upload so much")
        left = right[1].left_bytes
        if left is not None:
            await self.desk.admit_upload(right[0], len(sealed), left)
        return await self.upload(right[0], sealed)

    async def download_as_worker(self, bearer: str, tensor: Tensor) -> bytes:
        """The plain bytes of a blob's part, as an agent gets them by Range."""
        assert isinstance(tensor.data, Blob)
        right = await self.desk.blob_right(bearer, tensor.data.digest)
        if right is None:
            raise Unauthorized("no such session")
        if not right[1].read:
            raise NotFound("no lease of this worker names it")
        return bytes(plain_part(tensor, self.blobs))

    def plain(self, tensor: Tensor) -> bytes:
        """A whole tensor's bytes."""
        return bytes(plain_part(tensor, self.blobs))

    # -- chores

    async def housekeeping(self) -> None:
        """One round of the real housekeeping."""
        if not self.up:
            return
        keys = self.history.pool_keys
        services: Any = SimpleNamespace(
            desk=self.desk,
            keys=keys,
            pool=SimpleNamespace(id=keys.pool_id),
            clock=self.clock,
            blobs=self.blobs,
            offload=self._offload,
            settings=SimpleNamespace(limits=SimpleNamespace(keep_bytes=None)),
            residents=SimpleNamespace(digests=set),
        )
        try:
            await Housekeeping(services).round()
        except MoreGPUError:
            pass  # a full disk: tried again the next time
