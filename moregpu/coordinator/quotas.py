"""How much of the pool one submitter may hold: jobs that have not ended, and bytes on the coordinator's disk."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.store.protocol import Store
from moregpu.errors import OverQuota


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Of each submitter; an admin has none."""

    jobs: Annotated[int, Meta(title="Jobs", description="Queued and running at once", ge=1)] = 50_000
    stored_bytes: Annotated[int, Meta(title="Bytes", description="Inputs and results, sealed", ge=0)] | None = None


def refuse_job(quotas: Quotas, store: Store, who: Principal) -> None:
    """Raise `OverQuota` when somebody has as many jobs, or more bytes, than they may."""
    if who.role == "admin":
        return
    jobs = store.jobs_alive(who.id)
    if jobs >= quotas.jobs:
        raise OverQuota(
            f"{jobs:,} of your jobs have not ended; the pool takes {quotas.jobs:,} from one submitter",
            "wait until some have ended, or cancel some",
        )
    left = bytes_left(quotas, store, who)
    if left is not None and left < 0:
        raise _too_many_bytes(quotas, quotas.stored_bytes or 0, left)


def refuse_upload(quotas: Quotas, store: Store, who: Principal, size_bytes: int) -> None:
    """Raise `OverQuota` when so many bytes more would be more than somebody may keep here."""
    left = bytes_left(quotas, store, who)
    if left is not None and size_bytes > left:
        raise _too_many_bytes(quotas, size_bytes, left)


def bytes_left(quotas: Quotas, store: Store, who: Principal) -> int | None:
    """Sealed bytes that somebody may still upload; None when there is no limit."""
    if who.role == "admin" or quotas.stored_bytes is None:
        return None
    return quotas.stored_bytes - store.bytes_of(who.id)


def _too_many_bytes(quotas: Quotas, wanted: int, left: int) -> OverQuota:
    return OverQuota(
        f"{wanted:,} bytes more than the {max(0, left):,} that are left of your {quotas.stored_bytes or 0:,}",
        "forget results that you no longer need: DELETE /v1/jobs/{id}?purge=1",
    )
