"""What the routes work with: the engine room, tokens, blobs, and facts about this pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.api.load import PoolLoad
from moregpu.coordinator.authority import Authority
from moregpu.coordinator.protocol import Clock, Desk, Offload
from moregpu.coordinator.reach import Reach
from moregpu.wire.identity import PoolKeys

if TYPE_CHECKING:
    from moregpu.coordinator.api.pool import Auditor


class PoolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about this pool that do not change while it runs."""

    id: bytes
    name: str
    fingerprint: str
    version: str
    reach: Reach
    pin: bytes
    started_at: float


@dataclass(frozen=True, kw_only=True)
class Services:
    """Handed to every route."""

    desk: Desk
    authority: Authority
    blobs: BlobFiles
    keys: PoolKeys
    pool: PoolInfo
    clock: Clock
    offload: Offload
    load: PoolLoad
    auditor: Auditor
    max_blob_bytes: int = 1 << 40
