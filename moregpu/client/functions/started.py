"""A pool of this machine's own, from Python: `moregpu.start_coordinator()` and `moregpu.add_worker()`."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from moregpu.errors import Unavailable, Unreachable

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
    from moregpu.client.pool import connect

    words = ["serve", "--quiet", "--port", str(port)]
    for flag, value in (("--host", host), ("--state", state), ("--name", name)):
        words += [flag, value] if value else []
    started = Started(_start(words))
    for _ in range(int(START_S / 0.2)):
        if started.process.poll() is not None:
            break
        try:
            connect(profile="local", timeout_s=0.2).close()
        except Unreachable:
            continue
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


def _start(words: list[str], given: str = "") -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "moregpu", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if process.stdin is not None:
        process.stdin.write(given.encode() + b"\n")
        process.stdin.close()
    return process
