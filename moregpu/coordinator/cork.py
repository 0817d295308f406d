"""What one turn of the loop writes to a connection goes out together: one TLS record, one system call.

uvicorn writes an answer's head and its body one after the other. For small answers the second write and its record cost
a third of the whole request.
"""

from __future__ import annotations

import asyncio
from typing import Any

FULL_BYTES = 16 * 1024
"""Larger pieces gain nothing, and are not copied."""


class Corked:
    """A transport whose small writes wait for the end of the loop's turn."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self.inner = transport
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self._call_soon = loop.call_soon
        self._waiting: list[bytes] = []
        self._bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write(self, data: bytes) -> None:
        """Send it, with what else is written in this turn where that is little."""
        if self._bytes + len(data) > FULL_BYTES:
            self.flush()
            self.inner.write(data)
            return
        if not self._waiting:
            self._call_soon(self.flush)
        self._waiting.append(data)
        self._bytes += len(data)

    def close(self) -> None:
        """Close after what was written."""
        self.flush()
        self.inner.close()

    def flush(self) -> None:
        """Send what waits."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if waiting and not self.inner.is_closing():
            self.inner.write(b"".join(waiting))
