"""What functions print, cut into lines and held to a task's share: for people, who read a few, and not for programs."""

from __future__ import annotations

from collections.abc import Callable

from moregpu.wire.printed import LINE_CHARACTERS, TASK_BURST_LINES, TASK_BYTES, TASK_LINES_PER_S, LineBudget


class TaskLines:
    """The output of one sandbox, and the budget of the task that runs there."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Another task's output follows; what is unfinished of the one before is dropped."""
        self._tail = b""
        self._left_bytes = TASK_BYTES
        self._budget = LineBudget(TASK_BURST_LINES, TASK_LINES_PER_S)
        self._budget.tick(self._clock())

    def take(self, data: bytes) -> list[str]:
        """The lines that are complete now, as far as they may be shown."""
        *lines, tail = (self._tail + data).split(b"\n")
        self._tail = tail[: 4 * LINE_CHARACTERS]
        self._budget.tick(self._clock())
        return [text for line in lines if (text := self._allowed(line)) is not None]

    def end(self) -> list[str]:
        """The last line, and how many were left out."""
        last = self._allowed(self._tail) if self._tail else None
        self._tail = b""
        return [text for text in (last, self._budget.said()) if text]

    def _allowed(self, line: bytes) -> str | None:
        if len(line) > self._left_bytes:
            self._budget.left_out += 1
            return None
        if not self._budget.allows():
            return None
        self._left_bytes -= len(line)
        text = line.rstrip(b"\r").decode(errors="replace")
        return text if len(text) <= LINE_CHARACTERS else text[: LINE_CHARACTERS - 1] + "…"
