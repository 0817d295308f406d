"""Things that come one after the other, for `for` and for `async for` alike."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Stream(Generic[T]):
    """What another thread puts in, in order. One reader, `for` or `async for`; leaving early: `close`."""

    def __init__(self, close: Callable[[], None] = lambda: None):
        self._lock = threading.Lock()
        self._items: deque[T] = deque()
        self._waiting: Future[bool] | None = None
        self._ended = False
        self._error: Exception | None = None
        self._close = close

    def put(self, item: T) -> None:
        """Add one."""
        with self._lock:
            self._items.append(item)
            self._wake()

    def end(self, error: Exception | None = None) -> None:
        """Say that nothing more comes; an error is raised after what came before."""
        with self._lock:
            self._ended, self._error = True, self._error or error
            self._wake()

    def close(self) -> None:
        """Let it go: nothing more is sent."""
        self._close()
        self.end()

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        while True:
            ready = self._ready()
            ready.result()
            with self._lock:
                if self._items:
                    return self._items.popleft()
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    raise StopIteration

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        await asyncio.wrap_future(self._ready())
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    def _ready(self) -> Future[bool]:
        """Done when there is something to read, or an end."""
        ready: Future[bool] = Future()
        with self._lock:
            if self._items or self._ended:
                ready.set_result(True)
            else:
                self._waiting = ready
        return ready

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.set_running_or_notify_cancel():
            waiting.set_result(True)
