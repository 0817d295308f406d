"""The one stream of events: durable ones in the store's order, live ones (duty, load, share done) as they are now.

A subscriber holds a cursor, not a queue: what it has not read yet stays in the store, so a slow one costs nothing and
loses nothing. Live events wait in a dictionary where the latest of each thing wins; what jobs print waits line by line,
the newest of it where somebody reads too slowly, and says how much was left out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from moregpu.coordinator.protocol import Clock, Principal
from moregpu.coordinator.store.protocol import Store
from moregpu.wire.api import Event

MAX_LIVE = 20_000
MAX_PRINTED = 2_000
"""Lines that wait for one reader."""

PAGE = 1_000


class Subscriber:
    """One reader's place in the stream."""

    def __init__(self, who: Principal, seq: int) -> None:
        self.who = who
        self.seq = seq
        self.live: OrderedDict[tuple[str, str], Event] = OrderedDict()
        self.printed: deque[Event] = deque()
        self.woken = asyncio.Event()
        self._lines = 0
        self._left_out = 0

    def wait_for_reader(self, event: Event) -> None:
        """Keep a live event until it is read."""
        if event.type == "log":
            if self.who.role != "admin" and event.data.get("submitter") != self.who.id:
                return  # what a job prints is its owner's; nor may it push out what this reader may see
            self.printed.append(event)
            self._lines += len(event.data["lines"])
            while self._lines > MAX_PRINTED and len(self.printed) > 1:
                lines = len(self.printed.popleft().data["lines"])
                self._lines -= lines
                self._left_out += lines
        else:
            key = (event.type, event.id)
            self.live[key] = event
            self.live.move_to_end(key)
            while len(self.live) > MAX_LIVE:
                self.live.popitem(last=False)
        self.woken.set()

    @property
    def waiting(self) -> int:
        """Live events that wait."""
        return len(self.printed) + len(self.live)

    def next_live(self) -> Event | None:
        """The event that has waited longest, lines first; None when none waits."""
        if self.printed:
            event = self.printed.popleft()
            self._lines -= len(event.data["lines"])
            missed, self._left_out = self._left_out, 0
            return replace(event, data=event.data | {"left_out": missed}) if missed else event
        return self.live.popitem(last=False)[1] if self.live else None


class Feed:
    """The `EventFeed` of one coordinator. Give it the store's events by `committed`."""

    def __init__(self, store: Store, clock: Clock, snapshot: Callable[[Principal], Awaitable[dict[str, Any]]]) -> None:
        self._store = store
        self._clock = clock
        self._snapshot = snapshot
        self._subscribers: dict[Subscriber, None] = {}
        self._closed = False

    @property
    def watched(self) -> bool:
        """Whether anybody listens: live events need not be made otherwise."""
        return bool(self._subscribers)

    def committed(self, events: list[Event]) -> None:
        """The store committed these."""
        if events:
            for subscriber in self._subscribers:
                subscriber.woken.set()

    def publish(self, event: Event) -> None:
        """Send a live event to all subscribers; slow ones get the latest only."""
        for subscriber in self._subscribers:
            subscriber.wait_for_reader(event)

    def close(self) -> None:
        """End all subscriptions."""
        self._closed = True
        for subscriber in self._subscribers:
            subscriber.woken.set()

    async def subscribe(self, who: Principal, after: int | None) -> AsyncIterator[Event]:
        """A `snapshot` with the sequence (or a resume after `after`, or `resync`), then deltas, until `close`."""
        subscriber = Subscriber(who, self._store.last_seq() if after is None else after)
        self._subscribers[subscriber] = None
        try:
            if after is None:
                yield await self._snapshot_event(who, "snapshot", subscriber.seq)
            elif after > (last := self._store.last_seq()):
                # From before a backup was put back: what comes now has numbers that the reader believes to have seen.
                subscriber.seq = last
                yield await self._snapshot_event(who, "resync", last)
            while not self._closed:
                subscriber.woken.clear()
                async for event in self._durable(subscriber):
                    yield event
                for _ in range(subscriber.waiting):  # and no more: what goes on coming must not hold up what is kept
                    event = subscriber.next_live()
                    if event is not None and await self.may_see(who, event):
                        yield event
                if not self._closed:
                    await subscriber.woken.wait()
        finally:
            del self._subscribers[subscriber]

    async def _durable(self, subscriber: Subscriber) -> AsyncIterator[Event]:
        while subscriber.seq < self._store.last_seq():
            events = await self._store.events_since(subscriber.seq, PAGE)
            if events is None:
                subscriber.seq = self._store.last_seq()
                yield await self._snapshot_event(subscriber.who, "resync", subscriber.seq)
                return
            if not events:
                return
            for event in events:
                if event.seq is not None:
                    subscriber.seq = event.seq
                if await self.may_see(subscriber.who, event):
                    yield event

    async def _snapshot_event(self, who: Principal, type_: str, seq: int) -> Event:
        return Event(type=type_, seq=seq, at=self._clock.wall(), data=await self._snapshot(who))

    async def may_see(self, who: Principal, event: Event) -> bool:
        """Filtered like every list: an admin sees all, a submitter its own jobs, the fleet and the pool."""
        if who.role in ("admin", "viewer"):
            # What a job prints is its owner's, like its outputs.
            return who.role == "admin" or event.type.partition(".")[0] not in ("invite", "token", "log")
        family = event.type.partition(".")[0]
        if family in ("worker", "pool"):
            return True
        if family not in ("job", "task", "log"):
            return False
        if "submitter" in event.data:
            return event.data["submitter"] == who.id
        job = await self._store.job(event.id)
        return job is not None and job.submitter == who.id
