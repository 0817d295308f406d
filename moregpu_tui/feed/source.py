"""What every source of events offers: a stream of inputs for the store, and the calls that change the pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from moregpu.wire.api import (
    InviteRequest,
    InviteView,
    JobView,
    PlanView,
    PoolChange,
    RotateRequest,
    RotateView,
    TokenRequest,
    TokenView,
    WorkerChange,
)
from moregpu.workloads import JobSpec

Offer = Callable[..., None]
"""Takes any number of inputs; called on the loop."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was typed. What it names on this machine is read when it is planned or sent."""

    spec: JobSpec
    files: dict[str, str] = {}
    """Of a kernel: input → path of a `.npy` file, or a number."""
    program: str = ""
    """Of a function: `train.py`, or `train.py:function`."""
    payloads: str = ""
    """Its arguments: JSON, or the path of a `.json` file."""
    given: frozenset[str] = frozenset()
    """Fields in which something was typed: there the program's own header has no say."""


class Source(Protocol):
    """Where a console's pool comes from. All errors of calls are `MoreGPUError`s."""

    kind: str
    """"" for a real pool, else `demo` or `replay`: shown in the bar."""

    watched_job: str
    """The job whose tasks are wanted whenever it changes."""

    async def run(self, offer: Offer) -> None:
        """Feed inputs until cancelled; never ends by itself, whatever the pool does."""
        ...

    async def close(self) -> None:
        """Let connections go."""
        ...

    def resync(self) -> None:
        """Fetch everything anew, soon."""
        ...

    async def change_worker(self, id: str, change: WorkerChange) -> None:
        """Pause, resume, drain, approve, limit, rename."""
        ...

    async def revoke_worker(self, id: str) -> None:
        """Refuse a worker for good."""
        ...

    async def invite(self, request: InviteRequest) -> InviteView:
        """Make an invite; its line is in this answer only."""
        ...

    async def withdraw_invite(self, id: str) -> None:
        """Let an invite end."""
        ...

    async def create_token(self, request: TokenRequest) -> TokenView:
        """Make a client token; its line is in this answer only."""
        ...

    async def revoke_token(self, id: str) -> None:
        """End a token."""
        ...

    async def fetch_access(self) -> None:
        """Fetch invites and tokens; they come as inputs."""
        ...

    async def change_pool(self, change: PoolChange) -> None:
        """Name, description, retention."""
        ...

    async def rotate(self, request: RotateRequest) -> RotateView:
        """Announce a next session key, finish with it, or let go of it."""
        ...

    async def plan(self, draft: Draft) -> PlanView:
        """What a job would do."""
        ...

    async def submit(self, draft: Draft, key: str) -> JobView:
        """Submit a job. The same key never submits twice."""
        ...

    async def cancel(self, id: str) -> None:
        """End a job."""
        ...

    async def retry(self, id: str) -> JobView:
        """Submit the same again."""
        ...

    async def purge(self, id: str) -> None:
        """Forget an ended job's outputs and keys."""
        ...

    async def fetch_job(self, id: str) -> None:
        """Fetch a job with its tasks; they come as inputs."""
        ...

    async def follow_log(self, id: str) -> None:
        """Tell a job's log from its beginning and as it grows, until it ended or the task is cancelled."""
        ...

    async def fetch_signatures(self, id: str) -> None:
        """Fetch a job's signed statements and verify them here; they come as inputs."""
        ...

    async def fetch_preview(self, id: str) -> None:
        """Fetch a job's result and show it in a few lines; they come as inputs."""
        ...

    async def verify_ledger(self) -> None:
        """Walk the ledger; what was found comes as input."""
        ...
