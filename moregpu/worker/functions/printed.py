"""What functions print, cut into lines and held to a task's share: for people, who read a few, and not for programs."""

from __future__ import annotations

from collections.abc import Callable

from moregpu.wire.printed import LINE_CHARACTERS, TASK_BURST_LINES, TASK_BYTES, TASK_LINES_PER_S, LineBudget

PROGRESS_S = 5.0
"""Between two states of a line that is written over, as progress bars do: of an hour of them 720 lines are kept."""


class TaskLines:
    """The output of one sandbox, and the budget of the task that runs there."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Another task's output follows; what is unfinished of the one before is dropped."""
        self._tail = b""
        self._progress_at = -PROGRESS_S
        self._left_bytes = TASK_BYTES
        self._budget = LineBudget(TASK_BURST_LINES, TASK_LINES_PER_S)
        self._budget.tick(self._clock())

    def take(self, data: bytes) -> list[str]:
        """The lines that are complete now, as far as they may be shown.

        Of one that is written over, now and then how far it is: it may not end before the task does.
        """
        *lines, tail = (self._tail + data).split(b"\n")
        now = self._clock()
        self._budget.tick(now)
        *over, last = _states(tail)
        self._tail = last[: 4 * LINE_CHARACTERS]
        if over and now - self._progress_at >= PROGRESS_S:
            self._progress_at = now
            lines.append(over[-1])
        return [text for line in lines if (text := self._allowed(line)) is not None]

    def end(self) -> list[str]:
        """The last line, and how many were left out."""
        last = self._allowed(self._tail) if self._tail else None
        self._tail = b""
        return [text for text in (last, self._budget.said()) if text]

    def _allowed(self, line: bytes) -> str | None:
        line = _states(line)[-1].rstrip(b"\r")
        if len(line) > self._left_bytes:
            self._budget.left_out += 1
            return None
        if not self._budget.allows():
            return None
        self._left_bytes -= len(line)
        text = line.decode(errors="replace")
        return text if len(text) <= LINE_CHARACTERS else text[: LINE_CHARACTERS - 1] + "…"


def _states(line: bytes) -> list[bytes]:
    """What a line was, one after the other, where it was written over; what it is now comes last.

    A carriage return at the end stays: a line feed may follow it, and then nothing was written over.
    """
    written = line.rstrip(b"\r")
    *over, last = written.split(b"\r")
    return [*(state for state in over if state.strip()), line[len(written) - len(last) :]]
