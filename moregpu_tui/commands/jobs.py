"""Jobs: new, open, cancel, again, purge."""

from __future__ import annotations

from moregpu_tui.commands.meant import Meant, titles_of
from moregpu_tui.modals.dialog import Confirm, TypeToConfirm
from moregpu_tui.present.cells import Line
from moregpu_tui.present.units import plural, short_id


class JobCommands(Meant):
    """What is done to jobs."""

    async def _job_new(self, _argument: str) -> None:
        self._app.switch_mode("submit")

    async def _job_open(self, argument: str) -> None:
        self._app.open_job(self._jobs(argument)[0].id)

    async def _job_cancel(self, argument: str) -> None:
        jobs = [job for job in self._jobs(argument) if not job.ended]
        if not jobs:
            self._app.warn("it has ended already")
            return
        running = sum(job.tasks_total - job.tasks_done for job in jobs)
        lines: list[Line] = [
            ((f"{titles_of(jobs)} {'ends' if len(jobs) == 1 else 'end'} at once.", "text"),),
            ((f"What workers compute for it now is dropped ({plural(max(0, running), 'task')}).", "dim"),),
        ]
        if await self._app.ask(Confirm(f"cancel {titles_of(jobs)}?", lines, "Cancel the job")):
            for job in jobs:
                await self._app.source.cancel(job.id)
            self._app.tell(f"{titles_of(jobs)} cancelled")

    async def _job_retry(self, argument: str) -> None:
        job = self._jobs(argument)[0]
        view = await self._app.source.retry(job.id)
        self._app.tell(f"{job.name or job.summary} runs again as {short_id(view.id)}")

    async def _job_purge(self, argument: str) -> None:
        job = self._jobs(argument)[0]
        lines: list[Line] = [
            (("Its outputs and the keys to them are forgotten, for good.", "text"),),
            (("Record, evidence and signatures stay.", "dim"),),
        ]
        if await self._app.ask(TypeToConfirm(f"purge {job.name or job.summary}?", lines, short_id(job.id))):
            await self._app.source.purge(job.id)
            self._app.tell("its outputs are gone")
