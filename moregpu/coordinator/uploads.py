"""What workers upload: theirs alone until a job names it, and never more than their leases may come to.

A worker that dies between an upload and its result leaves the upload here, and so does one that was slower than
another: nobody will name those. They are no reason to refuse the worker's next result. So the oldest go when something
new needs their room, and only what is being written or judged just now is in the way.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.protocol import Offload
from moregpu.coordinator.store.protocol import Store
from moregpu.errors import MoreGPUError, TooManyRequests
from moregpu.jobs import Blob
from moregpu.wire.messages import ResultEntry

log = logging.getLogger(__name__)


class Uploads:
    """Workers' uploads that no job names (yet)."""

    def __init__(self, store: Store, blobs: BlobFiles, offload: Offload) -> None:
        self._store = store
        self._blobs = blobs
        self._offload = offload
        self._judged: Counter[str] = Counter()
        """Digests that results name which are being judged: a job may come to name them at any moment."""

    @contextmanager
    def judging(self, entries: Iterable[ResultEntry]) -> Generator[None]:
        """Let go of nothing that these name, meanwhile."""
        named = [
            tensor.data.digest
            for entry in entries
            for tensor in entry.outputs.values()
            if isinstance(tensor.data, Blob)
        ]
        self._judged.update(named)
        try:
            yield
        finally:
            self._judged.subtract(named)
            for each in named:
                if not self._judged[each]:
                    del self._judged[each]

    async def forget(self, worker: str, digests: Sequence[str]) -> int:
        """Delete a worker's own uploads; returns how many bytes went.

        None that a job names, or a result that is being judged: a result may name whatever it likes.
        """
        rows = [await self._store.blob(each) for each in digests]
        own = [row for row in rows if row is not None and row.principal == worker and row.digest not in self._judged]
        if not own:
            return 0
        try:
            await self._store.drop_blobs([row.digest for row in own])
        except MoreGPUError as error:  # housekeeping finds what is left
            log.info("uploads that nothing names stay for a while", extra={"reason": error.detail})
            return 0
        gone = [row for row in own if await self._store.blob(row.digest) is None]
        for row in gone:
            self._blobs.delete(row.digest)
        return sum(row.sealed_bytes for row in gone)

    async def make_room(self, worker: str, wanted_bytes: int, but: str = "") -> int:
        """Let go of what a worker left here, oldest first, until so many bytes are free; returns how many went.

        `but`: it goes on with that upload.
        """
        freed = await self._offload(lambda: self._blobs.drop_unfinished(worker, wanted_bytes, but))
        oldest: list[str] = []
        promised = freed
        for row in self._store.loose_blobs(worker):
            if not promised < wanted_bytes:
                break
            if row.digest not in self._judged and row.digest != but:
                oldest.append(row.digest)
                promised += row.sealed_bytes
        return freed + await self.forget(worker, oldest)

    async def admit(self, worker: str, total_bytes: int, left_bytes: int, but: str = "") -> None:
        """A worker wants to upload so many bytes, and `left_bytes` more are what its leases allow: make room for them.

        Raises `TooManyRequests` when what it uploads or hands in just now leaves none.
        """
        short = total_bytes - left_bytes
        if short > 0 and await self.make_room(worker, short, but) < short:
            raise TooManyRequests(
                f"{total_bytes:,} bytes beside what this worker uploads just now are more than its leases are for",
                "end those uploads and hand in the results that name them",
            )
