"""A child process as the agent holds it: started, spoken to, paused, ended.

It is one half of a seam. What is given to a child, what its silence means, and who is blamed for its end are decided by
its `ChildOwner`; here is only the process, the socket pair that frames travel on, and the second one that the file
descriptors of regions travel on. A child that does not obey a pause is stopped by signal, so that pause holds even in a
hung kernel.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple, Protocol, cast

import msgspec

from moregpu.worker.frames import Beat, Forget, FrameReader, FromChild, Ready, RunTask, SetDuty, StopTask, frame
from moregpu.worker.memory import Region, pass_region

_log = logging.getLogger(__name__)

PAUSE_S = 0.1
"""A child that has not paused by then is stopped by signal: pause works even in a hung kernel."""

END_S = 2.0
"""A child that has closed its socket ends by then, or nobody can say how: on a busy machine that takes a while."""

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS", "LP_NUM_THREADS",
)  # fmt: skip
"""What tells BLAS, and Mesa's software adapter, how many cores are lent."""


class ChildOwner(Protocol):
    """Who holds the child: decides what it is given, and what its end means."""

    @property
    def unanswered(self) -> int:
        """Tasks the child has in hand."""
        ...

    def heard(self, child: ChildProcess, header: FromChild, raw: bytes) -> None:
        """Take one frame of the child."""
        ...

    def child_gone(self, child: ChildProcess) -> None:
        """The child closed its socket: it crashed, or was killed."""
        ...


class Spawned(NamedTuple):
    """A child that was just started, and our ends of its sockets."""

    process: subprocess.Popen[bytes]
    stream: socket.socket
    passing: socket.socket


def spawn(module: str, facts: Iterable[object], *, cores: int, is_quiet: bool) -> Spawned:
    """Start `python -m module PARENT STREAM PASSING FACTS…`, where the first three are our pid and its descriptors.

    Must be called on a thread that lives as long as the agent: the child dies with it. `is_quiet`: what it prints is
    thrown away. Raises `OSError` where no process can be started.
    """
    ours, theirs = socket.socketpair()
    passing, received = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    kept = ("MOREGPU_KERNEL_CACHE",)
    environment = {key: value for key, value in os.environ.items() if key in kept or not key.startswith("MOREGPU")}
    environment |= dict.fromkeys(THREAD_VARIABLES, str(cores))
    with theirs, received:
        fds = (theirs.fileno(), received.fileno())
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, (os.getpid(), *fds, *facts))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if is_quiet else None,
            pass_fds=fds,
            env=environment,
        )
    return Spawned(process, ours, passing)


class ChildProcess(asyncio.Protocol):
    """One child process and the sockets to it."""

    def __init__(self, owner: ChildOwner, spawned: Spawned, loop: asyncio.AbstractEventLoop):
        """Hold a child that was just started; what is sent before it listens waits in the socket."""
        self.ready = False
        self.frozen = False  # by SIGSTOP, to make a pause hold
        self.started_at = self.heard_at = self.woken_at = loop.time()
        self._owner = owner
        self._loop = loop
        self._duty = 1.0
        self._paused = False
        self._pause_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []  # frames until the transport is there
        self._reader = FrameReader()
        self._passed: set[int] = set()
        self.process, self._passing = spawned.process, spawned.passing
        self._connecting = loop.create_task(self._connect(spawned.stream))

    async def _connect(self, ours: socket.socket) -> None:
        await self._loop.create_unix_connection(lambda: self, sock=ours)

    # -- to it

    def give(self, task: RunTask, raw: bytes, regions: Iterable[Region]) -> None:
        """Send a task, and the descriptors of its regions that the child has not yet."""
        for region in regions:
            if region.number in self._passed:
                continue
            try:
                pass_region(self._passing, region)
            except OSError:  # it has just ended: its successor is given the task
                self._loop.call_soon(self._owner.child_gone, self)
                return
            self._passed.add(region.number)
        self.send(task, raw)

    def forget(self, regions: list[int]) -> None:
        """Tell it that these regions are closed."""
        self._passed.difference_update(regions)
        self.send(Forget(regions=regions))

    def set_duty(self, duty: float) -> None:
        """Tell it its share; a pause that it does not obey in time is made to hold by signal."""
        self._duty = duty
        self.send(SetDuty(duty=duty))
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
        if duty > 0.0:
            self._paused = False
            self.wake()
        elif not self.frozen:
            self._pause_timer = self._loop.call_later(PAUSE_S, self._freeze)

    def send(self, header: RunTask | StopTask | SetDuty | Forget, raw: bytes = b"") -> None:
        """Send a frame."""
        data = frame(header, raw)
        if self._transport is None:
            self._early.append(data)
        else:
            self._transport.write(data)

    def wake(self) -> None:
        """Let a child that was stopped by signal go on."""
        if self.frozen:
            self.frozen = False
            self.woken_at = self._loop.time()
            self.process.send_signal(signal.SIGCONT)

    def _freeze(self) -> None:
        """It works on though it should pause: stop it from outside. An idle child does nothing anyway."""
        self._pause_timer = None
        if self.ready and not self._paused and self._owner.unanswered and self.process.poll() is None:
            self.frozen = True
            self.process.send_signal(signal.SIGSTOP)

    # -- from it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what waited."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its bases
        self._transport.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        """Pass on the frames that are complete."""
        self.heard_at = self._loop.time()
        self._reader.feed(data)
        try:
            for header, raw in self._reader.from_child():
                if isinstance(header, Ready):
                    self.ready = True
                elif isinstance(header, Beat):
                    self._paused = header.paused
                self._owner.heard(self, header, raw)
        except (msgspec.MsgspecError, ValueError):
            _log.exception("the compute process spoke nonsense")
            self.kill()
            self._owner.child_gone(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that it is gone, as soon as it can be told how it ended."""
        del exc
        self._transport = None
        self._until_ended(self._loop.time() + END_S)

    def _until_ended(self, end_at: float) -> None:
        if self.process.poll() is None and self._loop.time() < end_at:
            self._loop.call_later(0.01, self._until_ended, end_at)
        else:
            self._owner.child_gone(self)

    # -- its end

    def verdict(self) -> str:
        """How it ended, in words."""
        code = self.process.poll()
        if code is None:
            return "still ending"
        if code >= 0:
            return f"exit status {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    def kill(self) -> None:
        """End it at once; it is collected as soon as it is gone."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self.process.kill()  # also ends a process that is stopped
        self._passing.close()
        self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._collect()

    def _collect(self) -> None:
        if self.process.poll() is None:
            self._loop.call_later(0.05, self._collect)

    async def end(self) -> None:
        """End it and wait until it is gone."""
        self.kill()
        await self._loop.run_in_executor(None, self.process.wait)
