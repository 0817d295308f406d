"""Bodies of the HTTP API (`/v1`), shared by the coordinator that serves them and the clients that read them."""

from __future__ import annotations

from moregpu.wire.api.access import InviteRequest, InviteView, Me, Role, Scope, TokenRequest, TokenView
from moregpu.wire.api.bodies import Problem
from moregpu.wire.api.data import BlobView, KernelRequest, KernelView, TensorRequest, TensorView
from moregpu.wire.api.jobs import (
    MAX_INLINE_POST_BYTES,
    AttemptView,
    JobChange,
    JobPage,
    JobView,
    LogLine,
    PlanView,
    ResultManifest,
    Signed,
    TaskView,
    Timing,
)
from moregpu.wire.api.pool import AuditView, Event, Health, PoolChange, PoolView, RotateRequest, RotateView
from moregpu.wire.api.workers import (
    DeviceView,
    GroupRequest,
    GroupView,
    LimitsView,
    LinkView,
    NetworkView,
    WorkerChange,
    WorkerView,
)

__all__ = [
    "MAX_INLINE_POST_BYTES",
    "AttemptView",
    "AuditView",
    "BlobView",
    "DeviceView",
    "Event",
    "GroupRequest",
    "GroupView",
    "Health",
    "InviteRequest",
    "InviteView",
    "JobChange",
    "JobPage",
    "JobView",
    "KernelRequest",
    "KernelView",
    "LimitsView",
    "LinkView",
    "LogLine",
    "Me",
    "NetworkView",
    "PlanView",
    "PoolChange",
    "PoolView",
    "Problem",
    "ResultManifest",
    "Role",
    "RotateRequest",
    "RotateView",
    "Scope",
    "Signed",
    "TaskView",
    "TensorRequest",
    "TensorView",
    "Timing",
    "TokenRequest",
    "TokenView",
    "WorkerChange",
    "WorkerView",
]
