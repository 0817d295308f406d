"""Who may do what: tokens, roles, and invites for workers."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from moregpu.wire.api.bodies import Body, View

Role = Literal["viewer", "submitter", "admin"]
Scope = Literal["all", "compat"]


class TokenRequest(Body, frozen=True, kw_only=True):
    """POST /v1/tokens."""

    label: Annotated[str, Meta(title="Label", max_length=100)] = ""
    role: Role = "submitter"
    expires_s: Annotated[float, Meta(gt=0)] | None = None
    scope: Annotated[Scope, Meta(description="compat: only the calls of MoreGPU 1.x, also without TLS on loopback")] = (
        "all"
    )
    kinds: Annotated[
        list[str], Meta(max_length=16, description="Kinds of jobs that it may submit; none named: all of them")
    ] = []
    weight: Annotated[float, Meta(ge=0.01, le=100.0, description="Share of a busy pool, beside others' 1")] = 1.0
    groups: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]],
        Meta(max_length=16, description="Of people: whom workers' owners let in by group:NAME"),
    ] = []


class TokenView(View, frozen=True, kw_only=True):
    """A client token. `line` (`MGPUC1-…`) is there once, in the answer to its making."""

    id: str
    label: str
    role: Role
    created_at: float
    expires_at: float | None = None
    used_at: float | None = None
    line: str = ""
    scope: Scope = "all"
    weight: float = 1.0
    kinds: list[str] = []  # of jobs that it may submit; none: all of them
    groups: list[str] = []  # whom workers' owners may let in by `group:NAME`


class Me(View, frozen=True, kw_only=True):
    """GET /v1/me."""

    id: str
    label: str
    role: Role
    scope: Scope = "all"
    kinds: list[str] = []  # of jobs that it may submit; none: all of them


class InviteRequest(Body, frozen=True, kw_only=True):
    """POST /v1/invites."""

    owner: Annotated[str, Meta(title="Owner", max_length=100)] = ""
    groups: Annotated[list[str], Meta(title="Groups")] = []
    kinds: Annotated[list[str], Meta(title="Kinds allowed", description="Empty: all")] = []
    uses: Annotated[int, Meta(title="Uses", ge=1, le=10_000)] = 1
    expires_s: Annotated[float, Meta(title="Valid for", description="Seconds", gt=0)] = 3600.0
    auto_approve: Annotated[bool, Meta(title="Approve at once", description="Only matters with more than one use")] = (
        False
    )


class InviteView(View, frozen=True, kw_only=True):
    """An invite. `line` is there once, in the answer to its making."""

    id: str
    owner: str
    groups: list[str]
    kinds: list[str]
    uses_left: int
    expires_at: float
    created_at: float
    auto_approve: bool = False
    line: str = ""
    reach: str = ""  # "this machine only; …" when the pool listens on loopback
