"""The table of doors: verb, path, who may, whose things, what it does. Tests and the API's description read it too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from moregpu.coordinator.api import (
    blobs,
    events,
    groups,
    invites,
    joblogs,
    jobs,
    kernels,
    link,
    network,
    pool,
    results,
    scrape,
    socket,
    tensors,
    tokens,
    workers,
)
from moregpu.coordinator.api.ask import Answer, Ask, Stream
from moregpu.coordinator.api.compat import doors as compat
from moregpu.coordinator.api.socket import SocketAsk
from moregpu.errors import Forbidden, NotFound
from moregpu.wire.api import (
    AuditView,
    BlobView,
    GroupRequest,
    GroupView,
    Health,
    InviteRequest,
    InviteView,
    JobChange,
    JobPage,
    JobView,
    KernelRequest,
    KernelView,
    LogLine,
    Me,
    NetworkView,
    PlanView,
    PoolChange,
    PoolView,
    ResultManifest,
    Role,
    RotateRequest,
    RotateView,
    Signed,
    TensorRequest,
    TensorView,
    TokenRequest,
    TokenView,
    WorkerChange,
    WorkerView,
)
from moregpu.workloads import JobSpec

Access = Literal["public", "bearer", "viewer", "submitter", "admin"]
"""The least role. `public`: nobody is asked. `bearer`: the door itself judges clients' and workers' tokens."""

Owner = Literal["none", "seen", "owned"]
"""`seen`: the path names a job that this principal may see. `owned`: one of its own (an admin owns all)."""

_RANK: dict[Role, int] = {"viewer": 0, "submitter": 1, "admin": 2}


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on one path."""

    verb: str
    path: str
    access: Access
    owner: Owner = "none"
    handler: Callable[[Ask], Awaitable[Answer | Stream]]
    takes: Any = None
    """Type of the body; None: no body, or bytes where `bytes` stands."""
    gives: Any = None
    """Type of the answer; None: an answer without body; str: a text of another media type."""
    status: tuple[int, ...] = (200,)
    """What it answers when all is well."""
    query: tuple[str, ...] = ()
    """Names of what its query may say: `description.QUERY` tells more."""
    compat: bool = False
    """A call of MoreGPU 1.x: its errors are `{"error": …}`, its tokens may stand elsewhere."""


class SocketDoor(msgspec.Struct, frozen=True, kw_only=True):
    """One WebSocket."""

    path: str
    access: Access
    handler: Callable[[SocketAsk], Awaitable[None]]


def _door(
    verb: str,
    path: str,
    access: Access,
    handler: Any,
    takes: Any = None,
    gives: Any = None,
    *,
    owner: Owner = "none",
    status: tuple[int, ...] = (200,),
    query: tuple[str, ...] = (),
) -> Door:
    return Door(
        verb=verb, path=path, access=access, owner=owner, handler=handler, takes=takes, gives=gives, status=status,
        query=query,
    )  # fmt: skip


def _old(verb: str, path: str, access: Access, handler: Any, *, owner: Owner = "none") -> Door:
    return Door(verb=verb, path=path, access=access, owner=owner, handler=handler, compat=True)


NATIVE: tuple[Door, ...] = (
    _door("POST", "/v1/jobs", "submitter", jobs.submit, JobSpec, JobView, status=(200, 201), query=("wait",)),
    _door("GET", "/v1/jobs", "viewer", jobs.list_jobs, None, JobPage,
          query=("state", "kind", "submitter", "after", "limit")),
    _door("POST", "/v1/plan", "submitter", jobs.plan, JobSpec, PlanView),
    _door("GET", "/v1/jobs/{id}", "viewer", jobs.show, None, JobView, owner="seen", query=("wait",)),
    _door("PATCH", "/v1/jobs/{id}", "submitter", jobs.change, JobChange, JobView, owner="owned"),
    _door("DELETE", "/v1/jobs/{id}", "submitter", jobs.cancel, None, JobView, owner="owned", query=("purge",)),
    _door("POST", "/v1/jobs/{id}/retry", "submitter", jobs.retry, None, JobView, owner="owned", status=(201,)),
    _door("GET", "/v1/jobs/{id}/result", "submitter", results.result, None, ResultManifest, owner="owned",
          status=(200, 202), query=("wait", "format", "output", "sealed")),
    _door("GET", "/v1/jobs/{id}/logs", "submitter", joblogs.logs, None, list[LogLine], owner="owned",
          query=("follow",)),
    _door("GET", "/v1/jobs/{id}/statements", "submitter", results.statements, None, list[Signed], owner="owned"),
    _door("POST", "/v1/blobs", "bearer", blobs.create, bytes, BlobView, status=(201,)),
    _door("PUT", "/v1/blobs/{digest}", "bearer", blobs.put, bytes, BlobView, status=(200, 201), query=("offset",)),
    _door("GET", "/v1/blobs/{digest}", "bearer", blobs.get, None, bytes, status=(200, 206)),
    _door("HEAD", "/v1/blobs/{digest}", "bearer", blobs.head),
    _door("GET", "/v1/tensors", "submitter", tensors.list_tensors, None, list[TensorView]),
    _door("POST", "/v1/tensors", "submitter", tensors.put, TensorRequest, TensorView, status=(201,)),
    _door("GET", "/v1/tensors/{name:path}", "submitter", tensors.show, None, TensorView),
    _door("DELETE", "/v1/tensors/{name:path}", "submitter", tensors.drop, status=(204,)),
    _door("GET", "/v1/workers", "viewer", workers.list_workers, None, list[WorkerView]),
    _door("GET", "/v1/workers/{id}", "viewer", workers.show, None, WorkerView),
    _door("PATCH", "/v1/workers/{id}", "admin", workers.change, WorkerChange, WorkerView),
    _door("DELETE", "/v1/workers/{id}", "admin", workers.revoke, status=(204,)),
    _door("GET", "/v1/kernels", "viewer", kernels.list_kernels, None, list[KernelView]),
    _door("POST", "/v1/kernels", "admin", kernels.register, KernelRequest, KernelView, status=(201,)),
    _door("DELETE", "/v1/kernels/{id}", "admin", kernels.drop, status=(204,)),
    _door("GET", "/v1/groups", "viewer", groups.list_groups, None, list[GroupView]),
    _door("POST", "/v1/groups", "admin", groups.create, GroupRequest, GroupView, status=(201,)),
    _door("DELETE", "/v1/groups/{id}", "admin", groups.drop, status=(204,)),
    _door("POST", "/v1/invites", "admin", invites.create, InviteRequest, InviteView, status=(201,)),
    _door("GET", "/v1/invites", "admin", invites.list_invites, None, list[InviteView]),
    _door("DELETE", "/v1/invites/{id}", "admin", invites.withdraw, status=(204,)),
    _door("POST", "/v1/tokens", "admin", tokens.create, TokenRequest, TokenView, status=(201,)),
    _door("GET", "/v1/tokens", "admin", tokens.list_tokens, None, list[TokenView]),
    _door("DELETE", "/v1/tokens/{id}", "admin", tokens.revoke, status=(204,)),
    _door("GET", "/v1/events", "viewer", events.stream, None, str, query=("after",)),
    _door("GET", "/v1/pool", "viewer", pool.show, None, PoolView),
    _door("PATCH", "/v1/pool", "admin", pool.change, PoolChange, PoolView),
    _door("POST", "/v1/pool/rotate", "admin", pool.rotate, RotateRequest, RotateView),
    _door("GET", "/v1/network", "viewer", network.show, None, NetworkView),
    _door("GET", "/v1/me", "viewer", tokens.me, None, Me),
    _door("GET", "/v1/audit", "viewer", pool.audit, None, AuditView),
    _door("GET", "/v1/openapi.json", "public", pool.description, None, dict[str, Any]),
    _door("GET", "/health", "public", pool.health, None, Health),
    _door("GET", "/metrics", "viewer", scrape.metrics, None, str),
)  # fmt: skip

