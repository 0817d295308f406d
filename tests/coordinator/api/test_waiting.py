"""Whoever waits by the SDK hears why, in the same words by every way, and waits through a coordinator that is away."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import pytest

from moregpu.blobs import calls
from moregpu.client import patience, waiting
from moregpu.client.access import Access
from moregpu.client.job import JobHandle
from moregpu.client.link import NoLink
from moregpu.client.pool import Pool as Client
from moregpu.coordinator.server import ServeConfig
from moregpu.errors import JobCancelled, TooManyRequests, Unauthorized, Unavailable
from moregpu.workloads.kernel.spec import KernelSpec

from .conftest import Pool, Running

SPEC = KernelSpec(operation="relu", size=4)
NOBODY = "no worker is connected"


async def awaited(handle: JobHandle) -> None:
    await handle


WAYS: dict[str, tuple[bool, Callable[[JobHandle], Any]]] = {
    "blocking": (True, lambda handle: handle.result(60)),
    "awaited": (True, lambda handle: asyncio.run(awaited(handle))),
    "blocking, by HTTP alone": (False, lambda handle: handle.result(60)),
    "awaited, by HTTP alone": (False, lambda handle: asyncio.run(awaited(handle))),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[bool, Callable[[JobHandle], Any]]:
    return WAYS[request.param]


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here waits two seconds for a word."""
    monkeypatch.setattr(waiting, "FIRST_LOOK_S", 0.05)
    monkeypatch.setattr(waiting, "SELDOM_S", 0.2)


@contextlib.contextmanager
def client_of(pool: Pool, token: str, *, link: bool = True) -> Generator[Client]:
    with Client(Access(addresses=(pool.address,), token=token, pin=pool.pin)) as client:
        if not link:

            def none() -> Any:
                raise NoLink("a proxy in between")

            client.link = none
        yield client


class Waiter:
    """Waits on a thread of its own."""

    def __init__(self, wait: Callable[[JobHandle], Any], handle: JobHandle):
        self.ended: BaseException | str = "still waiting"
        self._thread = threading.Thread(target=self._run, args=(wait, handle))
        self._thread.start()

    def _run(self, wait: Callable[[JobHandle], Any], handle: JobHandle) -> None:
        try:
            wait(handle)
            self.ended = "done"
        except BaseException as error:  # noqa: BLE001 — looked at by the test
            self.ended = error

    def join(self) -> BaseException | str:
        self._thread.join(60)
        return self.ended


def until_said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    end = time.monotonic() + 30
    while not any(words in message for message in said(caplog)):
        assert time.monotonic() < end, f"nobody said {words!r}: {said(caplog)}"
        time.sleep(0.01)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "moregpu.client"]


def test_why_a_job_waits_is_said_once_however_it_is_waited_for(
    pool: Pool, way: tuple[bool, Callable[[JobHandle], Any]], caplog: pytest.LogCaptureFixture
) -> None:
    by_link, wait = way
    token = pool.token("submitter")
    with client_of(pool, token, link=by_link) as client:
        handle = client.submit_job(SPEC)
        waiter = Waiter(wait, handle)
        until_said(caplog, "waits")
        pool.finish(handle.id, {"out": ("float32", (1,), b"\0\0\0\0")})
        assert waiter.join() == "done"
    assert said(caplog) == [f"{handle.id} waits: {NOBODY}"]


def test_another_reason_is_said_too_and_that_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    one = waiting.Waiting("j-1")
    for reason in ("no worker is connected", "no worker is connected", "anna gives nothing now: paused", "", ""):
        one.because(reason)
    one.because("\x1b[2Jevil")
    assert said(caplog)[:3] == [
        "j-1 waits: no worker is connected", "j-1 waits: anna gives nothing now: paused", "j-1 goes on"
    ]  # fmt: skip
    assert "\x1b" not in said(caplog)[3]


def test_who_waits_waits_through_a_restart_and_says_so_by_every_way(
    config: ServeConfig, way: tuple[bool, Callable[[JobHandle], Any]], caplog: pytest.LogCaptureFixture
) -> None:
    by_link, wait = way
    with Running(config) as first:
        token = first.token("submitter")
    config = msgspec.structs.replace(config, port=first.port)
    with contextlib.ExitStack() as ends:
        with Running(config, known=first) as before:
            client = ends.enter_context(client_of(before, token, link=by_link))
            handle = client.submit_job(SPEC)
            waiter = Waiter(wait, handle)
            until_said(caplog, NOBODY)
        until_said(caplog, "jobs go on meanwhile, trying again for")
        with Running(config, known=first) as again:
            until_said(caplog, "the coordinator is back")
            again.ask("DELETE", f"/v1/jobs/{handle.id}", token)
            assert isinstance(waiter.join(), JobCancelled)


ASKING: dict[str, Callable[[Client], object]] = {
    "the link": lambda client: client.submit_job(SPEC).cancel(),
    "calls": lambda client: client.me(),
    "blobs": lambda client: client.blobs().upload_stream(bytes(100_000)),
}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_a_coordinator_that_asks_for_time_gets_it(
    pool: Pool, ask: Callable[[Client], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 carries Retry-After: 2."""
    token = pool.token("submitter")
    authority, pauses = pool.services.authority, list[float]()
    good = authority.principal
    refusals = [1, 2]

    async def busy(authorization: str, peer: str) -> Any:
        if refusals:
            refusals.pop()
            raise Unavailable("the database cannot be written now")
        return await good(authorization, peer)

    monkeypatch.setattr(authority, "principal", busy)
    monkeypatch.setattr(patience, "sleep", pauses.append)
    monkeypatch.setattr(calls, "pause", lambda closed, seconds: pauses.append(seconds))
    with client_of(pool, token) as client:
        ask(client)
    assert len(pauses) == 2
    assert all(2.0 < pause < 5.0 for pause in pauses)


def test_who_sent_too_many_wrong_tokens_is_told_to_wait_and_does_not_go_on_asking(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """429 carries Retry-After: 60, and a call's patience is ten seconds."""

    def never(seconds: float) -> None:
        pytest.fail(f"it waits {seconds} s to ask once more")

    monkeypatch.setattr(patience, "sleep", never)
    with client_of(pool, "mgt_abcdefgh_" + "x" * 43) as client:
        for _ in range(20):
            with pytest.raises(Unauthorized):
                client.me()
        with pytest.raises(TooManyRequests, match="wait a minute"):
            client.me()
        with pytest.raises(TooManyRequests, match="wait a minute"):
            client.link().ask(lambda id: pytest.fail("it went through"), lambda _: None, 10.0)
