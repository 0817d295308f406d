"""The worker inside the tray: the same agent as `moregpu join`, on a thread of its own.

The thread lives as long as the process: compute processes die with the thread that started them. An agent that ends by
an error which only a person can mend leaves it waiting for that person; one that ends by a defect is started again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

import msgspec

from moregpu.errors import KeyringLocked, MoreGPUError, StateRefused, Unreachable
from moregpu.wire.invite import Invite
from moregpu.wire.messages import Assignment, Limits
from moregpu.wire.text import clean
from moregpu.worker.agent import Agent
from moregpu.worker.config import WorkerConfig
from moregpu.worker.devices import lent_cores
from moregpu.worker.enrol import enrol
from moregpu.worker.home import ENROLMENT, WorkerHome, has_joined, worker_folder
from moregpu.worker.status import Status
from moregpu_tray.consent import names_of
from moregpu_tray.history import History
from moregpu_tray.view import View

_log = logging.getLogger(__name__)

LEAVE_S = 2.0
"""An agent hands its work back within this."""

FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
TRY_AGAIN_S = 30.0
"""After an error that may pass by itself: another worker in the folder, a pool that is not reached the first time."""


class Core:
    """One worker, joined or not. Its methods may be called from any thread."""

    def __init__(self, config: WorkerConfig, history: History, observe: Callable[[View], None]):
        """`observe` is called with each new view, on whichever thread made it."""
        self._folder = worker_folder(config.state)
        self._config = config
        self._history = history
        self._observe = observe
        self._lock = threading.RLock()
        self._agent: Agent | None = None
        self._invited = (self._folder / ENROLMENT).exists()  # perhaps never answered yet
        self._view = View(paused=config.paused, joined=self._invited)
        self._pause_ends: float | None = None  # by the clock that nobody sets
        self._wanted = threading.Event()  # something for the thread to look at
        self._halted = False
        self._idle = threading.Event()  # the thread has let go of the folder
        self._stopping = False
        self._restarting = False
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def view(self) -> View:
        """How it stands."""
        return self._view

    @property
    def has_joined(self) -> bool:
        """Whether a pool took this machine in; an invite that nobody answered yet does not count."""
        try:
            return has_joined(self._folder)
        except MoreGPUError:
            return False

    @property
    def config(self) -> WorkerConfig:
        """The settings in force."""
        return self._config

    # -- what the owner wants

    def pause(self, for_s: float | None = None, *, until_restart: bool = False) -> None:
        """Compute nothing, at once; nothing is lost."""
        until = None if for_s is None else time.time() + for_s
        with self._lock:
            self._pause_ends = None if for_s is None else time.monotonic() + for_s
            if not until_restart and for_s is None:
                self._config = msgspec.structs.replace(self._config, paused=True)
            self._show(paused=True, paused_until=until, until_restart=until_restart)
            if self._agent is not None:
                self._agent.pause(for_s)

    def resume(self) -> None:
        """Go on."""
        with self._lock:
            self._config = msgspec.structs.replace(self._config, paused=False)
            self._show(paused=False, paused_until=None, until_restart=False)
            if self._agent is not None:
                self._agent.resume()

    def set_limits(self, *, ceiling: float | None = None, schedule: str | None = None) -> None:
        """Change them. Raises `InvalidRequest` for a value out of its range."""
        with self._lock:
            fields = msgspec.structs.asdict(self._config)
            fields |= {"ceiling": self._config.ceiling if ceiling is None else ceiling}
            fields |= {"schedule": self._config.schedule if schedule is None else schedule}
            self._config = WorkerConfig.checked(**fields)
            if self._agent is not None:
                paused = self._view.paused
                self._agent.set_limits(
                    Limits(ceiling=self._config.ceiling, schedule=self._config.schedule, paused=paused)
                )
                if paused and self._pause_ends is not None:
                    self._agent.pause(max(0.0, self._pause_ends - time.monotonic()))
            self._observe(self._view)

    def set_kinds(self, kinds: tuple[str, ...] | None) -> None:
        """Which kinds of jobs may run here; the pool is told by a new connection."""
        with self._lock:
            self._config = msgspec.structs.replace(self._config, kinds=kinds)
            self._restarting = True
            self._end_agent()
            self._observe(self._view)

    def set_functions(self, whose: tuple[str, ...]) -> None:
        """Whose Python code may run here; the pool is told by a new connection. Raises `InvalidRequest`."""
        with self._lock:
            fields = msgspec.structs.asdict(self._config) | {"functions": names_of(whose)}
            if fields["functions"] and fields["kinds"] is not None:
                fields["kinds"] = tuple(dict.fromkeys((*fields["kinds"], "function")))
            self._config = WorkerConfig.checked(**fields)
            self._restarting = True
            self._end_agent()
            self._observe(self._view)

    def join(self, invite: Invite) -> None:
        """Join a pool; what it says to that is shown as it comes. Raises `StateRefused` when in another pool."""
        self._halt()
        try:
            enrol(self._folder, invite)
            self._invited = True
        finally:
            self._show(trouble="", joined=self._invited or self.has_joined)
            self._go_on()

    def leave(self) -> None:
        """Leave the pool: nothing of it stays here. Raises `KeyringLocked`, `StateRefused`."""
        self._halt()
        try:
            home = WorkerHome(self._folder)
            try:
                home.leave()
            finally:
                home.close()
            self._invited = False
        finally:
            self._show(trouble="", joined=self.has_joined, status=Status())
            self._go_on()

    def stop(self, timeout_s: float = LEAVE_S + 1.0) -> bool:
        """Hand the work back and end; whether it ended in time."""
        self._stopping = True
        until = time.monotonic() + timeout_s
        while self._thread.is_alive() and time.monotonic() < until:
            self._end_agent()  # again: one that is just starting takes no orders yet
            self._wanted.set()
            self._thread.join(0.1)
        self._history.flush()
        return not self._thread.is_alive()

    # -- the thread

    def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopping:
            wait_s: float | None = None
            if not self._halted and (self._invited or self.has_joined):
                began = time.monotonic()
                wait_s = self._run_agent(delay_s)
                lived = time.monotonic() - began > MAX_DELAY_S
                delay_s = FIRST_DELAY_S if lived else min(2.0 * delay_s, MAX_DELAY_S)
            self._idle.set()
            if wait_s != 0.0:
                self._wanted.wait(wait_s)
            self._wanted.clear()
            if not self._halted:
                self._idle.clear()

    def _run_agent(self, delay_s: float) -> float | None:
        """Run one agent; returns seconds until the next, None: until somebody wants something."""
        try:
            home = WorkerHome.existing(self._folder)
        except MoreGPUError as error:
            return self._failed(error)
        try:
            self._show(trouble="")
            with self._lock:
                config = msgspec.structs.replace(self._config, paused=self._view.paused)
                agent = Agent(home, config, lambda status: self._changed(status, home), ran=self._ran)
                if self._stopping or self._halted:
                    return None
                self._agent = agent
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._whole_life(agent))
        except MoreGPUError as error:
            return self._failed(error)
        except OSError as error:  # of the disk: connections have errors of their own
            return self._failed(StateRefused(f"{error.strerror or error}: {self._folder}", "free some space there"))
        except Exception:  # noqa: BLE001 — a defect: the owner is spared the traceback, the log is not
            _log.exception("the agent ended")
            self._show(trouble="the worker met an error of its own and starts again; details are in the log")
            return delay_s
        finally:
            with self._lock:
                self._agent = None
            home.close()
        if self._restarting:
            self._restarting = False
            return 0.0
        return None

    async def _whole_life(self, agent: Agent) -> None:
        """The agent's life; a pause that began before it is carried on."""
        ends = self._pause_ends
        if self._view.paused and ends is not None:
            asyncio.get_running_loop().call_soon(agent.pause, max(0.0, ends - time.monotonic()))
        if self._stopping or self._halted:
            return
        await agent.run()

    def _failed(self, error: MoreGPUError) -> float | None:
        _log.warning("the worker stopped: %s", error)
        passing = isinstance(error, StateRefused | KeyringLocked | Unreachable)
        self._invited = self._invited and passing
        self._show(trouble=clean(str(error), 500), joined=self._invited or self.has_joined, status=Status())
        return TRY_AGAIN_S if passing else None

    def _changed(self, status: Status, home: WorkerHome) -> None:
        secrets = self._view.secrets
        if not secrets and status.worker:  # then the keys were read, and where they lie is known
            secrets = home.told()
        shown: dict[str, object] = {"status": status, "joined": True, "secrets": secrets}
        # Whether a pause is over is the agent's to say: the clock on the wall may be set meanwhile.
        if self._view.status.owner_paused and not status.owner_paused:
            self._show(**shown, paused=False, paused_until=None, until_restart=False)
        else:
            self._show(**shown)

    def _ran(self, assignment: Assignment, seconds: float) -> None:
        self._history.note(
            job=assignment.job,
            submitter=assignment.submitter,
            name=assignment.name or assignment.program[:40].decode(errors="replace"),
            kind=assignment.kind,
            seconds=seconds,
            cores=lent_cores(self._config.cores),
        )

    # -- one at a time

    def _halt(self) -> None:
        """End the agent and hold the thread, since the folder is to change."""
        self._halted = True
        self._idle.clear()
        until = time.monotonic() + 2.0 * LEAVE_S + 1.0
        while self._thread.is_alive():
            self._end_agent()
            self._wanted.set()
            if self._idle.wait(0.1):
                return
            if time.monotonic() > until:
                self._halted = False
                raise StateRefused("the worker does not let go of its folder", "quit it and start it again")

    def _go_on(self) -> None:
        self._halted = False
        self._wanted.set()

    def _end_agent(self) -> None:
        with self._lock:
            if self._agent is not None:
                self._agent.stop()

    def _show(self, **changes: object) -> None:
        with self._lock:
            view = msgspec.structs.replace(self._view, **changes)
            if view == self._view:
                return
            self._view = view
        self._observe(view)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop
