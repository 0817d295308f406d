"""The table of doors: verb, path, who may, whose things, what it does. Tests and the API's description read it too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from moregpu.coordinator.api import blobs, events, invites, jobs, pool, results, socket, tokens, workers
from moregpu.coordinator.api.ask import Answer, Ask, Stream
from moregpu.coordinator.api.socket import SocketAsk
from moregpu.errors import Forbidden, NotFound
from moregpu.wire.api import (
    AuditView,
    InviteRequest,
    InviteView,
    JobView,
    Me,
    Page,
    PlanView,
    PoolView,
    ResultManifest,
    Role,
    Signed,
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
    gives: Any = None


class SocketDoor(msgspec.Struct, frozen=True, kw_only=True):
    """One WebSocket."""

    path: str
    access: Access
    handler: Callable[[SocketAsk], Awaitable[None]]


def _door(verb: str, path: str, access: Access, handler: Any, takes: Any = None, gives: Any = None) -> Door:
    return Door(verb=verb, path=path, access=access, handler=handler, takes=takes, gives=gives)


def _job_door(verb: str, path: str, access: Access, owner: Owner, handler: Any, gives: Any = None) -> Door:
    return Door(verb=verb, path=path, access=access, owner=owner, handler=handler, gives=gives)


DOORS: tuple[Door, ...] = (
    _door("POST", "/v1/jobs", "submitter", jobs.submit, JobSpec, JobView),
    _door("GET", "/v1/jobs", "viewer", jobs.list_jobs, None, Page),
    _door("POST", "/v1/plan", "submitter", jobs.plan, JobSpec, PlanView),
    _job_door("GET", "/v1/jobs/{id}", "viewer", "seen", jobs.show, JobView),
    _job_door("DELETE", "/v1/jobs/{id}", "submitter", "owned", jobs.cancel, JobView),
    _job_door("POST", "/v1/jobs/{id}/retry", "submitter", "owned", jobs.retry, JobView),
    _job_door("GET", "/v1/jobs/{id}/result", "submitter", "owned", results.result, ResultManifest),
    _job_door("GET", "/v1/jobs/{id}/statements", "submitter", "owned", results.statements, list[Signed]),
    _door("POST", "/v1/blobs", "bearer", blobs.create),
    _door("PUT", "/v1/blobs/{digest}", "bearer", blobs.put),
    _door("GET", "/v1/blobs/{digest}", "bearer", blobs.get),
    _door("HEAD", "/v1/blobs/{digest}", "bearer", blobs.head),
    _door("GET", "/v1/workers", "viewer", workers.list_workers, None, list[WorkerView]),
    _door("GET", "/v1/workers/{id}", "viewer", workers.show, None, WorkerView),
    _door("PATCH", "/v1/workers/{id}", "admin", workers.change, WorkerChange, WorkerView),
    _door("DELETE", "/v1/workers/{id}", "admin", workers.revoke),
    _door("POST", "/v1/invites", "admin", invites.create, InviteRequest, InviteView),
    _door("GET", "/v1/invites", "admin", invites.list_invites, None, list[InviteView]),
    _door("DELETE", "/v1/invites/{id}", "admin", invites.withdraw),
    _door("POST", "/v1/tokens", "admin", tokens.create, TokenRequest, TokenView),
    _door("GET", "/v1/tokens", "admin", tokens.list_tokens, None, list[TokenView]),
    _door("DELETE", "/v1/tokens/{id}", "admin", tokens.revoke),
    _door("GET", "/v1/events", "viewer", events.stream),
    _door("GET", "/v1/pool", "viewer", pool.show, None, PoolView),
    _door("GET", "/v1/me", "viewer", tokens.me, None, Me),
    _door("GET", "/v1/audit", "viewer", pool.audit, None, AuditView),
    _door("GET", "/health", "public", pool.health),
)

SOCKETS: tuple[SocketDoor, ...] = (
    SocketDoor(path="/v1/worker", access="public", handler=socket.worker),
    SocketDoor(path="/v1/events", access="viewer", handler=events.socket),
)


async def admit(ask: Ask | SocketAsk, access: Access) -> None:
    """Ask who it is and whether its role suffices. Raises `Unauthorized`, `TooManyRequests`, `Forbidden`."""
    if access in ("public", "bearer"):
        return
    who = await ask.services.authority.principal(ask.headers.get("authorization", ""), ask.peer)
    if _RANK[who.role] < _RANK[access]:
        raise Forbidden(f"a token of role {who.role} may not do that", f"it takes the role {access}")
    ask.who = who


async def admit_to_job(ask: Ask, owner: Owner) -> None:
    """Find the job that the path names; raises `NotFound` for what is not there and for what is not theirs alike."""
    if owner == "none":
        return
    job = await ask.services.desk.job(ask.who, ask.params["id"])
    if owner == "owned" and ask.who.role != "admin" and job.submitter != ask.who.id:
        raise NotFound(f"there is no job {ask.params['id'][:40]!r}", "`moregpu jobs` lists yours")
    ask.job = job
