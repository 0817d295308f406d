"""Workers, their devices and limits, the groups they are in, how well they are connected."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from moregpu.wire.api.bodies import Body, View


class DeviceView(View, frozen=True, kw_only=True):
    """A device of a worker, by name of field: on the wire to workers the same is an array."""

    id: str
    kind: Literal["cpu", "gpu"]
    name: str
    driver: str = ""
    engine: str = ""
    memory_bytes: int = 0
    cores: int = 0


class LimitsView(View, frozen=True, kw_only=True):
    """Limits of a worker, by name of field."""

    ceiling: float = 0.85
    schedule: str = "always"
    paused: bool = False


class WorkerView(View, frozen=True, kw_only=True):
    """A worker as people see it."""

    id: str
    name: str
    owner: str
    groups: list[str]
    state: Literal["online", "offline", "pending", "paused", "draining", "revoked", "quarantined"]
    reason: str = ""
    devices: list[DeviceView] = []
    kinds: list[str] = []
    isolation: str = "none"
    system: str = ""
    version: str = ""
    limits: LimitsView = LimitsView()  # in force: the lower of the owner's and the admin's
    owner_limits: LimitsView = LimitsView()
    duty: dict[str, float] = {}
    user_load: float = 0.0
    speeds: dict[str, float] = {}
    score: int = 0
    leases: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    busy_s: float = 0.0
    round_trip_s: float | None = None
    connected_at: float | None = None
    seen_at: float | None = None
    enrolled_at: float = 0.0
    tls_ends_here: bool = True
    consent: dict[str, list[str]] = {}  # kind → whose jobs its owner lets in ("*": everybody's); not named: everybody's


class WorkerChange(Body, frozen=True, kw_only=True):
    """PATCH /v1/workers/{id}: only what is named changes."""

    action: Literal["pause", "resume", "drain", "approve"] | None = None
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    ceiling: Annotated[float, Meta(ge=0.05, le=1.0)] | None = None
    schedule: str | None = None
    groups: list[str] | None = None


class GroupRequest(Body, frozen=True, kw_only=True):
    """POST /v1/groups: make a group, or describe one that is there; its `workers` (ids or names) join it."""

    name: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    description: Annotated[str, Meta(max_length=1000)] = ""
    workers: list[str] = []


class GroupView(View, frozen=True, kw_only=True):
    """A named set of workers; a job's `group` restricts it to them."""

    name: str
    description: str = ""
    workers: list[str] = []  # ids
    online: int = 0


class LinkView(View, frozen=True, kw_only=True):
    """How well a worker is connected, and what that allows. Bytes a second are None until something was moved."""

    worker: str
    name: str
    state: str
    round_trip_s: float | None = None
    to_worker_bytes_s: float | None = None
    from_worker_bytes_s: float | None = None
    moved_bytes: int = 0
    tasks_per_s: float | None = None  # tiny tasks that one submitter who waits for each could run
    product_size: int | None = None  # from size × size on, computing a product takes longer than moving it
    allows: str = ""  # the same in words


class NetworkView(View, frozen=True, kw_only=True):
    """GET /v1/network."""

    links: list[LinkView]
