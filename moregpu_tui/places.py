"""Where one goes in the console: screens, a job's page, a worker in its table, and back."""

from __future__ import annotations

from textual.widget import AwaitMount

from moregpu.errors import MoreGPUError
from moregpu_tui.pump import Pumped
from moregpu_tui.screens.job import JobPage
from moregpu_tui.screens.workers import Workers
from moregpu_tui.widgets.bars import TABS


class Places(Pumped):
    """An application whose screens lead to each other."""

    DEFAULT_MODE = "overview"
    came_from = DEFAULT_MODE

    def switch_mode(self, mode: str) -> AwaitMount:
        """Another screen; where we came from is kept."""
        if mode != self.current_mode and self.current_mode in TABS:
            self.came_from = self.current_mode
        return super().switch_mode(mode)

    def open_job(self, id: str) -> None:
        """A job's page."""
        self.watch_job(id)
        self.switch_mode("job")
        screen = self.pool_screen
        if isinstance(screen, JobPage):
            screen.go_to(id)
        else:
            self.call_after_refresh(self._open_job_later, id)

    def _open_job_later(self, id: str) -> None:
        screen = self.pool_screen
        if isinstance(screen, JobPage):
            screen.go_to(id)

    def open_worker(self, id: str) -> None:
        """A worker in its table."""
        self.switch_mode("workers")
        self.call_after_refresh(self._open_worker_later, id)

    def _open_worker_later(self, id: str) -> None:
        screen = self.pool_screen
        if isinstance(screen, Workers):
            screen.go_to(id)

    def watch_job(self, id: str) -> None:
        """Fetch a job with its tasks, now and whenever it changes; and its log, as long as it grows."""
        if getattr(self.source, "watched_job", "") == id and id in self.state.details:
            return
        self.source.watched_job = id
        self.run_worker(self._fetch_job(id), exclusive=True, group="watch")

    async def _fetch_job(self, id: str) -> None:
        try:
            await self.source.fetch_job(id)
        except MoreGPUError:
            pass  # the bar says that the pool does not answer; the job comes when it does
        await self.source.follow_log(id)
