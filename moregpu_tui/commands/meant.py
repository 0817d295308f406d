"""Who an action means, and how it is taken back: what all commands share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from moregpu.errors import NotFound
from moregpu_tui.actions import Action, permitted
from moregpu_tui.present.units import plural, short_id
from moregpu_tui.screens.base import PoolScreen
from moregpu_tui.state.model import Job, Worker

if TYPE_CHECKING:
    from moregpu_tui.app import ConsoleApp

UNDO_S = 5.0


class Meant:
    """Marked rows, the row under the cursor, or what an argument names."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self._undo: tuple[float, str, Callable[[], Awaitable[None]]] | None = None

    def _workers(self, argument: str) -> list[Worker]:
        """Marked workers, the one under the cursor, or one by its name. Raises `NotFound`."""
        all_workers = self._app.state.workers
        if argument:
            found = [
                worker
                for worker in all_workers.values()
                if worker.name == argument or worker.id.lower().startswith(argument.lower())
            ]
            if len(found) != 1:
                raise NotFound(f"{argument[:40]!r} names {plural(len(found), 'worker')}", "its name, or more of its id")
            return found
        found = [all_workers[id] for id in self._targets("worker") if id in all_workers]
        if not found:
            raise NotFound("no worker is under the cursor", "2 shows the workers")
        return found

    def _jobs(self, argument: str) -> list[Job]:
        """Marked jobs, the one under the cursor, or one by the beginning or end of its id. Raises `NotFound`."""
        all_jobs = self._app.state.jobs
        if argument:
            wanted = argument.lower()
            found = [
                job
                for job in all_jobs.values()
                if job.name == argument or job.id.lower().startswith(wanted) or short_id(job.id).lower() == wanted
            ]
            if len(found) != 1:
                raise NotFound(f"{argument[:40]!r} names {plural(len(found), 'job')}", "its name, or more of its id")
            return found
        found = [all_jobs[id] for id in self._targets("job") if id in all_jobs]
        if not found:
            raise NotFound("no job is under the cursor", "3 shows the jobs")
        return found

    def _targets(self, kind: Any) -> list[str]:
        screen = self._app.pool_screen
        return screen.targets(kind) if screen is not None else []

    def _targets_of(self, screen: PoolScreen, action: Action) -> list[str]:
        return screen.targets(action.target)

    def _under_cursor(self) -> list[str]:
        for kind in ("worker", "job", "invite", "token"):
            found = self._targets(kind)
            if found:
                return found
        raise NotFound("nothing is under the cursor")

    def _label(self, id: str) -> str:
        state = self._app.state
        if id in state.workers:
            return state.workers[id].name
        if id in state.jobs:
            return state.jobs[id].name or state.jobs[id].summary
        return short_id(id)

    def _may(self, action: Action) -> bool:
        return permitted(action, role=self._app.state.role, readonly=self._app.options.readonly)

    def _offer_undo(self, what: str, undo: Callable[[], Awaitable[None]]) -> None:
        self._undo = (self._app.now() + UNDO_S, what, undo)
        self._app.tell(f"{what} · {self._app.manner.key('app.undo')} takes it back", timeout=UNDO_S)


def names_of(workers: list[Worker]) -> str:
    """One by name, several by their number."""
    return workers[0].name or short_id(workers[0].id) if len(workers) == 1 else plural(len(workers), "worker")


def titles_of(jobs: list[Job]) -> str:
    """One by name, several by their number."""
    return jobs[0].name or jobs[0].summary if len(jobs) == 1 else plural(len(jobs), "job")
