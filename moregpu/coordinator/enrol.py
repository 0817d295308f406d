"""Who is let in: a Hello against the workers that are known, or against an invite."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from moregpu.coordinator.limits import MAX_CORES_CLAIM, MAX_MEMORY_CLAIM, DeskConfig, RateLimit
from moregpu.coordinator.protocol import Clock
from moregpu.coordinator.store.protocol import Store, WorkerRow
from moregpu.errors import Forbidden, HandshakeFailed, InviteRefused, TooManyRequests
from moregpu.wire.identity import check_hello, worker_id_of
from moregpu.wire.invite import secret_hash
from moregpu.wire.messages import Device, Hello, Limits

log = logging.getLogger(__name__)

REVOKED_HINT = "Ask the pool's admin; to come back: moregpu leave, and moregpu join with a new invite"

REFUSED = "The invite was not accepted: it is wrong, expired or used"
ASK = "Ask the admin for a new invite"


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that may come in, and its row as it was before (None: it is new)."""

    row: WorkerRow
    before: WorkerRow | None = None


class Doorman:
    """Decides about Hellos. Before `check_hello` has passed, nothing at all happens on a peer's behalf."""

    def __init__(self, store: Store, clock: Clock, config: DeskConfig) -> None:
        self._store = store
        self._clock = clock
        self._wrong = RateLimit(config.wrong_invites_a_minute)
        self._wrong_anywhere = RateLimit(10 * config.wrong_invites_a_minute)
        self._unkept: dict[str, object] = {}
        """Who was enrolled or changed since last known to be on the disk, each with a mark of the last change."""

    async def admit(self, hello: Hello, remote_static: bytes, h: bytes, peer: str) -> Admitted:
        """Let a worker in; enrols it when it brings a good invite.

        Raises:
            HandshakeFailed: it did not prove who it is.
            InviteRefused: unknown, and its invite is not good (which of the ways is not told).
            Forbidden: it was revoked.
            TooManyRequests: too many wrong invites.
        """
        row = await self._store.worker(worker_id_of(hello.wi_pub))
        vouched = None if row is None else (row.wi_pub, row.ws_pub, row.ws_number)
        worker_id = check_hello(hello, remote_static, h, vouched)
        if row is None:
            return Admitted(row=await self._enrol(worker_id, hello, remote_static, peer))
        if row.revoked:
            raise Forbidden("This worker was revoked", REVOKED_HINT)
        if hello.ws_number < row.ws_number or (hello.ws_number == row.ws_number and remote_static != row.ws_pub):
            raise HandshakeFailed("The worker shows an older session key than it had before")
        fresh = msgspec.structs.replace(
            row,
            ws_pub=remote_static,
            ws_number=hello.ws_number,
            devices=capped(hello.devices),
            system=hello.system,
            version=hello.version,
            consent=hello.consent,
            seen_at=self._clock.wall(),
        )
        # Whoever is let in under another session key must never be again under the older one. But nobody waits for the
        # disk because they were seen again, which is all that most of a fleet that returns at once has to say.
        # What an earlier connection of theirs changed may not be there yet either, though that connection is gone.
        if msgspec.structs.replace(fresh, seen_at=row.seen_at) != row:
            self._unkept[worker_id] = object()
        mark = self._unkept.get(worker_id)
        row, before = await self._store.save_worker(fresh, "worker.online", durable=mark is not None), row
        self._kept(worker_id, mark)
        return Admitted(row=row, before=before)

    def _kept(self, worker_id: str, mark: object | None) -> None:
        """What stood under this mark is on the disk; what was changed since is not."""
        if mark is not None and self._unkept.get(worker_id) is mark:
            del self._unkept[worker_id]

    async def _enrol(self, worker_id: str, hello: Hello, remote_static: bytes, peer: str) -> WorkerRow:
        if hello.invite_id is None or hello.invite_secret is None:
            raise InviteRefused("This pool does not know this worker", "Join it with an invite")
        now = self._clock.monotonic()
        keys = [f"invite {hello.invite_id[:64]}", *([f"address {peer}"] if peer else [])]
        if self._wrong_anywhere.blocked("", now) or any(self._wrong.blocked(key, now) for key in keys):
            raise TooManyRequests("Too many invites were refused", "Wait a minute, then try again")
        wall = self._clock.wall()
        row = WorkerRow(
            id=worker_id,
            wi_pub=hello.wi_pub,
            ws_pub=remote_static,
            ws_number=hello.ws_number,
            name=hello.name or worker_id[:8],
            owner="",
            invite=hello.invite_id,
            enrolled_at=wall,
            seen_at=wall,
            devices=capped(hello.devices),
            system=hello.system,
            version=hello.version,
            consent=hello.consent,
            limits=Limits(ceiling=1.0),  # the owner's alone hold until an admin asks for less
        )
        mark = self._unkept[worker_id] = object()
        try:
            enrolled = await self._store.enrol(row, hello.invite_id, secret_hash(hello.invite_secret), wall)
        except (Exception, asyncio.CancelledError):  # not the end of the loop, in which nothing can be waited for
            if await self._store.worker(worker_id) is None:  # else it may come back before it is on the disk
                self._kept(worker_id, mark)
            raise
        self._kept(worker_id, mark)
        if enrolled is None:
            for key in keys:
                self._wrong.count(key, now)
            self._wrong_anywhere.count("", now)
            log.warning("invite refused", extra={"invite": hello.invite_id[:64], "peer": peer})
            raise InviteRefused(REFUSED, ASK)
        log.info("worker enrolled", extra={"worker": enrolled.id, "invite": hello.invite_id})
        return enrolled


def capped(devices: list[Device]) -> tuple[Device, ...]:
    """A worker's devices, with claims cut to what could be true."""
    return tuple(
        msgspec.structs.replace(
            device,
            memory_bytes=min(device.memory_bytes, MAX_MEMORY_CLAIM),
            cores=max(0, min(device.cores, MAX_CORES_CLAIM)),
        )
        for device in devices
    )
