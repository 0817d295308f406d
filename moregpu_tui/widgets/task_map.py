"""The task map: a job's grains as squares, in order, each in the colour of what happens there."""

from __future__ import annotations

from textual.strip import Strip

from moregpu.wire.api import TaskView
from moregpu_tui.present.jobs import Square, task_map
from moregpu_tui.state.model import Job
from moregpu_tui.widgets.drawn import Drawn, paint_of

_TONES = {"done": "good", "leased": "busy", "failed": "bad", "waiting": "warn", "none": "rule"}


class TaskMap(Drawn):
    """Squares from left to right, top to bottom."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._job: Job | None = None
        self._tasks: tuple[TaskView, ...] = ()
        self._squares: list[Square] = []
        self.faded = False

    def put(self, job: Job | None, tasks: tuple[TaskView, ...]) -> None:
        """Show a job; None shows nothing."""
        self._job, self._tasks = job, tasks
        self._rebuild()

    def fade(self, faded: bool) -> None:
        """Show it dimmed: it is old."""
        if faded != self.faded:
            self.faded = faded
            self.refresh()

    def touch_all(self) -> None:
        """Draw again: another theme."""
        self.refresh()

    def on_resize(self) -> None:
        """Another size: build anew, and say so."""
        self._rebuild()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        paint, width = paint_of(self), self.size.width
        columns = self._columns()
        squares = self._squares[y * columns : (y + 1) * columns]
        signs = paint.glyphs.tasks
        cells = self._cells()
        pieces = [(signs[square.state].ljust(cells), _TONES[square.state]) for square in squares]
        return paint.strip(pieces, width, faded=self.faded)

    def _cells(self) -> int:
        """Cells a square is wide: two where there is room, so that it looks like one."""
        job = self._job
        return 2 if job is not None and job.grains * 2 <= self.size.width * self.size.height else 1

    def _columns(self) -> int:
        return max(1, self.size.width // self._cells())

    def _rebuild(self) -> None:
        job = self._job
        room = self._columns() * self.size.height
        self._squares = task_map(job, self._tasks, room) if job is not None else []
        self.refresh()
