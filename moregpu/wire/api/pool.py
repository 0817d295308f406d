"""The pool as a whole: what it is, its limits, keys, ledger and events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from moregpu.wire.api.bodies import Body, View


class PoolView(View, frozen=True, kw_only=True):
    """GET /v1/pool."""

    id: str
    name: str
    fingerprint: str  # words
    version: str
    addresses: list[str]
    workers_online: int
    workers_total: int
    jobs_queued: int
    jobs_running: int
    started_at: float
    storage_bytes: int = 0
    storage_free_bytes: int = 0
    description: str = ""
    keep_bytes: int | None = None  # outputs of ended jobs beyond this go, oldest first; None: no limit
    max_blob_bytes: int = 0
    submitter_jobs: int = 0  # most jobs of one submitter that have not ended
    submitter_bytes: int | None = None  # most bytes that one submitter keeps; None: no limit
    rotating: bool = False  # a next session key is announced


class PoolChange(Body, frozen=True, kw_only=True):
    """PATCH /v1/pool: only what is named changes."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    description: Annotated[str, Meta(max_length=1000)] | None = None
    keep_bytes: Annotated[int, Meta(ge=0, description="0: no limit")] | None = None
    max_blob_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 50)] | None = None
    submitter_jobs: Annotated[int, Meta(ge=1, description="Jobs of one submitter that have not ended")] | None = None
    submitter_bytes: Annotated[int, Meta(ge=0, description="Bytes that one submitter keeps; 0: no limit")] | None = None


class RotateRequest(Body, frozen=True, kw_only=True):
    """POST /v1/pool/rotate: `begin` a next session key, `finish` lets go of the old one, `cancel` of the next.

    Workers learn the next key when their session begins, at the latest after a day; one that did not when the old key
    goes needs a new invite.
    """

    action: Literal["begin", "finish", "cancel"] = "begin"


class RotateView(View, frozen=True, kw_only=True):
    """Where a rotation stands. Keys are public halves, in hex."""

    rotating: bool
    session_key: str
    next_session_key: str = ""


class Event(View, frozen=True, kw_only=True):
    """One thing that happened. Durable ones carry `seq`; live ones (duty, load) have none: the latest wins."""

    type: str
    id: str = ""
    at: float = 0.0
    seq: int | None = None
    data: dict[str, Any] = {}


class AuditView(View, frozen=True, kw_only=True):
    """GET /v1/audit: what a walk over the ledger found."""

    rows: int
    checkpoints: int
    writers: int
    ok: bool
    problems: list[str] = []
    head: str = ""


class Health(View, frozen=True, kw_only=True):
    """GET /health: public. Workers that are connected, jobs that are queued."""

    ok: bool
    fleet: int
    queue: int
