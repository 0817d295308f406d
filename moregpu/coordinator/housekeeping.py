"""What a coordinator does now and then: token uses, the signature of the ledger's head, what is kept no longer."""

from __future__ import annotations

import asyncio
import logging

from moregpu.coordinator.api.services import Services
from moregpu.coordinator.authority import USED_AT_EVERY_S
from moregpu.coordinator.ledger import make_checkpoint
from moregpu.coordinator.retention import Kept, kept, room_wanted, to_forget
from moregpu.coordinator.store.references import blobs_in
from moregpu.errors import MoreGPUError
from moregpu.jobs import JOB_ENDED
from moregpu.platform.logs import facts

log = logging.getLogger(__name__)

PERIOD_S = 3600.0
GRACE_S = 86_400.0
"""A blob that no job names is kept for a day: an upload may come long before its job."""
_PAGE = 200


class Housekeeping:
    """Runs until cancelled; what fails is logged and tried again the next time."""

    def __init__(self, services: Services):
        self._services = services
        self._next_round = 0.0
        self._all_purged_before = ""
        self._pinned = 0

    async def run(self) -> None:
        """Every minute the small things, every hour the large ones."""
        clock = self._services.clock
        while True:
            try:
                await self._services.authority.keep_uses()
                await self.make_room()
                if not clock.monotonic() < self._next_round:
                    self._next_round = clock.monotonic() + PERIOD_S
                    await self.round()
            except (MoreGPUError, OSError) as error:
                log.warning("housekeeping failed; it is tried again", extra=facts(why=str(error)))
            await asyncio.sleep(USED_AT_EVERY_S)

    async def round(self) -> None:
        """The large things, once."""
        wall = self._services.clock.wall()
        await self.sign_head()
        await self.purge_outputs(wall)
        await self.purge_beyond(self._services.settings.limits.keep_bytes)
        await self.drop_blobs(wall - GRACE_S)
        await self._services.offload(lambda: self._services.blobs.clean_partials(wall - GRACE_S))

    async def sign_head(self) -> None:
        """Sign the ledger's head with the pool's `ci`, where it is on this machine and the head has moved."""
        services = self._services
        head = await services.desk.store.ledger_head()
        if services.keys.ci is None or head[1] == self._pinned or head[1] == 0:
            return
        point = make_checkpoint(head, services.pool.id, services.clock.wall(), services.keys.sign)
        await services.desk.store.add_checkpoint(point)
        self._pinned = head[1]

    async def purge_outputs(self, wall: float) -> None:
        """Forget outputs and keys of jobs that were kept as long as they asked; their records stay."""
        store = self._services.desk.store
        before: str | None = None
        oldest_kept: str | None = None
        while True:
            rows = await store.jobs(states=JOB_ENDED, before=before, limit=_PAGE)
            for row in rows:
                if row.id < self._all_purged_before:
                    rows = []
                    break
                if row.purged:
                    continue
                if row.ended_at is not None and row.ended_at + row.spec.keep_s <= wall:
                    await store.purge(row.id)
                else:
                    oldest_kept = row.id
            if len(rows) < _PAGE:
                break
            before = rows[-1].id
        if oldest_kept is not None:
            self._all_purged_before = oldest_kept

    async def purge_beyond(self, keep_bytes: int | None) -> None:
        """Forget the oldest outputs of ended jobs until no more than `keep_bytes` are kept."""
        if keep_bytes is not None:
            await self._forget(keep_bytes=keep_bytes)

    async def make_room(self) -> None:
        """At the disk's mark nobody can submit or hand in anything: the oldest outputs go, before their time."""
        blobs = self._services.blobs
        free_bytes = await self._services.offload(blobs.free_bytes)
        wanted = room_wanted(free_bytes, blobs.used_bytes())
        if wanted:
            log.warning("the disk is at its mark; the oldest outputs are let go", extra=facts(bytes=wanted))
            await self._forget(free_bytes=wanted)

    async def _forget(self, *, keep_bytes: int | None = None, free_bytes: int = 0) -> None:
        """Let go of ended jobs' data, and of the files, at once: the room is needed now."""
        services = self._services
        store, wall = services.desk.store, services.clock.wall()
        jobs: list[Kept] = []
        before: str | None = None
        while rows := await store.jobs(states=JOB_ENDED, before=before, limit=_PAGE):
            jobs += [own for row in rows if (own := kept(row)) is not None]
            before = rows[-1].id
        ids = to_forget(jobs, wall, keep_bytes=keep_bytes, free_bytes=free_bytes)
        named: set[str] = set()
        for id in ids:
            row = await store.job(id)
            if row is not None:
                named.update(blob.digest for blob in blobs_in((row.spec, row.result)))
                await store.purge(id)
        if named:
            # An upload that its submitter has yet to name in another job may be among them, hence its day of grace;
            # here there is no room for that.
            gone = named.intersection(await store.unreferenced_blobs(wall + 1.0)) - services.residents.digests()
            await store.drop_blobs(sorted(gone))
            await services.offload(lambda: [services.blobs.delete(digest) for digest in sorted(gone)])
            log.info("outputs were let go to make room", extra=facts(jobs=len(ids), blobs=len(gone)))

    async def drop_blobs(self, older_than: float) -> None:
        """Delete blobs that no job names. Rows go first: a file without a row is only space, found again here."""
        services = self._services
        store = services.desk.store
        named = services.residents.digests()
        digests = [digest for digest in await store.unreferenced_blobs(older_than) if digest not in named]
        if digests:
            await store.drop_blobs(digests)
        # Files without a row, too: a crash came between a file and its row, or between a row's end and its file's.
        digests += await services.offload(lambda: services.blobs.older_than(older_than))
        gone = [digest for digest in dict.fromkeys(digests) if await store.blob(digest) is None]
        if gone:
            await services.offload(lambda: [services.blobs.delete(digest) for digest in gone])
            log.info("blobs that no job names were deleted", extra=facts(count=len(gone)))
