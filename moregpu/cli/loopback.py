"""A whole pool of processes on this machine's loopback, for the demo, the benchmarks and the tests of the road.

Everything is real: the same commands that a person types, in a home of their own. All that was started is stopped,
however the `with` block ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from moregpu.client.access import Access, find_access
from moregpu.client.pool import Pool, connect
from moregpu.errors import MoreGPUError, NotConfigured, StateRefused, Unavailable, Unreachable
from moregpu.platform.private import private_folder
from moregpu.platform.signals import ending_signals
from moregpu.wire.api import InviteRequest, WorkerView

START_S = 60.0
"""Until a process must answer; a machine with two busy cores needs some of it."""

STOP_S = 10.0
_LOOK_S = 0.05


class LoopbackPool:
    """One coordinator and any number of workers, each a process. Use it as a context manager."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None):
        """`home` becomes MOREGPU_HOME of all processes. `environment` is added to theirs."""
        self.home = private_folder(home)
        self.port = free_port()
        self.coordinator: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MOREGPU_")}
        self._environment = {
            **kept,
            "MOREGPU_HOME": str(home),
            "MOREGPU_SECRETS": "file",
            **(environment or {}),
        }

    def __enter__(self) -> LoopbackPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def state(self) -> Path:
        """The coordinator's state folder."""
        return self.home / "state" / "pool"

    def start_coordinator(self, *options: str) -> None:
        """Start it and wait until it answers. After a kill: start it again, on the same port and state."""
        self.coordinator = self._start(
            "coordinator", ["serve", "--port", str(self.port), "--state", str(self.state), *options]
        )
        self._until("the coordinator answers", self._answers, self.coordinator, "coordinator")

    def start_worker(self, name: str, *options: str, cores: int = 1, invite: str | None = None) -> None:
        """Start a worker that joins by an invite of its own (or joins again from its saved state)."""
        state = self.home / "state" / f"worker-{name}"
        if invite is None and not state.exists():
            with self.connect() as pool:
                invite = pool.invite(InviteRequest(owner=name)).line
        self.workers[name] = self._start(
            name,
            ["join", "--name", name, "--cores", str(cores), "--state", str(state), "--no-yield", *options],
            given=invite or "",
        )

    def wait_for_workers(self, *names: str) -> list[WorkerView]:
        """Wait until these workers are online and measured; returns how the coordinator sees them."""
        wanted = set(names or self.workers)
        found: list[WorkerView] = []

        def online() -> bool:
            found[:] = [worker for worker in pool.workers() if worker.name in wanted and worker.state == "online"]
            return len(found) == len(wanted) and all(worker.reason != "being measured" for worker in found)

        with self.connect() as pool:
            for name in wanted:
                self._until(f"worker {name} is online", online, self.workers.get(name), name)
        return found

    def access(self) -> Access:
        """How to reach it as its admin: the profile that `serve` saved."""
        with _environment_of(self._environment):
            return find_access(profile="local")

    def connect(self) -> Pool:
        """Connect as its admin."""
        with _environment_of(self._environment):
            return connect(profile="local")

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run one command against it, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "moregpu", *arguments],
            input=given,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_S * 2,
        )

    def kill_coordinator(self) -> None:
        """End it by SIGKILL, with all its processes, as a power cut would."""
        if self.coordinator is not None:
            _kill(self.coordinator)

    def kill_worker(self, name: str) -> None:
        """End a worker by SIGKILL, with all its processes."""
        _kill(self.workers.pop(name))

    def stop(self) -> None:
        """Ask all to stop, workers first; end those that do not, and whatever they left behind."""
        processes = self._started[::-1]
        for process in processes:
            if process.poll() is None:
                process.terminate()
        until = time.monotonic() + STOP_S
        for process in processes:
            while not _has_ended(process) and time.monotonic() < until:
                time.sleep(_LOOK_S / 5)
            _kill(process)
        self._started.clear()
        self.workers.clear()
        self.coordinator = None

    def log(self, name: str) -> str:
        """What a process printed: `coordinator`, or a worker's name."""
        return self._log_path(name).read_text(errors="replace")

    def _log_path(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _start(self, name: str, arguments: Sequence[str], given: str = "") -> subprocess.Popen[bytes]:
        with self._log_path(name).open("ab") as log, _signals_held():
            process = subprocess.Popen(
                [sys.executable, "-m", "moregpu", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # a Ctrl-C in this terminal is ours to handle, in order
            )
            self._started.append(process)
        if process.stdin is not None:
            try:
                process.stdin.write(given.encode() + b"\n" if given else b"")
                process.stdin.close()
            except BrokenPipeError:  # it ended at once; its log says why
                pass
        return process

    def _answers(self) -> bool:
        """Whether the coordinator serves the profile that it saved."""
        try:
            with _environment_of(self._environment):
                connect(profile="local", timeout_s=0.0).close()
        except (NotConfigured, StateRefused, Unreachable, Unavailable):
            return False
        return True

    def _until(
        self, what: str, condition: Callable[[], bool], process: subprocess.Popen[bytes] | None, name: str
    ) -> None:
        """Wait for a condition, as long as the process that is to bring it about lives."""
        until = time.monotonic() + START_S
        while not condition():
            ended = process is not None and process.poll() is not None
            if ended or time.monotonic() > until:
                said = "\n".join(self.log(name).splitlines()[-8:])
                reason = "ended" if ended else f"waited {START_S:.0f} s"
                raise MoreGPUError(f"{what}: {reason}. It said:\n{said}")
            time.sleep(_LOOK_S)


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended; it is not reaped, so that its number still names its group and nobody else's."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started; one that was reaped before took its own with it."""
    if process.returncode is None:
        if hasattr(os, "killpg"):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        else:
            process.kill()
    process.wait()


@contextmanager
def _signals_held() -> Generator[None]:
    """Let signals wait until what was started is also known, so that whoever stops knows what to stop."""
    if threading.current_thread() is not threading.main_thread():  # signals interrupt the main thread only
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _environment_of(environment: Mapping[str, str]) -> Generator[None]:
    """Find profiles where that environment keeps them."""
    names = [name for name in {*os.environ, *environment} if name.startswith("MOREGPU_")]
    before = {name: os.environ.get(name) for name in names}
    try:
        for name in names:
            if name in environment:
                os.environ[name] = environment[name]
            else:
                del os.environ[name]
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
