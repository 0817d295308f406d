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
    needs: Annotated[int, Meta(title="Needs", description="Different needs of jobs that wait at once", ge=1)] = 256
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
    if store.needs_ready(who.id) >= quotas.needs:
        raise OverQuota(
            f"your jobs that wait ask for {quotas.needs} different groups, devices, sizes of memory or speeds",
            "wait until some have started: each of them is looked for at every lease",
        )
    refuse_bytes(0, bytes_left(quotas, store, who))


def bytes_left(quotas: Quotas, store: Store, who: Principal) -> int | None:
    """Sealed bytes that somebody may still upload; below 0 when they have too many; None when there is no limit."""
    if who.role == "admin" or quotas.stored_bytes is None:
        return None
    return quotas.stored_bytes - store.bytes_of(who.id)


def refuse_bytes(wanted: int, left: int | None) -> None:
    """Raise `OverQuota` when so many bytes more are more than what is left."""
    if left is None or wanted <= left:
        return
    what = f"{wanted:,} bytes are more than the {left:,} that are left to you here" if left >= 0 else (
        f"you keep {-left:,} bytes more here than the pool gives one submitter"
    )  # fmt: skip
    raise OverQuota(what, "forget results that you no longer need: DELETE /v1/jobs/{id}?purge=1")
