"""Many light workers as a few processes, and what they say of themselves."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

import msgspec
import psutil

from moregpu.cli.loopback import LoopbackPool
from moregpu.wire.api import InviteRequest

_LOOK_S = 0.02

INVITED_TOGETHER = 2_500
"""Workers of one invite."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """How light workers are: one process's line, or the sum of all."""

    online: int = 0
    accepted: int = 0
    last_welcome: float = 0.0  # UTC epoch seconds
    trips: int = 0
    p99_s: float = 0.0  # of heartbeats' round trips; over processes, the worst
    at: float = 0.0


class Crowd:
    """Starts light workers against a pool; a context manager that ends them."""

    def __init__(self, local: LoopbackPool, workers: int, processes: int = 1):
        self._said = [Said() for _ in range(processes)]
        self._processes: list[subprocess.Popen[str]] = []
        for index in range(processes):
            count = workers // processes + (index < workers % processes)
            invites = _invites(local, count)
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.light",
                    f"127.0.0.1:{local.port}",
                    str(count),
                    str(index * 100_000),
                    str(len(invites)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._processes.append(process)
            assert process.stdin is not None
            process.stdin.write("".join(f"{line}\n" for line in invites))
            process.stdin.flush()
            threading.Thread(target=self._listen, args=(index, process), daemon=True).start()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    @property
    def said(self) -> Said:
        """All together, as of the latest line of the slowest."""
        return Said(
            online=sum(each.online for each in self._said),
            accepted=sum(each.accepted for each in self._said),
            last_welcome=max(each.last_welcome for each in self._said),
            trips=sum(each.trips for each in self._said),
            p99_s=max(each.p99_s for each in self._said),
            at=min(each.at for each in self._said),
        )

    def cpu_s(self) -> float:
        """Seconds of CPU that all processes took."""
        return sum(sum(psutil.Process(process.pid).cpu_times()[:2]) for process in self._processes)

    def wait(self, condition: Callable[[Said], bool], limit_s: float) -> Said:
        """What they say once the condition holds. Raises `TimeoutError`."""
        until = time.monotonic() + limit_s
        while not condition(said := self.said):
            if time.monotonic() > until:
                raise TimeoutError(f"after {limit_s:g} s: {said}")
            time.sleep(_LOOK_S)
        return said

    def _listen(self, index: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said[index] = msgspec.json.decode(line, type=Said)


def _invites(local: LoopbackPool, workers: int) -> list[str]:
    """Lines, each for `INVITED_TOGETHER` workers."""
    request = InviteRequest(uses=INVITED_TOGETHER, auto_approve=True, expires_s=3600.0)
    with local.connect() as pool:
        return [pool.invite(request).line for _ in range(0, workers, INVITED_TOGETHER)]
