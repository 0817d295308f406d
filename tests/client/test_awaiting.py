"""A job's end, awaited by somebody who gives up."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from moregpu.client.following import Following
from moregpu.client.job import JobHandle
from moregpu.errors import Unreachable
from moregpu.jobs import JobState
from moregpu.wire.api import JobView

WAITS = JobView(id="j-1", kind="kernel", name="", state=JobState.QUEUED, submitter="me", created_at=0.0)


def test_who_gave_up_waiting_is_not_reproached_with_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def give_up() -> None:
        following = Following()
        nothing: Any = None
        handle = JobHandle(nothing, nothing, nothing, WAITS, following)
        waiting = asyncio.ensure_future(handle.ended())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        following.hear(Unreachable("the connection was closed here"))
        await asyncio.sleep(0)

    asyncio.run(give_up())
    gc.collect()
    assert caplog.records == []
