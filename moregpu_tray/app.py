"""The tray: the worker on one thread, the icon on the main one, and a socket for whoever is started second."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from moregpu.errors import InvalidRequest, MoreGPUError
from moregpu.platform import autostart
from moregpu.platform.instance import Instance
from moregpu.platform.memory import give_back
from moregpu.platform.signals import ending_signals
from moregpu.wire.invite import parse_invite
from moregpu.wire.messages import EVERYBODY
from moregpu.wire.text import clean
from moregpu.worker.config import WorkerConfig
from moregpu.workloads import KINDS
from moregpu_tray.chosen import save
from moregpu_tray.core import Core
from moregpu_tray.history import History
from moregpu_tray.icon.protocol import STEPS, Face, Picture, TrayBackend
from moregpu_tray.menu import Contribution, Do, Item, menu_of
from moregpu_tray.view import Mood, View

_log = logging.getLogger(__name__)

REDRAW_S = 1.0
"""Between two changes of the icon: a redraw costs 2–17 ms, and nobody reads faster."""

COUNT_S = 60.0
"""Between two looks at what ran here; the menu may be that old."""

QUIT_S = 3.0
"""A process that has not ended by then is ended: pystray's X11 backend may hang."""

ANSWER_FIRST_S = 0.1
"""A tray that is told to quit answers first, while there is still somebody to answer."""

SETTLED_S = 5.0
"""After the start, memory that only the start needed is given back."""

HOUR_S = 3600.0
DAY_S = 86_400.0


