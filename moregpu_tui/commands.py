"""What the actions do: ask where danger is, call the pool, say what came of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from moregpu.errors import InvalidRequest, NotFound
from moregpu.wire.api import InviteRequest, PoolChange, RotateRequest, TokenRequest, WorkerChange
from moregpu_tui.actions import BY_ID, Action, on_screen, permitted
from moregpu_tui.modals.dialog import Ask, Confirm, TypeToConfirm
from moregpu_tui.modals.form_dialog import FormDialog
from moregpu_tui.modals.help import Help
from moregpu_tui.modals.made import Made
from moregpu_tui.modals.palette import Palette
from moregpu_tui.present.cells import Line
from moregpu_tui.present.time import until
from moregpu_tui.present.units import plural, share, short_id
from moregpu_tui.screens.base import PoolScreen
from moregpu_tui.state.model import Job, Worker

if TYPE_CHECKING:
    from moregpu_tui.app import ConsoleApp

UNDO_S = 5.0
_CLOCK = re.compile(r"\d{1,2}:\d{2}")


class Commands:
    """Actions by their id: a screen's own `do_…` first, then ours."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self._undo: tuple[float, str, Callable[[], Awaitable[None]]] | None = None

    async def do(self, action: Action, argument: str) -> None:
        """Do it."""
        name = "do_" + action.id.replace(".", "_")
        screen = self._app.pool_screen
        own: Any = getattr(screen, name, None)
        if own is not None:
            done = own(argument)
            if isinstance(done, Awaitable):
                await done
            return
        if action.id.startswith("screen."):
            self._app.switch_mode(action.id.partition(".")[2])
            return
        handler: Callable[[str], Awaitable[None]] | None = getattr(self, "_" + action.id.replace(".", "_"), None)
        if handler is None:
            self._app.warn(f"{action.title}: not here")
            return
        await handler(argument)

    # ---- workers

    async def _worker_open(self, argument: str) -> None:
        workers = self._workers(argument)
        self._app.open_worker(workers[0].id)

    async def _worker_pause(self, argument: str) -> None:
        workers = self._workers(argument)
        pausing = any(not worker.paused and not worker.draining for worker in workers)
        await self._change(workers, WorkerChange(action="pause" if pausing else "resume"))
        back = WorkerChange(action="resume" if pausing else "pause")
        self._offer_undo(f"{_names(workers)} {'paused' if pausing else 'resumed'}", lambda: self._change(workers, back))

    async def _worker_drain(self, argument: str) -> None:
        workers = self._workers(argument)
        held = sum(worker.leases for worker in workers)
        lines: list[Line] = [
            ((f"{_names(workers)} {'finishes' if len(workers) == 1 else 'finish'} ", "text"),
             (f"{plural(held, 'task')} and {'gets' if len(workers) == 1 else 'get'} nothing more.", "text")),
            (("p resumes later.", "dim"),),
        ]  # fmt: skip
        if await self._app.push_screen_wait(Confirm(f"drain {_names(workers)}?", lines, "Drain")):
            await self._change(workers, WorkerChange(action="drain"))
            self._app.tell(f"{_names(workers)}: draining")

    async def _worker_approve(self, argument: str) -> None:
        workers = [worker for worker in self._workers(argument) if worker.look == "pending"]
        if not workers:
            self._app.warn("nobody here waits for approval")
            return
        await self._change(workers, WorkerChange(action="approve"))
        self._app.tell(f"{_names(workers)} approved: tasks follow after a first test")

    async def _worker_ceiling(self, argument: str) -> None:
        workers = self._workers("")
        text = argument or await self._app.push_screen_wait(
            Ask(
                f"duty ceiling of {_names(workers)}",
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

        self._offer_undo(f"{_names(workers)}: ceiling {share(ceiling)}", undo)

    async def _worker_schedule(self, argument: str) -> None:
        workers = self._workers("")
        text = argument or await self._app.push_screen_wait(
            Ask(
                f"schedule of {_names(workers)}",
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

        self._offer_undo(f"{_names(workers)}: {text}", undo)

    async def _worker_rename(self, argument: str) -> None:
        worker = self._workers("")[0]
        name = argument or await self._app.push_screen_wait(Ask(f"another name for {worker.name}", value=worker.name))
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
            ((f"{_names(workers)} will be refused from now on. That cannot be taken back:", "text"),),
            (("it joins again only with a new key and a new invite.", "text"),),
            ((f"{plural(held, 'running task')} {'goes' if held == 1 else 'go'} back to the queue.", "warn"),),
        ]
        expected = short_id(workers[0].id) if len(workers) == 1 else f"{len(workers)} workers"
        if await self._app.push_screen_wait(TypeToConfirm(f"revoke {_names(workers)}?", lines, expected)):
            for worker in workers:
                await self._app.source.revoke_worker(worker.id)
            self._app.tell(f"{_names(workers)} revoked")

    async def _change(self, workers: list[Worker], change: WorkerChange) -> None:
        for worker in workers:
            await self._app.source.change_worker(worker.id, change)

    # ---- jobs

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
            ((f"{_titles(jobs)} {'ends' if len(jobs) == 1 else 'end'} at once.", "text"),),
            ((f"What workers compute for it now is dropped ({plural(max(0, running), 'task')}).", "dim"),),
        ]
        if await self._app.push_screen_wait(Confirm(f"cancel {_titles(jobs)}?", lines, "Cancel the job")):
            for job in jobs:
                await self._app.source.cancel(job.id)
            self._app.tell(f"{_titles(jobs)} cancelled")

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
        if await self._app.push_screen_wait(
            TypeToConfirm(f"purge {job.name or job.summary}?", lines, short_id(job.id))
        ):
            await self._app.source.purge(job.id)
            self._app.tell("its outputs are gone")

    # ---- access

    async def _invite_new(self, argument: str) -> None:
        request = await self._app.push_screen_wait(
            FormDialog("invite a worker", InviteRequest, "make it", {"owner": argument})
        )
        if request is None:
            return
        made = await self._app.source.invite(request)
        about: list[Line] = [
            (("On the machine that joins: ", "text"), ("moregpu join", "strong"), (", then paste this line.", "text")),
            ((f"Good for {plural(made.uses_left, 'machine')}, ends {until(made.expires_at, self._app.wall())}. "
              "It is a secret.", "dim"),),
        ]  # fmt: skip
        if made.reach:
            about.append(((made.reach, "warn"),))
        await self._app.push_screen_wait(Made("invite", made.line, about))

    async def _token_new(self, argument: str) -> None:
        request = await self._app.push_screen_wait(
            FormDialog("a token for a client", TokenRequest, "make it", {"label": argument})
        )
        if request is None:
            return
        made = await self._app.source.create_token(request)
        about: list[Line] = [
            (("For a client, as ", "text"), ("MOREGPU_ADMIN_TOKEN", "strong"), (f". Role: {made.role}.", "text")),
            (("It is a secret, and shown this once.", "dim"),),
        ]
        await self._app.push_screen_wait(Made("token", made.line, about))

    async def _access_revoke(self, _argument: str) -> None:
        for id in self._targets("token"):
            is_invite = id.startswith("i-")
            lines: list[Line] = [
                (("Workers that used it stay." if is_invite else "Whoever uses it is out at once.", "text"),)
            ]
            what = f"{'withdraw invite' if is_invite else 'revoke token'} {short_id(id)}?"
            if await self._app.push_screen_wait(Confirm(what, lines, "Withdraw" if is_invite else "Revoke")):
                if is_invite:
                    await self._app.source.withdraw_invite(id)
                else:
                    await self._app.source.revoke_token(id)
                self._app.tell(f"{short_id(id)} is no longer good")

    async def _pool_rotate(self, _argument: str) -> None:
        pool = self._app.state.pool
        finishing = pool is not None and pool.rotating
        online = sum(worker.connected for worker in self._app.state.workers.values())
        total = sum(not worker.revoked for worker in self._app.state.workers.values())
        lines: list[Line] = (
            [
                (("The old session key goes, for good.", "text"),),
                (
                    (
                        f"{plural(total - online, 'worker')} not online now: those that did not hear of the next key",
                        "warn",
                    ),
                ),
                (("need a new invite.", "warn"),),
            ]
            if finishing
            else [
                (("A next session key is announced; workers learn it when they next connect.", "text"),),
                ((f"{plural(total, 'worker')} will use it. Give them a day, then K again finishes.", "text"),),
            ]
        )
        word = "finish" if finishing else "rotate"
        if await self._app.push_screen_wait(TypeToConfirm(f"{word} the change of the pool's key?", lines, word)):
            await self._app.source.rotate(RotateRequest(action="finish" if finishing else "begin"))
            self._app.tell("the old key is gone" if finishing else "the next key is announced")

    async def _pool_change(self, _argument: str) -> None:
        pool = self._app.state.pool
        values = {"name": pool.name, "description": pool.description} if pool is not None else {}
        change = await self._app.push_screen_wait(FormDialog("this pool", PoolChange, "keep it", values))
        if change is not None:
            await self._app.source.change_pool(change)
            self._app.tell("the pool took it")

    async def _ledger_verify(self, _argument: str) -> None:
        self._app.tell("walking the ledger …", timeout=3)
        await self._app.source.verify_ledger()
        audit = self._app.state.audit
        if audit is not None and not audit.ok:
            self._app.warn("the ledger does not verify")

    # ---- lists and copies

    async def _list_filter(self, argument: str) -> None:
        screen = self._app.pool_screen
        if screen is not None:
            screen.open_filter(argument or None)

    async def _copy_id(self, _argument: str) -> None:
        ids = self._under_cursor()
        self._app.copy("\n".join(ids), ids[0] if len(ids) == 1 else f"{len(ids)} ids")

    async def _copy_json(self, _argument: str) -> None:
        state = self._app.state
        found: list[object] = []
        for id in self._under_cursor():
            rows = [*(state.invites or ()), *(state.tokens or ())]
            found.append(
                state.workers.get(id) or state.jobs.get(id) or next((row for row in rows if row.id == id), None)
            )
        text = msgspec.json.format(msgspec.json.encode(found[0] if len(found) == 1 else found), indent=2).decode()
        self._app.copy(text, f"{len(text):,} characters of JSON")

    async def _view_radar(self, _argument: str) -> None:
        screen = self._app.pool_screen
        if screen is not None:
            screen.toggle_class("radar")
            self._app.call_after_refresh(screen.refresh_all)

    async def _view_zoom(self, _argument: str) -> None:
        await self._view_radar("")

    # ---- everywhere

    async def _app_menu(self, _argument: str) -> None:
        """What can be done with what is under the cursor."""
        screen = self._app.pool_screen
        if screen is None:
            return
        found = [
            action
            for action in on_screen(screen.here)
            if action.target and self._targets_of(screen, action) and self._may(action)
        ]
        title = ", ".join(self._label(id) for id in self._targets_of(screen, found[0])[:2]) if found else "nothing"
        await self._choose(Palette(f"actions: {title}", found))

    async def _app_palette(self, _argument: str) -> None:
        screen = self._app.pool_screen
        here = on_screen(screen.here) if screen is not None else []
        shown = [action for action in here if not action.widget and self._may(action)]
        await self._choose(Palette("what do you want to do?", shown))

    async def _app_command(self, _argument: str) -> None:
        screen = self._app.pool_screen
        shown = [action for action in BY_ID.values() if not action.widget and self._may(action)]
        here = screen.here if screen is not None else ""
        shown.sort(key=lambda action: bool(action.scope) and here not in action.scope)
        await self._choose(Palette(":", shown, commands=True))

    async def _choose(self, palette: Palette) -> None:
        chosen = await self._app.push_screen_wait(palette)
        if chosen is not None:
            self._app.act(*chosen)

    async def _app_resync(self, _argument: str) -> None:
        self._app.source.resync()
        self._app.tell("everything is read anew", timeout=2)

    async def _app_undo(self, _argument: str) -> None:
        if self._undo is None or self._app.now() > self._undo[0]:
            self._app.warn("there is nothing to undo now")
            return
        _, what, undo = self._undo
        self._undo = None
        await undo()
        self._app.tell(f"taken back: {what}")

    async def _app_help(self, _argument: str) -> None:
        screen = self._app.pool_screen
        if screen is not None:
            await self._app.push_screen_wait(Help(screen.here, self._app.state.role, self._app.options.readonly))

    async def _app_escape(self, _argument: str) -> None:
        self._step_out()

    async def _app_back(self, _argument: str) -> None:
        screen = self._app.pool_screen
        if self._step_out():
            return
        if screen is None or screen.here == "overview":
            self._app.exit(0)
        else:
            self._app.switch_mode("overview")

    async def _app_quit(self, _argument: str) -> None:
        self._app.exit(0)

    async def _app_interrupt(self, _argument: str) -> None:
        self._app.interrupt()

    def _step_out(self) -> bool:
        """One step: filter, marks, detail, radar, zoom; whether there was one."""
        screen = self._app.pool_screen
        if screen is None:
            return False
        if screen.close_filter(clear=True):
            return True
        for table in screen.query("LineTable"):
            clear: Any = getattr(table, "clear_marks", None)
            if clear is not None and clear():
                screen.bars()
                return True
        leave: Any = getattr(screen, "leave_detail", None)
        if leave is not None and leave():
            return True
        for name in ("radar", "proof", "zoomed"):
            if screen.has_class(name):
                screen.remove_class(name)
                screen.home()
                self._app.call_after_refresh(screen.refresh_all)
                return True
        if screen.here == "job":
            self._app.switch_mode("jobs")
            return True
        return False

    # ---- who is meant

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
        self._app.tell(f"{what} · u takes it back", timeout=UNDO_S)


def _names(workers: list[Worker]) -> str:
    return workers[0].name or short_id(workers[0].id) if len(workers) == 1 else plural(len(workers), "worker")


def _titles(jobs: list[Job]) -> str:
    return jobs[0].name or jobs[0].summary if len(jobs) == 1 else plural(len(jobs), "job")


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
