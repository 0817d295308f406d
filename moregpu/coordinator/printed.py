"""What functions printed: the newest lines of each job, in memory, for its owner.

Bounded in every way: lines of a job (the oldest go), jobs (the one that printed longest ago goes), and lines a second
of a job (`moregpu.wire.printed`). They are words for people who look on, and no part of a result: the program that
called has had them on its terminal, and a coordinator that starts again begins with none.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

import msgspec

from moregpu.wire.printed import JOB_BURST_LINES, JOB_LINES, JOB_LINES_PER_S, LINE_CHARACTERS, LineBudget

MAX_JOBS = 500


class PrintedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line, and where it came from."""

    number: int  # counts a job's lines, those that were left out too
    at: float
    task: int
    worker: str
    text: str


class _Job:
    def __init__(self) -> None:
        self.lines: deque[PrintedLine] = deque(maxlen=JOB_LINES)
        self.count = 0
        self.budget = LineBudget(JOB_BURST_LINES, JOB_LINES_PER_S)
        self.listeners: dict[object, Callable[[], None]] = {}


class JobLines:
    """The lines of all jobs."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    def add(self, job: str, task: int, worker: str, lines: Sequence[str], at: float) -> None:
        """A task printed lines. Their text is clean already."""
        kept = self._job(job)
        kept.budget.tick(at)
        for text in lines:
            if not kept.budget.allows():
                continue
            if said := kept.budget.said():
                self._append(kept, task, worker, said, at)
            self._append(kept, task, worker, text[:LINE_CHARACTERS], at)
        for tell in list(kept.listeners.values()):
            tell()

    def after(self, job: str, number: int) -> list[PrintedLine]:
        """A job's lines from `number` on, as far as they are kept."""
        kept = self._jobs.get(job)
        if kept is None or kept.count <= number:
            return []
        new = min(kept.count - number, len(kept.lines))
        return list(kept.lines)[len(kept.lines) - new :]

    def listen(self, job: str, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` when the job printed something, until the returned function is called."""
        kept, mark = self._job(job), object()
        kept.listeners[mark] = tell

        def stop() -> None:
            kept.listeners.pop(mark, None)

        return stop

    def _job(self, job: str) -> _Job:
        kept = self._jobs.get(job)
        if kept is None:
            kept = self._jobs[job] = _Job()
            while len(self._jobs) > MAX_JOBS:
                oldest = next((id for id, each in self._jobs.items() if not each.listeners), None)
                if oldest is None:
                    break
                del self._jobs[oldest]
        else:
            self._jobs.move_to_end(job)
        return kept

    def _append(self, kept: _Job, task: int, worker: str, text: str, at: float) -> None:
        kept.lines.append(PrintedLine(number=kept.count, at=at, task=task, worker=worker, text=text))
        kept.count += 1