class App:
    """One tray process."""

    def __init__(self, config: WorkerConfig, folder: Path, backend: TrayBackend, instance: Instance, log: Path):
        self._history = History(folder)
        self._core = Core(config, self._history, self._changed)
        self._backend = backend
        self._instance = instance
        self._log_file = log
        self._lock = threading.Lock()
        self._face: Face | None = None
        self._shown_at = 0.0
        self._later: threading.Timer | None = None
        self._contribution = Contribution()
        self._counted_at = 0.0
        self._before = self._core.view
        self._welcomed = self._core.has_joined
        self._quitting = threading.Event()
        self._asking = threading.Lock()
        self._choosing = threading.RLock()
        """One choice of the owner's at a time, until it is kept: two of them read what was before, and one was lost."""

    def run(self) -> None:
        """Until somebody quits. Called on the main thread."""
        for number in ending_signals():
            signal.signal(number, self._told_to_end)
        self._instance.serve(self.answer)
        self._core.start()
        self._show()
        try:
            self._backend.run(self.click, self._started)
        except Exception as error:  # noqa: BLE001 — of a bus, a panel, an X server: the worker goes on without an icon
            _log.warning("the icon ended: %s: %s", type(error).__name__, error)
        while not self._quitting.wait(HOUR_S):
            pass
        self._end()

    def quit(self) -> None:
        """Hand the work back and end. Returns at once; may be called in a signal handler."""
        if not self._quitting.is_set():
            threading.Thread(target=self._quit, name="quit").start()

    def _told_to_end(self, _number: int, _frame: FrameType | None) -> None:
        self.quit()

    # -- what is asked

    def click(self, item: Item) -> None:
        """The owner chose an entry. Slow ones run on a thread of their own: the menu always answers."""
        quick: dict[Do, Callable[[], None]] = {
            Do.PAUSE: self._core.pause,
            Do.PAUSE_HOUR: lambda: self._core.pause(HOUR_S),
            Do.PAUSE_RESTART: lambda: self._core.pause(until_restart=True),
            Do.RESUME: self._core.resume,
            Do.QUIT: self.quit,
        }
        slow: dict[Do, Callable[[], None]] = {
            Do.SHOW: self._tell_status,
            Do.CEILING: lambda: self._set_limits(ceiling=float(item.value or 0.0)),
            Do.SCHEDULE: lambda: self._set_limits(schedule=str(item.value)),
            Do.KIND: lambda: self._toggle_kind(str(item.value)),
            Do.FUNCTIONS: lambda: self._set_functions((str(item.value),) if item.value else ()),
            Do.FUNCTIONS_OF: lambda: self._toggle_functions_of(str(item.value)),
            Do.FUNCTIONS_ASK: self._ask_for_names,
            Do.LOG: self._show_log,
            Do.JOIN: self._ask_for_invite,
            Do.LEAVE: self._core.leave,
            Do.AUTOSTART: self._toggle_autostart,
        }
        if item.do is None:
            return
        if item.do in quick:
            quick[item.do]()
            self._save_soon()
        else:
            threading.Thread(target=self._guarded, args=(slow[item.do],), daemon=True).start()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a second launch, or a command such as `moregpu-tray pause`."""
        try:
            match request.get("do"):
                case "show":
                    self._tell_status()
                case "pause":
                    for_s = request.get("for_s")
                    self._core.pause(None if for_s is None else float(for_s))
                    self._save()
                case "resume":
                    self._core.resume()
                    self._save()
                case "join":
                    self._core.join(parse_invite(str(request.get("invite", ""))))
                case "leave":
                    self._core.leave()
                case "allow":
                    self._set_functions(tuple(map(str, request.get("functions", ()))))
                case "quit":
                    threading.Timer(ANSWER_FIRST_S, self.quit).start()
                case _:
                    pass
        except (MoreGPUError, ValueError, TypeError, OSError) as error:
            return {"error": str(error), "status": getattr(error, "exit_code", 1)}
        return self.report()

    def report(self) -> dict[str, Any]:
        """Everything that `status` shows."""
        view, now = self._core.view, time.time()
        return msgspec.to_builtins(
            {
                "mood": view.mood,
                "line": view.line,
                "view": view,
                "icon": self._backend.name,
                "pid": os.getpid(),
                "log": str(self._log_file),
                "ceiling": self._core.config.ceiling,
                "schedule": self._core.config.schedule,
                "functions": self._core.config.functions,
                "today": self._history.since(now - now % DAY_S),
                "month": self._history.since(now - 30 * DAY_S),
                "jobs": self._history.jobs_since(now - 30 * DAY_S),
                "hours": self._history.hours(),
            }
        )

    # -- the clicks that take longer

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except MoreGPUError as error:
            _log.warning("not done: %s", error)
            self._backend.notify("MoreGPU", clean(str(error), 500))
        except OSError as error:
            _log.warning("not done: %s", error)
            self._backend.notify("MoreGPU", f"That did not work: {error.strerror or error}")
        self._show()

    def _tell_status(self) -> None:
        view = self._core.view
        self._backend.notify(view.title, view.line[:1].upper() + view.line[1:])

    def _set_limits(self, *, ceiling: float | None = None, schedule: str | None = None) -> None:
        with self._choosing:
            self._core.set_limits(ceiling=ceiling, schedule=schedule)
            self._save()

    def _toggle_kind(self, kind: str) -> None:
        with self._choosing:
            allowed = set(KINDS if self._core.config.kinds is None else self._core.config.kinds) ^ {kind}
            self._core.set_kinds(None if allowed >= set(KINDS) else tuple(sorted(allowed)))
            self._save()

    def _set_functions(self, whose: tuple[str, ...]) -> None:
        with self._choosing:
            self._core.set_functions(whose)
            self._save()

    def _toggle_functions_of(self, name: str) -> None:
        with self._choosing:
            named = [each for each in self._core.config.functions if each != EVERYBODY]
            self._set_functions(tuple(each for each in named if each != name) if name in named else (*named, name))

    def _toggle_autostart(self) -> None:
        if autostart.is_enabled():
            autostart.disable()
        else:
            autostart.enable()

    def _show_log(self) -> None:
        opener = {"darwin": ["open"], "win32": ["cmd", "/c", "start", ""]}.get(sys.platform, ["xdg-open"])
        try:
            subprocess.Popen([*opener, str(self._log_file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:
            self._backend.notify("MoreGPU", f"The log is {self._log_file}")

    def _ask_for_invite(self) -> None:
        config = self._core.config
        settings = {"ceiling": config.ceiling, "schedule": config.schedule, "functions": config.functions}
        answer = self._asked("moregpu_tray.prompt", settings, "moregpu-tray join")
        if answer is not None:
            self._core.join(parse_invite(answer))

    def _ask_for_names(self) -> None:
        named = [name for name in self._core.config.functions if name != EVERYBODY]
        answer = self._asked("moregpu_tray.who", {"names": named}, "moregpu-tray allow NAME")
        if answer is not None:
            self._set_functions((answer,))

    def _asked(self, window: str, settings: dict[str, Any], instead: str) -> str | None:
        """Show a window: a process of its own, so that its toolkit leaves memory with it.

        None: the owner does not want to, or is being asked already. Raises `InvalidRequest` where none can be opened.
        """
        if not self._asking.acquire(blocking=False):
            return None
        try:
            done = subprocess.run(
                [sys.executable, "-m", window], input=msgspec.json.encode(settings), stdout=subprocess.PIPE, check=False
            )
        finally:
            self._asking.release()
        if done.returncode == 3:
            raise InvalidRequest("no window can be opened here", f"in a terminal, run: {instead}")
        return done.stdout.decode() if done.returncode == 0 else None

    def _save_soon(self) -> None:
        threading.Thread(target=self._guarded, args=(self._save,), daemon=True).start()

    def _save(self) -> None:
        """Keep what the owner chose."""
        with self._choosing:
            save(self._core.config)

    # -- showing

    def _started(self) -> None:
        _log.info("the tray runs; icon: %s", self._backend.name)
        later = threading.Timer(SETTLED_S, give_back)
        later.daemon = True
        later.start()
        self._show()

    def _changed(self, view: View) -> None:
        before, self._before = self._before, view
        if view.trouble and view.trouble != before.trouble:
            self._backend.notify("MoreGPU needs you", view.trouble)
        if view.status.state == "pending" and before.status.state != "pending":
            self._backend.notify(view.title, "The pool's admin must approve this machine first")
        if view.status.state in ("online", "paused") and not self._welcomed:
            self._welcomed = True
            self._backend.notify(view.title, f"This machine has joined as {view.status.name}. {_promise(view)}")
        if not view.joined:
            self._welcomed = False
        self._show()

    def _show(self) -> None:
        """Update the icon, but not too often: what changes meanwhile is shown a little later."""
        with self._lock:
            if self._quitting.is_set() or self._later is not None:
                return
            wait_s = self._shown_at + REDRAW_S - time.monotonic()
            if wait_s > 0.0:
                self._later = threading.Timer(wait_s, self._show_now)
                self._later.daemon = True
                self._later.start()
                return
        self._show_now()

    def _show_now(self) -> None:
        with self._lock:
            self._later = None
            self._shown_at = time.monotonic()
            face = self._face_of(self._core.view)
            if face == self._face:
                return
            self._face = face
        self._backend.update(face)

    def _face_of(self, view: View) -> Face:
        if time.monotonic() - self._counted_at > COUNT_S or not self._counted_at:
            self._counted_at, now = time.monotonic(), time.time()
            self._contribution = Contribution(
                today=self._history.since(now - now % DAY_S),
                month=self._history.since(now - 30 * DAY_S),
                jobs=tuple(self._history.jobs_since(now - 30 * DAY_S, 8)),
            )
        picture = Picture(mood=view.mood, sixteenths=_sixteenths(view))
        menu = menu_of(view, self._core.config, tuple(KINDS), self._contribution, autostart.is_enabled())
        return Face(picture=picture, title=view.title, tip=view.line, menu=menu)

    # -- the end

    def _quit(self) -> None:
        watchdog = threading.Timer(QUIT_S + 1.0, os._exit, [0])
        watchdog.daemon = True
        watchdog.start()
        self._core.stop()
        self._quitting.set()
        self._backend.stop()

    def _end(self) -> None:
        self._instance.close()
        logging.shutdown()


def _sixteenths(view: View) -> int:
    return round(view.status.duty * STEPS) if view.mood in (Mood.WORKING, Mood.YIELDING, Mood.IDLE) else 0


def _promise(view: View) -> str:
    lends = f"It lends up to {view.status.ceiling:.0%} of this machine and steps back when you use it."
    return f"{lends} {view.secrets[:1].upper()}{view.secrets[1:]}."
