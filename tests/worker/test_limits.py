"""Limits in force on the event loop: what the owner and the admin change, and pauses that end by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moregpu.wire.messages import Limits
from moregpu.worker.limits import WorkerLimits


def tell(story: Callable[[WorkerLimits, asyncio.Event], Awaitable[None]]) -> None:
    async def run() -> None:
        changed = asyncio.Event()
        limits = WorkerLimits(Limits(ceiling=0.8), changed.set)
        try:
            async with asyncio.timeout(20):
                await story(limits, changed)
        finally:
            limits.close()

    asyncio.run(run())


def test_a_pause_for_a_while_ends_by_itself() -> None:
    async def story(limits: WorkerLimits, changed: asyncio.Event) -> None:
        limits.pause(0.01)
        changed.clear()
        limits.look()
        assert limits.decision.value == 0.0
        await changed.wait()
        limits.look()
        assert limits.decision.value == 0.8

    tell(story)


def test_a_pause_until_further_notice_replaces_one_that_would_end() -> None:
    async def story(limits: WorkerLimits, changed: asyncio.Event) -> None:
        limits.pause(0.01)
        limits.pause()
        changed.clear()
        done, _ = await asyncio.wait([asyncio.ensure_future(changed.wait())], timeout=0.1)
        assert not done
        assert limits.owner.paused

    tell(story)


def test_an_admins_schedule_that_cannot_be_read_changes_nothing_but_the_rest_does() -> None:
    async def story(limits: WorkerLimits, _changed: asyncio.Event) -> None:
        limits.set_admin(Limits(ceiling=0.4, schedule="00:00-24:00"))
        limits.set_admin(Limits(ceiling=0.3, schedule="full moon"))
        assert (limits.admin.ceiling, limits.admin.schedule) == (0.3, "00:00-24:00")
        assert limits.look()
        assert limits.decision.value == 0.3
        assert not limits.look()

    tell(story)
