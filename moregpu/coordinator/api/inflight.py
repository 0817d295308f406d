"""How many requests of one principal are open: who opens more than its share leaves the connections to the others.

A connection on which nothing is asked gives way to a new one (`coordinator.listen`); a stream, a link or a held request
does not, for as long as its client likes.
"""

from __future__ import annotations

from moregpu.errors import TooManyRequests

MOST_EACH = 512
"""Requests, streams and links of one token at once. A link carries thousands of jobs."""

MOST_ON_LINKS = 50_000
"""What one token's links have open together: as many as it may have jobs that have not ended."""

AGAIN_S = 5.0


class InFlight:
    """Counts what is open, by principal."""

    def __init__(self, most: int = MOST_EACH, hint: str = "let some end; one link (`/v1/link`) carries many jobs"):
        self._most = most
        self._hint = hint
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        """How many principals have something open."""
        return len(self._open)

    def enter(self, principal: str) -> None:
        """Count one more; raises `TooManyRequests`."""
        count = self._open.get(principal, 0)
        if count >= self._most:
            error = TooManyRequests(f"{count:,} requests of this token are open", self._hint)
            error.retry_after_s = AGAIN_S
            raise error
        self._open[principal] = count + 1

    def leave(self, principal: str) -> None:
        """One of them is over."""
        count = self._open[principal] - 1
        if count:
            self._open[principal] = count
        else:
            del self._open[principal]
