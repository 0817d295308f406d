"""The door of the SDK's one connection: `moregpu.wire.link` says what travels on it.

What comes is read, and what is said is written, in the turn of the loop in which it came or was said. Each request is a
task of the link's group; one more writes while there is more to say than goes out. A reader that stands still is let
go, so that what waits to be written stays bounded by what it asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import msgspec

from moregpu.coordinator.api.ask import SEND_S
from moregpu.coordinator.api.events import close_quietly
from moregpu.coordinator.api.follow import Follower
from moregpu.coordinator.api.problems import failed, problem
from moregpu.coordinator.api.scopes import admit_spec
from moregpu.coordinator.api.socket import SocketAsk
from moregpu.coordinator.store.protocol import JobRow
from moregpu.errors import InvalidRequest, MoreGPUError, NotFound, TooManyRequests, VersionMismatch
from moregpu.jobs import JOB_ENDED
from moregpu.platform.logs import facts
from moregpu.wire.link import (
    EARLY_S,
    LINK_SUBPROTOCOL,
    MAX_OPEN,
    Accepted,
    Cancel,
    Ended,
    Follow,
    FromLink,
    Happened,
    Id,
    Refused,
    Show,
    Shown,
    Stop,
    Submit,
    Subscribe,
    ToLink,
)
from moregpu.workloads import JobSpec

T = TypeVar("T")

log = logging.getLogger(__name__)

# By whether the frame is msgpack.
_ASKED = {True: msgspec.msgpack.Decoder(ToLink).decode, False: msgspec.json.Decoder(ToLink).decode}
_SPEC = {True: msgspec.msgpack.Decoder(JobSpec).decode, False: msgspec.json.Decoder(JobSpec).decode}

LONG_S = 86_400.0
MAX_UNWRITTEN = 10_000
"""Answers that wait to be written; a client that asks for more than it reads is let go."""


async def socket(ask: SocketAsk) -> None:
    """Open a link. Raises `VersionMismatch` where the client does not speak its subprotocol."""
    offered = [str(name) for name in ask.scope.get("subprotocols", [])]
    if LINK_SUBPROTOCOL not in offered:
        said = ", ".join(name[:20] for name in offered[:4]) or "nothing"
        raise VersionMismatch(
            f"this link speaks {LINK_SUBPROTOCOL}, the other end offers {said}", "update the older one"
        )
    await ask.accept(LINK_SUBPROTOCOL)
    await Link(ask).run()


class _Named(msgspec.Struct, frozen=True):
    """What every request has, whatever else is in it."""

    id: Id


class _Closed(Exception):
    """The link ends; not an error."""


class Link:
    """One connection."""

    def __init__(self, ask: SocketAsk):
        self._ask = ask
        self._desk = ask.services.desk
        self._on_links = ask.services.on_links
        self._follower = Follower(ask.services)
        self._words = ask.words
        self._open: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._late: deque[tuple[FromLink, bool]] = deque()
        """What there was no room for."""
        self._writer: asyncio.Task[None] | None = None
        self._ends = False
        self._room = asyncio.Event()
        self._room.set()

    async def run(self) -> None:
        """Serve until the other end closes or its token no longer holds."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    group.create_task(self._watch_token())
                    self._words.listen(self._hear)
                    await self._ask.gone()
                    raise _Closed
                finally:
                    self._ends = True
        except* (_Closed, ConnectionError, TimeoutError):
            with contextlib.suppress(TimeoutError):  # who does not read hears no goodbye either
                async with asyncio.timeout(SEND_S):
                    await self._ask.close()

    def _hear(self, frame: bytes | str) -> None:
        """Take a message. Of a link that ends nothing more is begun: nobody would cancel it."""
        if self._group is None or self._ends:
            return
        packed = isinstance(frame, bytes)
        try:
            asked = _decoded(frame if packed else frame.encode(), _ASKED[packed])
        except InvalidRequest as error:
            self._tell(Refused(id=_id_of(frame), problem=problem(error)), packed)
        else:
            if isinstance(asked, Stop):
                self._stop(asked.id)
            else:
                self._begin(self._group, asked, packed)
        if len(self._late) > MAX_UNWRITTEN:
            self._end(self._group, "more was asked than is read")

    def _end(self, group: asyncio.TaskGroup, reason: str) -> None:
        self._ends = True
        group.create_task(self._close(reason))

    async def _close(self, reason: str) -> None:
        async with asyncio.timeout(SEND_S):
            await self._ask.close(1008, reason)
        raise _Closed

    def _begin(self, group: asyncio.TaskGroup, asked: ToLink, packed: bool) -> None:
        if asked.id in self._open or len(self._open) >= MAX_OPEN:
            error = (
                InvalidRequest(f"the id {asked.id} is open", "use another until it is closed")
                if asked.id in self._open
                else TooManyRequests(f"{MAX_OPEN:,} requests are open on this link", "wait for some to end")
            )
            self._tell(Refused(id=asked.id, problem=problem(error)), packed)
            return
        try:
            self._on_links.enter(self._ask.who.id)
        except TooManyRequests as error:
            self._tell(Refused(id=asked.id, problem=problem(error)), packed)
            return
        task = group.create_task(self._answer(asked, packed))
        self._open[asked.id] = task
        task.add_done_callback(lambda task: self._forget(asked.id, task))

    def _forget(self, id: int, task: asyncio.Task[None]) -> None:
        if self._open.get(id) is task:
            del self._open[id]
            self._on_links.leave(self._ask.who.id)

    def _stop(self, id: int) -> None:
        task = self._open.pop(id, None)
        if task is not None:
            self._on_links.leave(self._ask.who.id)
            task.cancel()

    async def _answer(self, asked: ToLink, packed: bool) -> None:
        """Serve one request to its end; what goes wrong is its answer."""
        try:
            await self._serve(asked, packed)
        except MoreGPUError as error:
            self._tell(Refused(id=asked.id, problem=problem(error)), packed)
        except Exception as error:  # logged with its traceback; the other requests of this link go on
            mark = secrets.token_hex(4)
            log.exception("a request on a link failed", extra=facts(mark=mark, request=type(asked).__name__))
            self._tell(Refused(id=asked.id, problem=problem(failed(error, mark))), packed)

    async def _serve(self, asked: ToLink, packed: bool) -> None:
        match asked:
            case Submit():
                await self._submit(asked, packed)
            case Follow():
                row = await self._own(asked.job)
                await self._attend(asked.id, row, asked, packed, tell=row.state not in JOB_ENDED)
            case Show():
                row = await self._desk.job(self._ask.who, asked.job)
                view = await self._desk.view(self._ask.who, row, detail=asked.detail)
                self._tell(Shown(id=asked.id, job=view), packed)
            case Cancel():
                row = await self._desk.cancel(self._ask.who, asked.job or await self._under(asked.idempotency_key))
                self._tell(Shown(id=asked.id, job=await self._desk.view(self._ask.who, row)), packed)
            case Subscribe():
                await self._stream(asked, packed)
            case Stop():
                raise AssertionError("a Stop is carried out where it is read")

    async def _stream(self, asked: Subscribe, packed: bool) -> None:
        events = self._desk.events.subscribe(self._ask.who, asked.after)
        try:
            async for event in events:
                self._tell(Happened(id=asked.id, event=event), packed)
                await self._room.wait()  # the stream waits in the store, not here
        finally:
            await close_quietly(events)

    async def _submit(self, asked: Submit, packed: bool) -> None:
        spec = _decoded(asked.spec, _SPEC[packed], what="the spec", hint="see GET /v1/openapi.json")
        admit_spec(self._ask.who, spec)
        eager = asked.early or asked.progress or asked.parts
        with self._desk.attendance.submitting(self._ask.who.id, asked.idempotency_key):
            row = await self._desk.submit(self._ask.who, spec, asked.idempotency_key, 0.0 if eager else EARLY_S)
        await self._attend(asked.id, row, asked, packed, tell=row.state not in JOB_ENDED)

    async def _attend(self, id: int, row: JobRow, asked: Submit | Follow, packed: bool, *, tell: bool) -> None:
        with self._desk.attendance.attending(row):
            await self._follow(id, row, asked, packed, tell=tell)

    async def _follow(self, id: int, row: JobRow, asked: Submit | Follow, packed: bool, *, tell: bool) -> None:
        if tell:
            self._tell(Accepted(id=id, job=await self._desk.view(self._ask.who, row)), packed)
        if asked.progress or asked.parts or (asked.output and row.state not in JOB_ENDED):
            following = self._follower.follow(
                id, row.id, progress=asked.progress, parts=asked.parts, output=asked.output
            )
            async with contextlib.aclosing(following) as told:
                async for news in told:
                    self._tell(news, packed)
                    await self._room.wait()
        elif asked.output:
            for printed in self._follower.printed(id, row.id, 0)[0]:
                self._tell(printed, packed)
        while row.state not in JOB_ENDED:
            row = await self._desk.wait(row.id, LONG_S)
        self._tell(Ended(id=id, job=await self._desk.view(self._ask.who, row)), packed)

    async def _under(self, key: str) -> str:
        """Their job that was submitted under a key."""
        row = await self._desk.store.job_under_key(self._ask.who.id, key) if key else None
        if row is None:
            raise NotFound("there is no job of yours under that key")
        return row.id

    async def _own(self, id: str) -> JobRow:
        """A job of theirs: following shows its outputs."""
        row = await self._desk.job(self._ask.who, id)
        if self._ask.who.role != "admin" and row.submitter != self._ask.who.id:
            raise NotFound(f"there is no job {id[:40]!r}", "`moregpu jobs` lists yours")
        return row

    def _tell(self, message: FromLink, packed: bool) -> None:
        """Say it now where the socket has room and nothing is before it."""
        if not self._late and self._words.has_room:
            # Where more is open more may be said in this turn of the loop: one record, one call, one wake-up there.
            self._words.say(_frame(message, packed), at_once=len(self._open) <= 1)
            return
        self._late.append((message, packed))
        if len(self._late) > MAX_UNWRITTEN // 2:
            self._room.clear()
        if self._writer is None and self._group is not None and not self._ends:
            self._writer = self._group.create_task(self._write())

    async def _write(self) -> None:
        """Say what there was no room for, as there is."""
        while self._late:
            if len(self._late) < MAX_UNWRITTEN // 4:
                self._room.set()
            frame = _frame(*self._late[0])  # it stays there meanwhile: nothing goes before it
            try:
                async with asyncio.timeout(SEND_S):
                    if isinstance(frame, bytes):
                        await self._ask.send_bytes(frame)
                    else:
                        await self._ask.send_text(frame)
            except (ConnectionError, TimeoutError):
                self._ends = True
                raise
            self._late.popleft()
        self._writer = None

    async def _watch_token(self) -> None:
        await self._ask.services.authority.until_ended(self._ask.who)
        self._ends = True
        await self._close("the token no longer holds")


def _id_of(frame: bytes | str) -> int | None:
    """What a frame that is no message would have been called: whoever sent it waits for an answer to that."""
    try:
        if isinstance(frame, bytes):
            return msgspec.msgpack.decode(frame, type=_Named).id
        return msgspec.json.decode(frame, type=_Named).id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _frame(message: FromLink, packed: bool) -> bytes | str:
    return msgspec.msgpack.encode(message) if packed else msgspec.json.encode(message).decode()


def _decoded(
    frame: bytes | msgspec.Raw,
    decode: Callable[[bytes | msgspec.Raw], T],
    what: str = "the frame",
    hint: str = "see moregpu.wire.link",
) -> T:
    try:
        return decode(frame)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{what} is not what was expected: {error}", hint) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{what} is nested too deeply, or is no text") from error
