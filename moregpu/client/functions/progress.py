"""A bar for maps that take long; only where somebody looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from moregpu.client.telling import is_watched, tell

AFTER_S = 1.0
EVERY_S = 0.2
WIDTH = 30


def show_progress(futures: Sequence[Future[Any]], name: str, wanted: bool | None) -> None:
    """Show how many calls are done, from the second on that they take; by default on a terminal only."""
    if wanted is False or (wanted is None and not is_watched()) or not futures:
        return
    bar = _Bar(len(futures), name)
    for future in futures:
        future.add_done_callback(bar.one_more)


class _Bar:
    def __init__(self, total: int, name: str):
        self._total = total
        self._name = name
        self._done = 0
        self._said_at = time.monotonic() + AFTER_S - EVERY_S
        self._shown = False
        self._lock = threading.Lock()

    def one_more(self, _: Future[Any]) -> None:
        """A call is done."""
        with self._lock:
            self._done += 1
            now, over = time.monotonic(), self._done == self._total
            if (now - self._said_at < EVERY_S and not over) or (over and not self._shown):
                return
            self._said_at, self._shown = now, True
            self._write(over)

    def _write(self, over: bool) -> None:
        terminal = is_watched()
        filled = round(WIDTH * self._done / self._total)
        text = f"{self._name} {'█' * filled}{'·' * (WIDTH - filled)} {self._done}/{self._total}"
        tell("\r\x1b[K" + ("" if over else text) if terminal else text + "\n")
