"""Background work of the engine room, all of it owned by one `TaskGroup`: nothing is fired and forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Chores:
    """Runs coroutines until they end or the engine room stops. One that fails is logged, and harms no other."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._short: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to accept work."""
        ready = asyncio.Event()
        self._owner = asyncio.create_task(self._own(ready))
        await ready.wait()

    def spawn(self, work: Coroutine[Any, Any, None], *, forever: bool = False) -> None:
        """Run something. `forever`: it ends only by being cancelled, so `stop` does not wait for it."""
        if self._group is None or self._stopping.is_set():
            work.close()
            return
        task = self._group.create_task(_guarded(work))
        if not forever:
            self._short.add(task)
            task.add_done_callback(self._short.discard)

    async def stop(self, drain_s: float) -> None:
        """Let what is under way end within `drain_s`, then cancel the rest."""
        if self._owner is None:
            return
        if self._short:
            await asyncio.wait(set(self._short), timeout=drain_s)
        self._stopping.set()
        owner, self._owner = self._owner, None
        await asyncio.wait({owner})

    async def _own(self, ready: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                ready.set()
                await self._stopping.wait()
                raise _Stop
        except* _Stop:
            pass
        finally:
            self._group = None


class _Stop(Exception):
    """Ends the group: its tasks are cancelled."""


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("a chore failed")
