"""Keeps an agent running: starts it in a process of its own, and again when it ends as it should not.

The supervisor holds nothing and imports little, so there is nothing in it that could break. Agent and compute children
die with it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from moregpu.platform.signals import ending_signals
from moregpu.worker.config import WorkerConfig
from moregpu.worker.enrol import enrol
from moregpu.worker.home import WorkerHome, worker_folder

if TYPE_CHECKING:
    from collections.abc import Generator

    from moregpu.wire.invite import Invite

FINAL = 64
"""An agent adds it to the exit status of an error that starting again would not mend."""

FIRST_APART_S = 0.1
MAX_APART_S = 30.0
HEALTHY_S = 30.0
"""An agent that ran for so long is started again at once."""

POLL_S = 0.25
"""Period of the look at an agent that was asked to leave, and where the system cannot tell that a process ended."""

STOP_S = 4.0
"""An agent that does not leave by then is killed; it hands its work back within 2."""


def run_worker(config: WorkerConfig, invite: Invite | None = None, *, stop: threading.Event | None = None) -> int:
    """Run a worker until it is told to stop; returns an exit status (0, or that of the error which ended it).

    Args:
        config: how the worker is set up.
        invite: for a worker that has not joined yet.
        stop: ends it from another thread. On the main thread the signals that ask a process to end do, too.

    Raises:
        MoreGPUError: what is wrong before anything runs (`NotConfigured`, `StateRefused`, `InvalidRequest`).
    """
    folder = worker_folder(config.state)
    if invite is not None:
        enrol(folder, invite)
    else:
        WorkerHome.existing(folder).close()
    return Supervisor(config, stop).run()


class Supervisor:
    """Starts agents, one after another."""

    def __init__(self, config: WorkerConfig, stop: threading.Event | None = None):
        self._config = msgspec.json.encode(config)
        self._stop = stop
        self._asked = False
        self._bell, self._rope = os.pipe()
        """Wakes the one wait there is: a signal handler must take no lock, and a wait must not poll for hours."""
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Until an agent ends for good, or somebody asks to stop."""
        if self._stop is not None:
            threading.Thread(target=self._pass_on, args=(self._stop,), name="stop", daemon=True).start()
        with _signals_call(self._ask):
            return self._keep_running()

    def _pass_on(self, stop: threading.Event) -> None:
        stop.wait()
        self._ask()

    def _ask(self) -> None:
        self._asked = True
        os.write(self._rope, b".")

    def _keep_running(self) -> int:
        pace = Pace()
        while True:
            began = time.monotonic()
            status = self._run_agent()
            if self._asked or status == 0:
                return 0
            if FINAL < status < FINAL + 64:
                return status - FINAL
            delay_s = pace.after(time.monotonic() - began)
            sys.stderr.write(f"moregpu: the worker's agent ended ({_verdict(status)}); starting it again\n")
            sys.stderr.flush()
            select.select([self._bell], [], [], delay_s)
            if self._asked:
                return 0

    def _run_agent(self) -> int:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moregpu.worker.process", str(os.getpid())], stdin=subprocess.PIPE
        )
        try:
            assert self.process.stdin is not None  # noqa: S101 — for the type
            with self.process.stdin as settings:
                settings.write(self._config)
        except BrokenPipeError:
            pass  # it died at once; its status says why
        return self._wait(self.process)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for its end; pass a request to stop on, and insist on it after a while."""
        end = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
        kill_at: float | None = None
        try:
            while (status := process.poll()) is None:
                if self._asked and kill_at is None:
                    kill_at = time.monotonic() + STOP_S
                    process.terminate()
                elif kill_at is not None and time.monotonic() >= kill_at:
                    process.kill()
                events = [] if self._asked else [self._bell]
                patience_s = POLL_S if end is None or self._asked else None
                select.select([*events, *([end] if end is not None else [])], [], [], patience_s)
            return status
        finally:
            if end is not None:
                os.close(end)


class Pace:
    """How soon an agent is started again: the more of them ended early, the further apart two starts are.

    Starts, not an end and a start: what costs the owner's machine is a start, and an agent that worked for a while
    before it was killed is missed by those whose tasks it had.
    """

    def __init__(self) -> None:
        self._apart_s = FIRST_APART_S

    def after(self, lived_s: float) -> float:
        """Seconds to wait after the end of an agent that lived so long."""
        self._apart_s = FIRST_APART_S if lived_s > HEALTHY_S else min(2 * self._apart_s, MAX_APART_S)
        return max(0.0, self._apart_s - lived_s)


def _verdict(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


@contextmanager
def _signals_call(ask: Callable[[], None]) -> Generator[None]:
    """On the main thread, have the signals that ask a process to end call `ask`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        ask()

    before = {number: signal.signal(number, handle) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
