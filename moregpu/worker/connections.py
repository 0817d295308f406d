"""Stays connected: one connection after another, with patience that depends on what went wrong."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable

from moregpu.errors import (
    HandshakeFailed,
    InviteRefused,
    MoreGPUError,
    NotConfigured,
    Unavailable,
    Unreachable,
    VersionMismatch,
)
from moregpu.worker.decisions import Action
from moregpu.worker.home import WorkerHome
from moregpu.worker.link import Link
from moregpu.worker.session import WorkerSession

_log = logging.getLogger(__name__)

LEAVE_S = 1.5
"""How long `leave` tries to say goodbye."""

OTHER_VERSION_S = 30.0
"""Between two tries at a coordinator of another version: somebody has to update something."""

FULL_S = 1.0
"""Between two looks at the clock while the other end does not read."""


class Dropped(Exception):
    """The connection is to be closed; another follows."""


class Refused(Exception):
    """The coordinator refused the worker; `again`: only for now."""

    def __init__(self, error: MoreGPUError, again: bool):
        super().__init__(str(error))
        self.error = error
        self.again = again


class Connections:
    """Connects, carries the session's messages, and connects again."""

    def __init__(
        self,
        home: WorkerHome,
        session: WorkerSession,
        perform: Callable[[Iterable[Action]], None],
        changed: Callable[[], None],
        patience_s: float,
    ):
        """Prepare, but connect to nobody yet.

        Args:
            home: the pool, and how to reach it.
            session: what is said.
            perform: carries out what the session decides; may raise `Dropped` and `Refused`.
            changed: called when `trouble` or `retry_s` changed, and when a connection ended.
            patience_s: how long to look for a pool that was never reached before.
        """
        self.address = ""
        self.leaf = b""
        """SHA-256 of the TLS leaf that the present connection saw."""
        self.is_open = False
        self.trouble = ""
        """Why there is no connection, in words for the owner."""
        self.retry_s: float | None = None
        self._again = ""
        self._home = home
        self._session = session
        self._perform = perform
        self._changed = changed
        self._leaving = asyncio.Event()
        self._staying: asyncio.Task[None] | None = None
        self._impatience: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()  # why this connection is to end
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        enrolled = home.enrolment is not None and home.enrolment.welcomed
        self._give_up_at = None if enrolled else time.monotonic() + patience_s

    async def stay(self) -> None:
        """Until `leave`. Raises only what people must mend (see `Agent.run`)."""
        self._staying = asyncio.current_task()
        turn = 0
        try:
            while not self._leaving.is_set():
                turn = await self._one(turn)
        except asyncio.CancelledError:
            if not self._leaving.is_set():
                raise
        finally:
            self._staying = None
            if self._impatience is not None:
                self._impatience.cancel()  # or it would hit what the caller closes afterwards

    def leave(self) -> None:
        """Send what is ready, then end `stay`; nothing that hangs delays it for long."""
        self._leaving.set()
        self.wake()
        if self._staying is not None:
            goodbye_s = LEAVE_S if self._session.member else 0.0
            self._impatience = self._loop.call_later(goodbye_s, self._staying.cancel)

    def renew(self, reason: str) -> None:
        """Say hello anew, on another connection: what this worker is has changed. Nothing more is sent on this one."""
        if self.is_open:
            self._again = reason
            self.wake()

    def admitted(self) -> None:
        """The session is in."""
        self._give_up_at, self.trouble = None, ""

    # -- one after another

    async def _one(self, turn: int) -> int:
        """Connect, work until the connection ends, wait; returns the next turn."""
        address, cs_pub, is_next = self._way(turn)
        wait_s: float | None = None
        try:
            await self._connection(address, cs_pub, is_next)
            self.trouble = "the connection was closed"
        except Dropped as dropped:
            self.trouble = str(dropped)
        except Refused as refused:
            if not refused.again:
                self._refused_for_good(refused.error)
            self.trouble, wait_s = str(refused), self._session.refused_retry_s()
        except (HandshakeFailed, VersionMismatch, Unreachable, Unavailable) as error:
            turn += 1  # the next address, or the other key
            self._give_up_before_enrolment(error, turn)
            self.trouble = error.detail
            if isinstance(error, HandshakeFailed) and not is_next:
                self.trouble += f". {error.hint}"  # nothing that comes by itself mends it
            wait_s = OTHER_VERSION_S if isinstance(error, VersionMismatch) else None
        finally:
            self.is_open = False
            self._session.closed()
            self._changed()
        if not self._leaving.is_set():
            self.retry_s = self._session.retry_s() if wait_s is None else wait_s
            _log.info("connecting again in %.1f s: %s", self.retry_s, self.trouble)
            self._changed()
            await self._rest(self.retry_s)
            self.retry_s = None
        return turn

    def _way(self, turn: int) -> tuple[str, bytes, bool]:
        """Address and session key of an attempt: all addresses with the newer key first, then with the older."""
        enrolment = self._home.enrolment
        if enrolment is None:
            raise NotConfigured("this worker belongs to no pool", "give `moregpu join` an invite")
        ways = [
            (address, cs_pub, cs_pub == enrolment.next_cs)
            for cs_pub in (enrolment.next_cs, enrolment.cs_pub)
            if cs_pub
            for address in enrolment.addresses
        ]
        return ways[turn % len(ways)]

    def _give_up_before_enrolment(self, error: MoreGPUError, turn: int) -> None:
        """A pool that was never reached is a mistake somebody can mend now; one that was, comes back."""
        enrolment = self._home.enrolment
        if self._give_up_at is None or enrolment is None or turn < len(enrolment.addresses):
            return
        if not isinstance(error, Unreachable | Unavailable) or time.monotonic() >= self._give_up_at:
            raise error

    def _refused_for_good(self, error: MoreGPUError) -> None:
        if isinstance(error, InviteRefused):
            self._home.forget_invite()
        raise error

    async def _rest(self, seconds: float) -> None:
        """Sleep, unless `leave` comes first."""
        try:
            async with asyncio.timeout(seconds):
                await self._leaving.wait()
        except TimeoutError:
            pass

    # -- one connection

    async def _connection(self, address: str, cs_pub: bytes, is_next: bool) -> None:
        """From its handshake to its end."""
        session = self._session
        link = await Link.open(address, session.keys, cs_pub, session.identity.pool)
        self.address, self.leaf, self.is_open = address, link.leaf, True
        if is_next:
            self._home.promote()
        self._again = ""
        session.opened(link.h, link.leaf, time.monotonic())
        self._link, self._ended = link, self._loop.create_future()
        link.listen(self._hear, self.wake)
        self.wake()
        closed = self._loop.create_task(link.closed())
        try:
            await asyncio.wait((closed, self._ended), return_when=asyncio.FIRST_COMPLETED)
            await (self._ended if self._ended.done() else closed)
        finally:
            self._link = None
            self._ended.cancel()
            closed.cancel()
            self._look_at(math.inf)
            await link.close()

    def _hear(self, record: bytes | str) -> None:
        """Do what the coordinator says, in the turn in which it came."""
        link = self._link
        if link is None or self._ended.done():
            return
        now = time.monotonic()
        try:
            for message in link.opened(record):
                self._perform(self._session.receive(message, now))
        except Exception as error:  # noqa: BLE001 — nobody above knows what to do with it; `_connection` raises it
            self._ended.set_exception(error)
            return
        if self._session.due(now) < self._timer_due:
            self.wake()

    def wake(self) -> None:
        """The session has something to send: with what else there is by the end of this turn of the loop."""
        if not self._woken and self._link is not None:
            self._woken = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        """Send what is ready: what became ready together shares messages and a signature."""
        self._woken = False
        link, session = self._link, self._session
        if link is None or self._ended.done():
            return
        try:
            if self._again:
                raise Dropped(self._again)
            now = time.monotonic()
            self._perform(session.tick(now))
            if not link.is_full:
                link.send(session.outgoing(now))
            if self._leaving.is_set() and not link.is_full:
                raise Dropped("leaving")
        except Exception as error:  # noqa: BLE001 — as in `_hear`
            self._ended.set_exception(error)
            return
        due = now + FULL_S if link.is_full else session.due(now)
        if due < self._timer_due:
            self._look_at(due)

    def _look_at(self, due: float) -> None:
        """Look again then; a look that comes too early only sets the next one, and is cheaper than to be moved."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = None if due == math.inf else self._loop.call_later(due - time.monotonic(), self._timed)

    def _timed(self) -> None:
        self._timer, self._timer_due = None, math.inf
        self._write()
