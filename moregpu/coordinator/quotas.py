"""How much of the pool one submitter may hold: jobs that have not ended, and bytes on the coordinator's disk."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from moregpu.blobs.local import BlobFiles
from moregpu.coordinator.protocol import Principal
from moregpu.coordinator.store.protocol import Store
from moregpu.errors import OverQuota
from moregpu.workloads.protocol import Plan


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Of each submitter; an admin has none."""

    jobs: Annotated[int, Meta(title="Jobs", description="Queued and running at once", ge=1)] = 50_000
    needs: Annotated[int, Meta(title="Needs", description="Different needs of jobs that wait at once", ge=1)] = 256
    calls: Annotated[int, Meta(title="Calls", description="Of functions, queued and running at once", ge=1)] = 4_000_000
    """The size of each call's arguments lies in memory, 40 bytes: so at most 160 MB of one submitter."""
    stored_bytes: Annotated[int, Meta(title="Bytes", description="Inputs and results, sealed", ge=0)] | None = None


OTHERS_SHARE = 0.1
"""Of what blobs may take of the disk, for those who hold less than half of what is there: one submitter that fills the
disk would have everybody else refused, and their results let go to make room for its own."""


def refuse_job(quotas: Quotas, store: Store, blobs: BlobFiles, who: Principal) -> None:
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
    refuse_bytes(0, bytes_left(quotas, store, blobs, who))


def refuse_calls(quotas: Quotas, store: Store, who: Principal, plan: Plan) -> None:
    """Raise `OverQuota` when a job's calls would be more than somebody may have waiting; nothing else has calls."""
    if who.role == "admin" or not plan.needs.own_code:
        return
    alive = store.calls_alive(who.id)
    if alive + plan.grains > quotas.calls:
        raise OverQuota(
            f"{plan.grains:,} calls beside the {alive:,} of your jobs that have not ended are more than the "
            f"{quotas.calls:,} that the pool takes from one submitter",
            "wait until some have ended, or make fewer calls that do more each",
        )


def bytes_left(quotas: Quotas, store: Store, blobs: BlobFiles, who: Principal) -> int | None:
    """Sealed bytes that somebody may still upload; below 0 when they have too many; None when there is no limit."""
    if who.role == "admin":
        return None
    held, used = store.bytes_of(who.id), blobs.used_bytes()
    left = None if quotas.stored_bytes is None else quotas.stored_bytes - held
    if 2 * held <= used:
        return left
    free = blobs.free_bytes()
    room = free - int(OTHERS_SHARE * (used + free))
    return room if left is None else min(room, left)


def refuse_bytes(wanted: int, left: int | None) -> None:
    """Raise `OverQuota` when so many bytes more are more than what is left."""
    if left is None or wanted <= left:
        return
    what = f"{wanted:,} bytes are more than the {left:,} that are left to you here" if left >= 0 else (
        f"you keep {-left:,} bytes more here than the pool gives one submitter now"
    )  # fmt: skip
    raise OverQuota(what, "forget results that you no longer need: DELETE /v1/jobs/{id}?purge=1")
