"""Workers: pause, resume, drain, limit, approve, rename, revoke; one, those that are marked, or all."""

from __future__ import annotations

import re

from moregpu.errors import InvalidRequest
from moregpu.wire.api import WorkerChange
from moregpu_tui.commands.meant import Meant, names_of
from moregpu_tui.modals.dialog import Ask, Confirm, TypeToConfirm
from moregpu_tui.present.cells import Line
from moregpu_tui.present.units import plural, share, short_id
from moregpu_tui.state.model import Worker

_CLOCK = re.compile(r"\d{1,2}:\d{2}")


class WorkerCommands(Meant):
    """What is done to workers."""

    async def _worker_open(self, argument: str) -> None:
        workers = self._workers(argument)
        self._app.open_worker(workers[0].id)

    async def _worker_pause(self, argument: str) -> None:
        workers = self._workers(argument)
        pausing = any(not worker.paused and not worker.draining for worker in workers)
        await self._change(workers, WorkerChange(action="pause" if pausing else "resume"))
        back = WorkerChange(action="resume" if pausing else "pause")
        self._offer_undo(
            f"{names_of(workers)} {'paused' if pausing else 'resumed'}", lambda: self._change(workers, back)
        )

    async def _worker_drain(self, argument: str) -> None:
        workers = self._workers(argument)
        held = sum(worker.leases for worker in workers)
        lines: list[Line] = [
            ((f"{names_of(workers)} {'finishes' if len(workers) == 1 else 'finish'} ", "text"),
             (f"{plural(held, 'task')} and {'gets' if len(workers) == 1 else 'get'} nothing more.", "text")),
            ((f"{self._app.manner.key('worker.pause')} resumes later.", "dim"),),
        ]  # fmt: skip
        if await self._app.ask(Confirm(f"drain {names_of(workers)}?", lines, "Drain")):
            await self._change(workers, WorkerChange(action="drain"))
            self._app.tell(f"{names_of(workers)}: draining")

    async def _worker_approve(self, argument: str) -> None:
        workers = [worker for worker in self._workers(argument) if worker.look == "pending"]
        if not workers:
            self._app.warn("nobody here waits for approval")
            return
        await self._change(workers, WorkerChange(action="approve"))
        self._app.tell(f"{names_of(workers)} approved: tasks follow after a first test")

    async def _worker_ceiling(self, argument: str) -> None:
        workers = self._workers("")
        text = argument or await self._app.ask(
            Ask(
                f"duty ceiling of {names_of(workers)}",
                [(("Percent of a device that all programs together may reach, 5 to 100.", "dim"),)],
                value=f"{100 * workers[0].ceiling:.0f}",
                check=lambda text: "" if _percent(text) is not None else "a number from 5 to 100",
            )
        )
        ceiling = _percent(text or "")
        if ceiling is None:
            if text:
                raise InvalidRequest(f"{text[:20]!r} is no ceiling", "a number from 5 to 100, in percent")
            return
        before = [(worker, worker.ceiling) for worker in workers]
        await self._change(workers, WorkerChange(ceiling=ceiling))

        async def undo() -> None:
            for worker, old in before:
                await self._change([worker], WorkerChange(ceiling=old))

        self._offer_undo(f"{names_of(workers)}: ceiling {share(ceiling)}", undo)

    async def _worker_schedule(self, argument: str) -> None:
        workers = self._workers("")
        text = argument or await self._app.ask(
            Ask(
                f"schedule of {names_of(workers)}",
                [(("always, 22:00-07:00, or mon-fri 19:00-07:00; sat,sun", "dim"),),
                 (("Times are what the machine's own clock shows.", "dim"),)],
                value=workers[0].schedule,
                check=_schedule_wrong,
            )
        )  # fmt: skip
        if not text:
            return
        before = [(worker, worker.schedule) for worker in workers]
        await self._change(workers, WorkerChange(schedule=text))

        async def undo() -> None:
            for worker, old in before:
                await self._change([worker], WorkerChange(schedule=old))

        self._offer_undo(f"{names_of(workers)}: {text}", undo)

    async def _worker_rename(self, argument: str) -> None:
        worker = self._workers("")[0]
        name = argument or await self._app.ask(Ask(f"another name for {worker.name}", value=worker.name))
        if name and name != worker.name:
            await self._change([worker], WorkerChange(name=name[:100]))
            self._offer_undo(
                f"{worker.name} is {name} now", lambda: self._change([worker], WorkerChange(name=worker.name))
            )

    async def _worker_revoke(self, argument: str) -> None:
        workers = [worker for worker in self._workers(argument) if not worker.revoked]
        if not workers:
            self._app.warn("it is revoked already")
            return
        held = sum(worker.leases for worker in workers)
        lines: list[Line] = [
            ((f"{names_of(workers)} will be refused from now on. That cannot be taken back:", "text"),),
            (("it joins again only with a new key and a new invite.", "text"),),
            ((f"{plural(held, 'running task')} {'goes' if held == 1 else 'go'} back to the queue.", "warn"),),
        ]
        expected = short_id(workers[0].id) if len(workers) == 1 else f"{len(workers)} workers"
        if await self._app.ask(TypeToConfirm(f"revoke {names_of(workers)}?", lines, expected)):
            for worker in workers:
                await self._app.source.revoke_worker(worker.id)
            self._app.tell(f"{names_of(workers)} revoked")

    async def _change(self, workers: list[Worker], change: WorkerChange) -> None:
        for worker in workers:
            await self._app.source.change_worker(worker.id, change)


def _percent(text: str) -> float | None:
    try:
        value = float(text.strip().rstrip("%").replace(",", "."))
    except ValueError:
        return None
    value = value / 100 if value > 1 else value
    return value if 0.05 <= value <= 1.0 else None


def _schedule_wrong(text: str) -> str:
    """A first look; the coordinator and the worker judge it."""
    if text == "always" or _CLOCK.search(text) or re.search(r"(mon|tue|wed|thu|fri|sat|sun)", text):
        return ""
    return "always, 22:00-07:00, or days: mon-fri 19:00-07:00; sat,sun"
