"""A source that nothing can be changed in: base of recordings and of having no pool yet."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from moregpu.errors import MoreGPUError, NotConfigured
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
from moregpu_tui.feed.source import Draft, Offer


class Still:
    """All calls are refused with one error."""

    kind = ""

    def __init__(self, error: MoreGPUError) -> None:
        self.watched_job = ""
        self._error = error

    async def run(self, offer: Offer) -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """There is nothing to let go."""

    def resync(self) -> None:
        """There is nothing to read."""

    async def change_worker(self, id: str, change: WorkerChange) -> None:
        """Refused."""
        self._refuse()

    async def revoke_worker(self, id: str) -> None:
        """Refused."""
        self._refuse()

    async def invite(self, request: InviteRequest) -> InviteView:
        """Refused."""
        self._refuse()

    async def withdraw_invite(self, id: str) -> None:
        """Refused."""
        self._refuse()

    async def create_token(self, request: TokenRequest) -> TokenView:
        """Refused."""
        self._refuse()

    async def revoke_token(self, id: str) -> None:
        """Refused."""
        self._refuse()

    async def fetch_access(self) -> None:
        """Nothing to fetch."""

    async def change_pool(self, change: PoolChange) -> None:
        """Refused."""
        self._refuse()

    async def rotate(self, request: RotateRequest) -> RotateView:
        """Refused."""
        self._refuse()

    async def plan(self, draft: Draft) -> PlanView:
        """Refused."""
        self._refuse()

    async def submit(self, draft: Draft, key: str) -> JobView:
        """Refused."""
        self._refuse()

    async def cancel(self, id: str) -> None:
        """Refused."""
        self._refuse()

    async def retry(self, id: str) -> JobView:
        """Refused."""
        self._refuse()

    async def purge(self, id: str) -> None:
        """Refused."""
        self._refuse()

    async def fetch_job(self, id: str) -> None:
        """Nothing to fetch."""

    async def follow_log(self, id: str) -> None:
        """Nothing to follow: what was recorded comes by itself."""

    async def fetch_signatures(self, id: str) -> None:
        """Refused."""
        self._refuse()

    async def fetch_preview(self, id: str) -> None:
        """Refused."""
        self._refuse()

    async def verify_ledger(self) -> None:
        """Refused."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._error


class Waiting(Still):
    """No pool yet: what the console shows while somebody decides which."""

    def __init__(self) -> None:
        super().__init__(NotConfigured("no pool is chosen yet", "start one, connect to one, or look at the demo"))
