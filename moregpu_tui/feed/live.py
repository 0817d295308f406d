"""A real pool: its stream of events over a WebSocket, its rows over HTTP.

It never gives up: a connection that ends is tried again with growing, jittered pauses, resumes by sequence number, and
reads the rows anew, so that whatever was missed is healed.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import msgspec

from moregpu.client.access import Access
from moregpu.client.doors import path_of
from moregpu.client.pool import Pool
from moregpu.errors import Forbidden, MoreGPUError, NotFound, Unauthorized, Unreachable
from moregpu.wire.api import Event, Me, WorkerView
from moregpu.wire.printed import LineBudget
from moregpu.wire.retry import delays
from moregpu.wire.text import clean
from moregpu.wire.tls import context_for
from moregpu_tui.feed.live_calls import LiveCalls
from moregpu_tui.feed.source import Offer
from moregpu_tui.state.events import (
    Happened,
    Linked,
    Live,
    Replaced,
    WorkerGone,
    about,
    heard,
    job_of,
    worker_of,
)
from moregpu_tui.state.model import Link

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

T = TypeVar("T")

CONNECT_S = 10.0
FIRST_RETRY_S, LONGEST_RETRY_S = 0.5, 15.0
REFUSED_RETRY_S = 30.0
JOBS_AT_FIRST = 200
GATHER_S = 0.25
"""Rows that events spoke of are fetched together after so long."""

MANY = 20
"""More rows than this are fetched as one list."""

LINES_BURST, LINES_PER_S = 1_000, 400
"""Of what all jobs print: more than anybody reads would only push everything else out of the log."""

RECONCILE_S = 60.0
DESCRIBE_S = 15.0

HEARD_S = 0.9
"""A word in so long is told to the bar."""


class LivePool(LiveCalls):
    """One pool as one principal."""

    kind = ""

    def __init__(self, access: Access, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(Pool(access), ThreadPoolExecutor(4, thread_name_prefix="console-call"))
        self._access = access
        self._clock = clock
        self._resync = asyncio.Event()
        self._workers_wanted: set[str] = set()
        self._jobs_wanted: set[str] = set()
        self._wanted = asyncio.Event()
        self._link = Link()
        self._lines = LineBudget(LINES_BURST, LINES_PER_S)

    async def run(self, offer: Offer) -> None:
        self.offer = offer
        pauses = delays(FIRST_RETRY_S, LONGEST_RETRY_S)
        while True:
            pause_s = next(pauses)
            try:
                await self._session()
            except* (MoreGPUError, OSError, _Ended) as group:
                error = _first(group)
                if self._link.state == "live":
                    pauses = delays(FIRST_RETRY_S, LONGEST_RETRY_S)
                    pause_s = next(pauses)
                refused = isinstance(error, Unauthorized | Forbidden)
                pause_s = REFUSED_RETRY_S if refused else pause_s
                self._say(
                    state="refused" if refused else "offline",
                    retry_at=self._clock() + pause_s,
                    detail=clean(getattr(error, "detail", "") or str(error)),
                    hint=clean(getattr(error, "hint", "")),
                )
            try:
                await asyncio.wait_for(self._resync.wait(), pause_s)
            except TimeoutError:
                pass

    async def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.pool.close)

    def resync(self) -> None:
        self._resync.set()

    # ---- one connection

    async def _session(self) -> None:
        """Connect, read everything, then follow; ends by raising."""
        self._resync.clear()
        self._say(state="connecting" if not self.seq else "offline", retry_at=self._clock())
        me = await self.in_thread(
            lambda: self.pool.doors.call("GET", "/v1/me", Me, patience_s=0.0, timeout_s=CONNECT_S)
        )
        self.offer(about(me=me))
        self.me = me
        socket = await self._open()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read(socket))
                await self._read_rows()
                self._say(state="live", detail="", hint="")
                group.create_task(self._fetch_wanted())
                group.create_task(self._reconcile())
                group.create_task(self._describe())
        finally:
            await socket.close()

    async def _open(self) -> ClientConnection:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        address = self.pool.doors.address
        context: ssl.SSLContext = await self.in_thread(lambda: context_for(address, self._access.pin, CONNECT_S))
        after = f"?after={self.seq}" if self.seq else ""
        try:
            return await connect(
                f"wss://{address}/v1/events{after}",
                ssl=context,
                additional_headers={"Authorization": f"Bearer {self._access.token}"},
                compression=None,
                proxy=None,
                max_size=1 << 22,
                max_queue=256,
                open_timeout=CONNECT_S,
                ping_interval=10,
                ping_timeout=10,
                close_timeout=1,
            )
        except InvalidStatus as error:
            if error.response.status_code in (401, 403):
                raise Unauthorized(
                    "the token is not accepted any more", "make a new one: moregpu token create"
                ) from error
            raise Unreachable(f"{address} answers {error.response.status_code} to the stream of events") from error
        except (WebSocketException, TimeoutError) as error:
            raise Unreachable(f"{address} does not open the stream of events ({error or 'time out'})") from error

    async def _read(self, socket: ClientConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                try:
                    one = heard(await socket.recv(decode=False))
                except msgspec.DecodeError:
                    continue  # a newer coordinator's; the rows heal what it said
                self._take(one)
        except ConnectionClosed as error:
            if error.rcvd is not None and error.rcvd.code == 1008:
                raise Unauthorized(
                    "the token is not accepted any more", "make a new one: moregpu token create"
                ) from error
            raise _Ended("the coordinator closed the stream") from error

    def _take(self, one: Happened | Live) -> None:
        now = self._clock()
        if now - self._link.heard_at > HEARD_S:
            spoken_at = one.at if isinstance(one, Live) else one.event.at if one.event.type == "pool.stats" else 0.0
            lag_s = max(0.0, time.time() - spoken_at) if spoken_at else self._link.lag_s
            self._say(heard_at=now, lag_s=min(lag_s, 9.9))
        if isinstance(one, Live):
            self.offer(one)
            return
        event = one.event
        if event.type == "resync":
            self._resync.set()
            if event.seq is not None and event.seq < self.seq:  # a backup was put back: all is numbered anew
                self.seq = event.seq
                self.offer(one)
        if event.seq is not None:
            self.seq = max(self.seq, event.seq)
        if event.type in ("snapshot", "resync"):
            return
        self.offer(self._rationed(event, now) if event.type == "log" else one)
        family = event.type.partition(".")[0]
        if family == "worker" and event.type != "worker.offline":  # that says all; any other's row may say more
            self._workers_wanted.add(event.id)
            self._wanted.set()
        elif family == "job" or (family == "task" and event.id == self.watched_job):
            self._jobs_wanted.add(event.id)
            self._wanted.set()

    def _rationed(self, event: Event, now: float) -> Happened:
        """What a job printed, as far as there is room for it; and how much was left out before it."""
        said = event.data.get("lines")
        missed = event.data.get("left_out")
        self._lines.tick(now)
        lines = [line for line in (said if isinstance(said, list) else []) if self._lines.allows()]
        if lines:
            missed = (missed if isinstance(missed, int) else 0) + self._lines.left_out
            self._lines.left_out = 0
        return Happened(event=msgspec.structs.replace(event, data=event.data | {"lines": lines, "left_out": missed}))

    # ---- rows

    async def _read_rows(self) -> None:
        seq = self.seq
        workers = await self.in_thread(self.pool.workers)
        jobs = await self.in_thread(lambda: self.pool.jobs(limit=JOBS_AT_FIRST))
        seq = self.since(seq)
        self.offer(
            Replaced(
                seq=seq,
                workers=tuple(worker_of(view, seq) for view in workers),
                jobs=tuple(job_of(view, seq) for view in jobs),
            )
        )

    async def _fetch_wanted(self) -> None:
        """Rows that events spoke of, gathered; ten thousand workers joining are a list a second, not a flood."""
        while True:
            await self._wanted.wait()
            await asyncio.sleep(GATHER_S)
            self._wanted.clear()
            workers, self._workers_wanted = self._workers_wanted, set()
            jobs, self._jobs_wanted = self._jobs_wanted, set()
            if len(workers) > MANY or len(jobs) > MANY:
                await self._read_rows()
                await asyncio.sleep(1.0)
            else:
                for id in workers:
                    await self._fetch_worker(id)
                for id in jobs:
                    await self.fetch_job(id)

    async def _fetch_worker(self, id: str) -> None:
        seq = self.seq
        try:
            view = await self.in_thread(lambda: self.pool.doors.call("GET", path_of("workers", id), WorkerView))
        except NotFound:
            self.offer(WorkerGone(id=id))
        else:
            self.offer_worker(seq, view)

    async def _reconcile(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._resync.wait(), RECONCILE_S)
            except TimeoutError:
                pass
            self._resync.clear()
            await self._read_rows()

    async def _describe(self) -> None:
        while True:
            info = await self.in_thread(self.pool.info)
            self.offer(about(pool=info))
            await self.fetch_access()
            await asyncio.sleep(DESCRIBE_S)

    def _say(self, **fields: object) -> None:
        self._link = msgspec.structs.replace(self._link, address=self.pool.doors.address, **fields)
        self.offer(Linked(link=self._link))


class _Ended(Exception):
    """The stream ended."""


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show: a refusal before anything else."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [group]
    while stack:
        one = stack.pop()
        if isinstance(one, BaseExceptionGroup):
            stack.extend(one.exceptions)
        else:
            flat.append(one)
    return next((error for error in flat if isinstance(error, Unauthorized | Forbidden)), flat[0])
