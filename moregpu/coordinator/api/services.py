"""What the routes work with: the engine room, tokens, blobs, and facts about this pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.api.inflight import MOST_ON_LINKS, InFlight
from moregpu.coordinator.api.load import PoolLoad
from moregpu.coordinator.authority import Authority
from moregpu.coordinator.measures import Measures
from moregpu.coordinator.protocol import Clock, Desk, Offload
from moregpu.coordinator.reach import Reach
from moregpu.coordinator.residents import Residents
from moregpu.coordinator.rotation import Rotation
from moregpu.coordinator.settings import PoolSettings
from moregpu.coordinator.shelf import KernelShelf
from moregpu.coordinator.traffic import Traffic
from moregpu.wire.identity import PoolKeys
from moregpu.wire.invite import ClientLine

if TYPE_CHECKING:
    from moregpu.coordinator.api.pool import Auditor


class PoolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about this pool that do not change while it runs."""

    id: bytes
    fingerprint: str
    version: str
    reach: Reach
    pin: bytes
    started_at: float

    def client_line(self, token: str) -> str:
        """The `MGPUC1-` line of a token. Through a tunnel, the system verifies the certificate."""
        if self.reach.tunnel:
            return ClientLine(addresses=(self.reach.tunnel,), pin=b"", token=token).line()
        return ClientLine(addresses=self.reach.addresses, pin=self.pin, token=token).line()


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
    settings: PoolSettings
    residents: Residents
    kernels: KernelShelf
    rotation: Rotation
    measures: Measures
    certificate_sha256: bytes
    certificate_pem: bytes
    """Public: the leaf, and what it is signed by."""
    traffic: Traffic = field(default_factory=Traffic)
    inflight: InFlight = field(default_factory=InFlight)
    on_links: InFlight = field(default_factory=lambda: InFlight(MOST_ON_LINKS, "wait for some to end, or stop them"))
