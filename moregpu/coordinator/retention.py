"""Which outputs go, and when: those that were kept as long as asked, then the oldest while there is too little room.

Only data goes. A job's record, its evidence and its signed statements stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moregpu.coordinator.store.protocol import JobRow
from moregpu.coordinator.store.references import blobs_in
from moregpu.jobs import JOB_ENDED

ROOM_SHARE = 0.05
"""At the disk's mark, so much of what is kept is let go at a time: not a little at every upload."""

LEAST_ROOM_BYTES = 256 << 20


class Kept(NamedTuple):
    """An ended job whose data is still here."""

    ended_at: float
    id: str
    size_bytes: int
    until: float


def kept(row: JobRow) -> Kept | None:
    """What a job keeps here; None when it has not ended, or keeps nothing."""
    until = kept_until(row)
    return None if until is None else Kept(_ended_at(row), row.id, kept_bytes(row), until)


def kept_bytes(row: JobRow) -> int:
    """Plain bytes of the blobs that an ended job names: its result, and its inputs for a retry."""
    return sum({blob.digest: blob.size_bytes for blob in blobs_in((row.spec, row.result))}.values())


def kept_until(row: JobRow) -> float | None:
    """When a job's outputs go at the latest; None when they are gone or the job has not ended."""
    if row.state not in JOB_ENDED or row.purged:
        return None
    return _ended_at(row) + row.spec.keep_s


def to_forget(jobs: Iterable[Kept], wall: float, *, keep_bytes: int | None = None, free_bytes: int = 0) -> list[str]:
    """Jobs whose data goes now, oldest end first.

    Those whose time is up; then the oldest until no more than `keep_bytes` are left and `free_bytes` are freed.
    Jobs that keep nothing are no help, and stay as they are until their time is up.
    """
    gone: list[str] = []
    left = sorted(jobs)
    over = max(0, sum(job.size_bytes for job in left) - keep_bytes) if keep_bytes is not None else 0
    wanted = max(over, free_bytes)
    freed = 0
    for job in left:
        if job.until <= wall:
            gone.append(job.id)
            freed += job.size_bytes
    for job in left:
        if freed >= wanted:
            break
        if job.until > wall and job.size_bytes > 0:
            gone.append(job.id)
            freed += job.size_bytes
    return gone


def _ended_at(row: JobRow) -> float:
    return row.ended_at if row.ended_at is not None else row.created_at


def room_wanted(free_bytes: int, used_bytes: int) -> int:
    """Bytes to free, when so many may still be uploaded before the disk's mark; 0 while there is room."""
    if free_bytes > 0:
        return 0
    return max(LEAST_ROOM_BYTES, int(ROOM_SHARE * used_bytes))
