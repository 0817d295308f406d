"""People at text terminals, over SSH too: a remote session counts as a user."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from moregpu.worker.probes.presence import Presence

LIST_S = 5.0
"""Between two looks at who is logged in; terminals themselves are looked at each time."""


class Terminals:
    """Seconds since somebody typed into a login's terminal: what `w` shows as IDLE."""

    def __init__(self, logins: Callable[[], Iterable[str]] | None = None, clock: Callable[[], float] = time.time):
        """`logins` names the terminals of those who are logged in ("pts/0")."""
        self._logins = logins or _logins
        self._clock = clock
        self._known: list[Path] = []
        self._listed_at = -math.inf

    def presence(self) -> Presence:
        """Infinite when nobody is logged in."""
        now = self._clock()
        if not 0.0 <= now - self._listed_at <= LIST_S:  # or the clock was set back
            self._listed_at = now
            self._known = [Path("/dev") / name for name in self._logins()]
        idle = [now - read_at for read_at in map(_read_at, self._known) if read_at is not None]
        return Presence(idle_s=max(0.0, min(idle, default=math.inf)))

    def close(self) -> None:
        """Nothing to let go."""


def _logins() -> list[str]:
    try:
        return [user.terminal for user in psutil.users() if user.terminal and not user.terminal.startswith(":")]
    except (OSError, RuntimeError):
        return []


def _read_at(terminal: Path) -> float | None:
    """When it was last read from: reading follows typing (the kernel notes it to 8 s)."""
    try:
        return os.stat(terminal).st_atime  # noqa: PTH116 — 20 times a second
    except OSError:
        return None
