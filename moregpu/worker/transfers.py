"""A task's large values between the coordinator's blobs and shared memory, on threads of their own.

Threads, because a blocking `readinto` loop moves 4 MiB in 1.0 ms where a stream reader on the event loop takes 6.8; and
because heartbeats must not wait for any of it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from moregpu.blobs.cache import SealedCache
from moregpu.blobs.format import RECORD_BYTES, open_range, sealed_size
from moregpu.blobs.regions import read_part, spans
from moregpu.blobs.transfer import BlobHTTP
from moregpu.errors import Forbidden, MoreGPUError, NotFound, OutOfSpace, Unauthorized, Unavailable, Unreachable
from moregpu.jobs import Blob, Tensor
from moregpu.wire.messages import Assignment
from moregpu.wire.retry import delays
from moregpu.wire.statement import Described, content_digest, described
from moregpu.worker.frames import Place
from moregpu.worker.memory import Region
from moregpu.worker.residents import Resident

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

THREADS = 4
RIGHT_TRIES = 3
"""A refusal may only mean that the link is being renewed, and with it the token; after so many it is meant."""

MOST_DELAY_S = 10.0


class Transfers:
    """Fetches inputs and stores outputs. One object for the life of the agent; `connected` follows the link."""

    def __init__(self, cache: SealedCache):
        self.cache = cache
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="transfer")
        self._door: BlobHTTP | None = None
        self._token = ""
        self._open = asyncio.Event()
        self._fetched_bytes: dict[str, int] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    # -- the way to the coordinator

    def connected(self, address: str, leaf: bytes, token: str) -> None:
        """There is a session: blobs go to the same address, where exactly the leaf that the session saw is trusted.

        (The session itself proved the coordinator; a leaf of a tunnel sees sealed bytes and a token for this session.)
        """
        if self._door is not None:
            self._door.close()
        self._token = token
        self._door = BlobHTTP(address, leaf, lambda: token)
        self._open.set()

    def disconnected(self) -> None:
        """There is no session: whatever wants a blob waits."""
        self._open.clear()

    def close(self) -> None:
        """Break off what is under way."""
        if self._door is not None:
            self._door.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- values

    async def fetch(
        self, assignment: Assignment, region: Region, places: Mapping[str, Place], unwanted: asyncio.Event
    ) -> dict[str, Described]:
        """Put inputs where they belong; returns what the statement says about them."""

        async def one(name: str, tensor: Tensor) -> Described:
            place = places[name]

            def work(door: BlobHTTP) -> Described:
                with region.view(place.start, place.size_bytes) as out:
                    self._read(door, tensor, out)
                    content = content_digest(assignment.digest_key, tensor.dtype, tensor.part_shape, out)
                return described(tensor, content)

            return await self._trying(work, unwanted)

        return await _all({name: one(name, assignment.inputs[name]) for name in places})

    async def open_whole(self, resident: Resident, unwanted: asyncio.Event) -> None:
        """Open a blob into the region that is to keep it."""
        blob = resident.blob
        whole = Tensor(dtype="uint8", shape=(blob.size_bytes,), data=blob)

        def work(door: BlobHTTP) -> None:
            with resident.region.view(0, blob.size_bytes) as out:
                self._read(door, whole, out)

        await self._trying(work, unwanted)
        resident.opened = True

    async def describe(self, assignment: Assignment, residents: Mapping[str, Resident]) -> dict[str, Described]:
        """What the statement says about inputs that are kept open."""
        loop, key = asyncio.get_running_loop(), assignment.digest_key

        async def one(tensor: Tensor, resident: Resident) -> Described:
            return described(tensor, await _finish(loop.run_in_executor(self._threads, resident.content, key, tensor)))

        return await _all({name: one(assignment.inputs[name], resident) for name, resident in residents.items()})

    async def store(
        self,
        assignment: Assignment,
        places: Mapping[str, Place],
        view: Callable[[int, int], memoryview],
        unwanted: asyncio.Event,
    ) -> tuple[dict[str, Tensor], dict[str, Described]]:
        """Seal and upload all outputs, each under a fresh key; retried until it is there or nobody wants it.

        `view(start, size_bytes)` gives the bytes of a place.
        """

        async def one(place: Place) -> tuple[Tensor, Described]:
            def work(door: BlobHTTP) -> tuple[Tensor, Described]:
                with view(place.start, place.size_bytes) as plain:
                    blob = door.upload_stream(plain)
                    content = content_digest(assignment.digest_key, place.dtype, place.shape, plain)
                tensor = Tensor(dtype=place.dtype, shape=place.shape, data=blob)
                return tensor, described(tensor, content)

            return await self._trying(work, unwanted)

        stored = await _all({name: one(place) for name, place in places.items()})
        return {name: pair[0] for name, pair in stored.items()}, {name: pair[1] for name, pair in stored.items()}

    async def _trying(self, work: Callable[[BlobHTTP], Answer], unwanted: asyncio.Event) -> Answer:
        """Run a transfer on a thread, again and again while the trouble is one that passes.

        Raises the last error when nobody wants the task any more, or when it is refused for good.
        """
        refusals = 0
        for delay_s in delays(0.1, MOST_DELAY_S):
            await self._link(unwanted)
            door, token = self._door, self._token
            if door is None:
                raise Unreachable
            try:
                return await _finish(asyncio.get_running_loop().run_in_executor(self._threads, work, door))
            except (Unauthorized, Forbidden, NotFound) as error:
                refusals += token == self._token
                if refusals >= RIGHT_TRIES or unwanted.is_set():
                    raise
                _log.info("a blob was refused: %s", error)
            except (Unreachable, Unavailable, OutOfSpace) as error:
                if unwanted.is_set():
                    raise
                _log.warning("a blob has to wait: %s", error)
            await asyncio.sleep(delay_s)
        raise AssertionError("delays never end")

    async def _link(self, unwanted: asyncio.Event) -> None:
        """Wait until there is a session, or until nobody wants the task."""
        if self._open.is_set():
            return
        waits = [asyncio.ensure_future(self._open.wait()), asyncio.ensure_future(unwanted.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not self._open.is_set():
            raise Unreachable("the task was withdrawn while the coordinator was away")

    # -- on a thread

    def _read(self, door: BlobHTTP, tensor: Tensor, out: memoryview) -> None:
        if not isinstance(tensor.data, Blob):
            read_part(tensor, _never, out)
            return
        blob = tensor.data
        if not door.is_here(blob.digest) and self._keep(door, blob, _covering_bytes(tensor)):
            reader = self.cache.reader(blob.digest)
            if reader is not None:
                with reader:
                    read_part(
                        tensor, lambda start, stop, part: open_range(blob, reader.read_at, start, stop, part), out
                    )
                return
        read_part(tensor, door.reader(blob, is_given=True), out)  # by the assignment

    def _keep(self, door: BlobHTTP, blob: Blob, covering_bytes: int) -> bool:
        """Whether the blob is in the cache, or comes there now.

        A task that needs a part fetches what covers that part, until the parts together would be more than the whole:
        from then on the whole is kept. So nothing is fetched more than twice, neighbouring tasks of a product share an
        input, and what is needed once is not written to disk.
        """
        with self._guard:
            lock = self._locks.setdefault(blob.digest, threading.Lock())
        with lock:
            reader = self.cache.reader(blob.digest)
            if reader is not None:
                reader.close()
                return True
            fetched = self._fetched_bytes.get(blob.digest, 0) + covering_bytes
            size = sealed_size(blob.size_bytes)
            if fetched > blob.size_bytes and self.cache.fits(size):
                return self._fetch_whole(door, blob, size)
            with self._guard:
                if len(self._fetched_bytes) > 10_000:
                    self._fetched_bytes.clear()
                    self._locks.clear()
                self._fetched_bytes[blob.digest] = fetched
            return False

    def _fetch_whole(self, door: BlobHTTP, blob: Blob, size: int) -> bool:
        try:
            writer = self.cache.writer(blob.digest, size)
        except OSError as error:
            _log.warning("the cache takes nothing: %s", error.strerror)
            return False
        try:
            door.download_sealed(blob.digest, size, writer.write)
            writer.finish()
        except OSError as error:  # this machine's disk; the cache is a convenience
            writer.abort()
            _log.warning("the cache takes nothing: %s", error.strerror)
            return False
        except MoreGPUError:
            writer.abort()
            raise
        return True


def _covering_bytes(tensor: Tensor) -> int:
    """Bytes that `read_part` reads for a tensor: its pieces, and the gaps between neighbours below a record."""
    covering, end = 0, -RECORD_BYTES
    for start, stop in spans(tensor.shape, tensor.dtype, tensor.region):
        covering += stop - (end if start - end < RECORD_BYTES else start)
        end = stop
    return covering


def _never(_start: int, _stop: int, _out: memoryview) -> None:
    raise AssertionError("an inline tensor has no blob")


async def _all(parts: Mapping[str, Coroutine[None, None, Answer]]) -> dict[str, Answer]:
    """Wait for all of them, by name. Every one is waited for even if another fails: they write into one region."""
    answers = await asyncio.gather(*parts.values(), return_exceptions=True)
    found: dict[str, Answer] = {}
    for name, answer in zip(parts, answers, strict=True):
        if isinstance(answer, BaseException):
            raise answer
        found[name] = answer
    return found


async def _finish(transfer: asyncio.Future[Answer]) -> Answer:
    """Wait for a thread to its end even when cancelled: the memory it uses is given to somebody else next."""
    try:
        return await asyncio.shield(transfer)
    except asyncio.CancelledError:
        await asyncio.wait([transfer])
        raise