COMPAT: tuple[Door, ...] = (
    _old("GET", "/", "public", compat.front),
    _old("GET", "/whoami", "public", compat.whoami),
    _old("GET", "/cert.pem", "public", compat.certificate),
    _old("GET", "/help", "public", compat.help),
    _old("GET", "/device", "viewer", compat.device),
    _old("GET", "/gpu", "viewer", compat.gpu),
    _old("GET", "/workers", "viewer", compat.workers),
    _old("GET", "/net", "viewer", compat.net),
    _old("POST", "/workers/{id}/control", "admin", compat.control),
    _old("POST", "/submit", "submitter", compat.submit),
    _old("GET", "/jobs", "viewer", compat.jobs),
    _old("GET", "/jobs/{id}", "viewer", compat.job, owner="seen"),
    _old("GET", "/logs", "viewer", compat.logs),
    _old("POST", "/weights", "submitter", compat.put_weight),
    _old("GET", "/weights", "submitter", compat.list_weights),
    *(_old(verb, path, "submitter", compat.not_yet) for verb, path in compat.LATER),
)

DOORS: tuple[Door, ...] = (*NATIVE, *COMPAT)

SOCKETS: tuple[SocketDoor, ...] = (
    SocketDoor(path="/v1/worker", access="public", handler=socket.worker),
    SocketDoor(path="/v1/link", access="submitter", handler=link.socket),
    SocketDoor(path="/v1/events", access="viewer", handler=events.socket),
)


async def admit(ask: Ask | SocketAsk, door: Door | SocketDoor) -> None:
    """Ask who it is and whether its role suffices. Raises `Unauthorized`, `TooManyRequests`, `Forbidden`."""
    plain = isinstance(ask, Ask) and ask.plain
    if door.access == "bearer" and plain:
        raise Forbidden("blobs do not travel without TLS", "use the port with TLS")
    if door.access == "public" or door.access == "bearer":
        return
    compat_door = isinstance(door, Door) and (door.compat or door.path == "/metrics")
    authorization = compat.authorization_of(ask.headers) if compat_door else ask.headers.get("authorization", "")
    who = await ask.services.authority.principal(authorization, ask.peer)
    if plain and who.scope != "compat":
        raise Forbidden(
            "without TLS only tokens of scope compat are taken",
            "make one with scope compat; and revoke this one, if others can listen on this machine",
        )
    if who.scope == "compat" and not compat_door and door.path != "/v1/me":
        raise Forbidden("this token is for the calls of MoreGPU 1.x alone", "a token of scope all does that")
    if _RANK[who.role] < _RANK[door.access]:
        raise Forbidden(f"a token of role {who.role} may not do that", f"it takes the role {door.access}")
    ask.who = who


async def admit_to_job(ask: Ask, owner: Owner) -> None:
    """Find the job that the path names; raises `NotFound` for what is not there and for what is not theirs alike."""
    if owner == "none":
        return
    job = await ask.services.desk.job(ask.who, ask.params["id"])
    if owner == "owned" and ask.who.role != "admin" and job.submitter != ask.who.id:
        raise NotFound(f"there is no job {ask.params['id'][:40]!r}", "`moregpu jobs` lists yours")
    ask.job = job
