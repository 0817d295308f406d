"""A real coordinator as a source: everything is read, followed, survived and resumed."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moregpu.cli.loopback import LoopbackPool
from moregpu.client.access import Access
from moregpu.errors import InvalidJob, Unauthorized
from moregpu.wire.api import InviteRequest, TokenRequest
from moregpu.workloads.kernel.spec import KernelSpec
from moregpu_tui.feed.live import LivePool
from moregpu_tui.feed.source import Draft
from moregpu_tui.state.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LoopbackPool]:
    with LoopbackPool(tmp_path / "home") as pool:
        pool.start_coordinator()
        yield pool


class Watcher:
    """A live source and the store behind it."""

    def __init__(self, access: Access) -> None:
        self.source = LivePool(access)
        self.store = Store()

    async def __aenter__(self) -> Watcher:
        self._task = asyncio.create_task(self.source.run(self.store.offer))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.source.close()

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited for {what}; the link is {self.store.state.link}"
            self.store.take(time.monotonic())
            await asyncio.sleep(0.02)


def test_what_happens_in_a_pool_is_seen_and_a_restart_is_survived(local: LoopbackPool) -> None:
    async def play() -> None:
        async with Watcher(local.access()) as watcher:
            state = lambda: watcher.store.state  # noqa: E731
            await watcher.until(lambda: state().loaded and state().link.state == "live", "the first rows")
            assert state().role == "admin"
            await watcher.until(lambda: state().pool is not None and state().tokens is not None, "the pool itself")
            made = await watcher.source.invite(InviteRequest(owner="anna"))
            assert made.line.startswith("MGPU1-")
            await watcher.until(lambda: any(i.owner == "anna" for i in state().invites or ()), "the invite")
            assert all(not invite.line for invite in state().invites or ())
            plan = await watcher.source.plan(Draft(spec=KernelSpec(operation="matmul", size=512)))
            assert plan.fitting_workers == 0
            with pytest.raises(InvalidJob):
                await watcher.source.plan(Draft(spec=KernelSpec(operation="matmul")))
            early = Draft(spec=KernelSpec(operation="matmul", size=64, name="early"))
            view = await watcher.source.submit(early, "key-1")
            again = await watcher.source.submit(early, "key-1")
            assert again.id == view.id
            await watcher.until(lambda: view.id in state().jobs, "the job")
            seq = state().seq

            await asyncio.to_thread(local.kill_coordinator)
            await watcher.until(lambda: state().link.state == "offline", "the loss")
            assert view.id in state().jobs
            await asyncio.to_thread(local.start_coordinator)
            await watcher.until(lambda: state().link.state == "live", "the return")
            assert state().seq >= seq
            await watcher.source.cancel(view.id)
            await watcher.until(lambda: state().jobs[view.id].state == "cancelled", "the cancellation")
            await watcher.until(lambda: any("was cancelled" in entry.text for entry in state().log), "the line")

    asyncio.run(play())


def test_a_backup_that_is_put_back_under_an_open_console_is_what_it_shows_from_then_on(
    local: LoopbackPool, tmp_path: Path
) -> None:
    def draft(name: str) -> Draft:
        return Draft(spec=KernelSpec(operation="matmul", size=64, name=name))

    async def play() -> None:
        async with Watcher(local.access()) as watcher:
            state = lambda: watcher.store.state  # noqa: E731
            await watcher.until(lambda: state().link.state == "live", "the pool")
            kept = await watcher.source.submit(draft("kept"), "key-1")
            await watcher.until(lambda: state().seq > 0 and kept.id in state().jobs, "the job")
            await asyncio.to_thread(local.kill_coordinator)
            shutil.copytree(local.state, tmp_path / "backup")
            await asyncio.to_thread(local.start_coordinator)
            watcher.source.resync()
            await watcher.until(lambda: state().link.state == "live", "the pool as it was")
            lost = [await watcher.source.submit(draft(f"lost {number}"), f"lost-{number}") for number in range(5)]
            await watcher.source.cancel(kept.id)
            await watcher.until(lambda: state().jobs[kept.id].state == "cancelled", "the cancellation")
            await watcher.until(lambda: all(view.id in state().jobs for view in lost), "more jobs")
            seq = state().seq

            await asyncio.to_thread(local.kill_coordinator)
            shutil.rmtree(local.state)
            shutil.copytree(tmp_path / "backup", local.state)
            await asyncio.to_thread(local.start_coordinator)
            watcher.source.resync()
            await watcher.until(lambda: not any(view.id in state().jobs for view in lost), "the pool of the backup")
            # Rows may be read before the stream says that numbers begin anew.
            await watcher.until(lambda: state().seq < seq, "the numbers of the backup")
            assert state().jobs[kept.id].state == "queued"
            with local.connect() as pool:
                await asyncio.to_thread(pool.job(kept.id).cancel)
            await watcher.until(lambda: state().jobs[kept.id].state == "cancelled", "what happens now", 10.0)
            lines = [entry.text for entry in state().log if "was cancelled" in entry.text]
            assert len(lines) == 2

    asyncio.run(play())


def test_a_revoked_token_is_said_and_not_hammered_with(local: LoopbackPool) -> None:
    async def play() -> None:
        with local.connect() as admin:
            made = admin.create_token(TokenRequest(label="console", role="viewer"))
            access = local.access()
            from moregpu.wire.invite import parse_client_line

            viewer = Access(addresses=access.addresses, token=parse_client_line(made.line).token, pin=access.pin)
            async with Watcher(viewer) as watcher:
                state = lambda: watcher.store.state  # noqa: E731
                await watcher.until(lambda: state().loaded, "the first rows")
                assert state().role == "viewer"
                assert state().tokens is None
                await asyncio.to_thread(local.run, "version")
                admin.doors.call("DELETE", f"/v1/tokens/{made.id}", type(None))
                with pytest.raises(Unauthorized):
                    await watcher.source.verify_ledger()
                await watcher.until(lambda: state().link.state == "refused", "the refusal")
                assert "token" in state().link.detail

    asyncio.run(play())
