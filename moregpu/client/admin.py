"""The pool itself, as its admin and everybody who looks at it sees it: workers, invites, tokens, groups, network."""

from __future__ import annotations

from moregpu.client.doors import PATIENCE_S, Doors, path_of
from moregpu.wire.api import (
    AuditView,
    GroupRequest,
    GroupView,
    InviteRequest,
    InviteView,
    KernelRequest,
    KernelView,
    Me,
    NetworkView,
    PoolChange,
    PoolView,
    RotateRequest,
    RotateView,
    TokenRequest,
    TokenView,
    WorkerChange,
    WorkerView,
)


class Administration:
    """What a token may do beyond jobs; the coordinator says what its role allows."""

    doors: Doors

    def me(self, *, patience_s: float = PATIENCE_S) -> Me:
        """Who this token is."""
        return self.doors.call("GET", "/v1/me", Me, patience_s=patience_s)

    def info(self) -> PoolView:
        """The pool."""
        return self.doors.call("GET", "/v1/pool", PoolView)

    def change(self, change: PoolChange) -> PoolView:
        """Rename, describe or limit the pool (admin)."""
        return self.doors.call("PATCH", "/v1/pool", PoolView, body=change)

    def rotate(self, request: RotateRequest) -> RotateView:
        """Take a step of rotating the pool's session key (admin)."""
        return self.doors.call("POST", "/v1/pool/rotate", RotateView, body=request)

    def workers(self) -> list[WorkerView]:
        """The workers."""
        return self.doors.call("GET", "/v1/workers", list[WorkerView])

    def change_worker(self, id: str, change: WorkerChange) -> WorkerView:
        """Pause, resume, drain, approve, limit, name or group a worker (admin), by its name or id."""
        return self.doors.call("PATCH", path_of("workers", id), WorkerView, body=change)

    def remove_worker(self, id: str) -> None:
        """Revoke a worker for good (admin)."""
        self.doors.call("DELETE", path_of("workers", id), type(None))

    def kernels(self) -> list[KernelView]:
        """The registered kernels."""
        return self.doors.call("GET", "/v1/kernels", list[KernelView])

    def add_kernel(self, source: str) -> KernelView:
        """Register a WGSL kernel with its reference (admin); `custom` runs it. `docs/kernels.md` has an example."""
        return self.doors.call("POST", "/v1/kernels", KernelView, body=KernelRequest(source=source))

    def remove_kernel(self, name: str) -> None:
        """Remove a registered kernel (admin); jobs that are there go on."""
        self.doors.call("DELETE", path_of("kernels", name), type(None))

    def groups(self) -> list[GroupView]:
        """The groups of workers."""
        return self.doors.call("GET", "/v1/groups", list[GroupView])

    def add_group(self, request: GroupRequest) -> GroupView:
        """Make a group, describe it, or put more workers into it (admin)."""
        return self.doors.call("POST", "/v1/groups", GroupView, body=request, changes=False)

    def remove_group(self, name: str) -> None:
        """Let a group go (admin): no worker is in it any more."""
        self.doors.call("DELETE", path_of("groups", name), type(None))

    def network(self) -> NetworkView:
        """How well each worker is connected, and what that allows."""
        return self.doors.call("GET", "/v1/network", NetworkView)

    def invite(self, request: InviteRequest | None = None) -> InviteView:
        """Make an invite (admin). Its line is shown this once."""
        return self.doors.call("POST", "/v1/invites", InviteView, body=request or InviteRequest())

    def invites(self) -> list[InviteView]:
        """The invites that can still be used (admin)."""
        return self.doors.call("GET", "/v1/invites", list[InviteView])

    def withdraw_invite(self, id: str) -> None:
        """End an invite (admin)."""
        self.doors.call("DELETE", path_of("invites", id), type(None))

    def create_token(self, request: TokenRequest | None = None) -> TokenView:
        """Make a client token (admin). Its line is shown this once."""
        return self.doors.call("POST", "/v1/tokens", TokenView, body=request or TokenRequest())

    def tokens(self) -> list[TokenView]:
        """The tokens that are good (admin)."""
        return self.doors.call("GET", "/v1/tokens", list[TokenView])

    def revoke_token(self, id: str) -> None:
        """End a token at once (admin)."""
        self.doors.call("DELETE", path_of("tokens", id), type(None))

    def audit(self) -> AuditView:
        """Walk the ledger: chains, signatures, checkpoints."""
        return self.doors.call("GET", "/v1/audit", AuditView, timeout_s=600.0)
