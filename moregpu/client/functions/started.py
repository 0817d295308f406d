"""A pool of this machine's own, from Python: `moregpu.start_coordinator()` and `moregpu.add_worker()`."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from types import TracebackType
from typing import IO, TYPE_CHECKING

from moregpu.errors import Unavailable

if TYPE_CHECKING:
    from moregpu.client.pool import Pool

START_S = 60.0
STOP_S = 10.0


class Started:
    """A process that was started here; it ends with `stop`, with its `with` block, or by itself."""

    def __init__(self, process: subprocess.Popen[bytes]):
        self.process = process

    def __enter__(self) -> Started:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ask it to end, and see to it."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_coordinator(*, port: int = 8787, host: str = "", state: str = "", name: str = "") -> Started:
    """Start a coordinator on this machine and wait until it answers; `moregpu.connect()` finds it.

    Raises `Unavailable` when it does not come up: `moregpu serve` in a terminal says why.
    """
    words = ["serve", "--quiet", "--json", "--port", str(port)]
    for flag, value in (("--host", host), ("--state", state), ("--name", name)):
        words += [flag, value] if value else []
    started = Started(_start(words, stdout=subprocess.PIPE))
    if _says_that_it_listens(started.process.stdout):
        return started
    started.stop()
    raise Unavailable("the coordinator did not come up", "`moregpu serve` says why")


def add_worker(
    pool: Pool, *, name: str = "", cores: int = 0, functions: bool | list[str] = True, state: str = ""
) -> Started:
    """Make this machine a worker of a pool that one administers.

    `functions`: whose may run on it; True: everybody's.
    """
    from moregpu.wire.api import InviteRequest

    words = ["join", "--yes", "--cores", str(cores)]
    if functions:
        words += ["--allow", "functions" if functions is True else f"functions={','.join(functions)}"]
    for flag, value in (("--name", name), ("--state", state)):
        words += [flag, value] if value else []
    return Started(_start(words, pool.invite(InviteRequest(owner=name)).line))


def _says_that_it_listens(told: IO[bytes] | None) -> bool:
    """Wait for its first line: a pool that answers on this machine may be another one. What comes after is let go."""
    first: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        if told is not None:
            with told:
                first.put(told.readline())
                for _ in told:
                    pass

    threading.Thread(target=read, name="coordinator's words", daemon=True).start()
    try:
        return b'"event":"listening"' in first.get(timeout=START_S)
    except queue.Empty:
        return False


def _start(words: list[str], given: str = "", stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "moregpu", *words],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
    )
    if process.stdin is not None:
        process.stdin.write(given.encode() + b"\n")
        process.stdin.close()
    return process
