"""What functions print, cut into lines and capped: for people, who read a few, and not for programs."""

from __future__ import annotations

from collections.abc import Callable

LINE_CHARACTERS = 2000
TASK_BYTES = 1 << 20
"""What is kept of one task's output."""

BURST_LINES = 500
LINES_PER_S = 200
"""More lines than that are counted and left out."""


class Printed:
    """The output of one sandbox, and the budget of the task that runs there."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._tail = b""
        self._left_bytes = TASK_BYTES
        self._left_lines = float(BURST_LINES)
        self._at = clock()
        self._dropped = 0

    def begin(self) -> None:
        """Another task's output follows; what is unfinished of the one before is dropped."""
        self._tail, self._dropped = b"", 0
        self._left_bytes, self._left_lines, self._at = TASK_BYTES, float(BURST_LINES), self._clock()

    def take(self, data: bytes) -> list[str]:
        """The lines that are complete now, as far as they may be shown."""
        *lines, tail = (self._tail + data).split(b"\n")
        self._tail = tail[: 4 * LINE_CHARACTERS]
        now = self._clock()
        self._left_lines = min(BURST_LINES, self._left_lines + (now - self._at) * LINES_PER_S)
        self._at = now
        return [text for line in lines if (text := self._allowed(line)) is not None]

    def end(self) -> list[str]:
        """The last line, and how many were left out."""
        lines: list[str] = []
        if self._tail and (text := self._allowed(self._tail)) is not None:
            lines.append(text)
        if self._dropped:
            lines.append(f"… {self._dropped} more lines were printed and are left out")
        self._tail, self._dropped = b"", 0
        return lines

    def _allowed(self, line: bytes) -> str | None:
        if self._left_lines < 1.0 or len(line) > self._left_bytes:
            self._dropped += 1
            return None
        self._left_lines -= 1.0
        self._left_bytes -= len(line)
        text = line.rstrip(b"\r").decode(errors="replace")
        return text if len(text) <= LINE_CHARACTERS else text[:LINE_CHARACTERS] + " …"
