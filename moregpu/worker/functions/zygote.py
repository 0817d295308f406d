"""The zygote: the first process in a sandbox. Confined already, it imports what children will want, and forks them.

One thread, and nothing of a stranger's runs in it but the modules that a job's environment holds. Under bubblewrap it
is process 1 of its namespace: nothing inside can signal it, and with it everything ends. Under Landlock its children
are put into a domain of their own, for the same.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from moregpu.worker.functions import child
from moregpu.worker.functions.frames import (
    Clear,
    Cleared,
    Ended,
    Entered,
    Fork,
    Frames,
    FromZygote,
    Signal,
    frame,
    to_zygote,
)
from moregpu.worker.sandbox import landlock, limits

_READ_BYTES = 1 << 16
_FOLDERS = ("/tmp", "/run", "/var", "/home", "/dev/shm")  # noqa: S108 — a sandbox's own


def main(control: str, level: str, scratch: str, *imports: str) -> NoReturn:
    """Serve the agent over the descriptor of that number until it goes."""
    control_fd = int(control)
    for fd in range(3, 1024):
        if fd != control_fd:
            with contextlib.suppress(OSError):
                os.close(fd)
    try:
        zygote = Zygote(socket.socket(fileno=control_fd), level, scratch)
        zygote.begin(list(imports))
        zygote.serve()
    finally:
        os._exit(0)


class Zygote:
    """One sandbox."""

    def __init__(self, control: socket.socket, level: str, scratch: str):
        self._control = control
        self._level = level
        self._scratch = scratch
        self._frames = Frames()
        self._children: dict[int, int] = {}  # pid → number
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Do what the agent asks; collect children that end."""
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._control, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._collect()
            if self._control in ready and not self._listen():
                break
        if self._level != "none":
            self._kill_all()

    def _listen(self) -> bool:
        # Descriptors come with the frame that speaks of them, so each is read with what it belongs to.
        data, fds, _, _ = socket.recv_fds(self._control, _READ_BYTES, 3)
        if not data:
            return False
        for head, _ in self._frames.feed(data):
            match to_zygote(head):
                case Fork(number=number):
                    self._fork(number, fds)
                case Signal(signal=number):
                    self._signal_all(number)
                case Clear(number=number, files=files):
                    self._kill_all()
                    if files:
                        self._empty()
                    self._say(Cleared(number=number))
        return True

    def begin(self, imports: list[str]) -> None:
        """Load what children will want, and say that they may be made."""
        for name in imports:
            with contextlib.suppress(Exception):  # the function that needs it will say so
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # what is there now stays in pages that all children share
        self._say(Entered(version=f"Python {sys.version.split()[0]}"))

    # -- children

    def _fork(self, number: int, fds: list[int]) -> None:
        stream, passing, journal = fds
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            os.close(self._woken)
            os.close(self._wake)
            if self._level == "landlock":
                landlock.isolate_from_parent()
            os.setpgid(0, 0)
            os.nice(19 - os.nice(0))
            limits.hide()
            child.serve(socket.socket(fileno=stream), socket.socket(fileno=passing), journal)
        for fd in fds:
            os.close(fd)
        self._children[pid] = number

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._ended(pid, status)

    def _ended(self, pid: int, status: int) -> None:
        number = self._children.pop(pid, None)  # others are orphans that were left to us
        if number is not None:
            self._say(Ended(number=number, status=os.waitstatus_to_exitcode(status)))

    # -- all of them

    def _signal_all(self, number: int) -> None:
        """To every process but this one: the namespace, or Landlock's scope, ends where the sandbox does."""
        if self._level == "none":
            for pid in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(-1, number)

    def _kill_all(self) -> None:
        while True:
            self._signal_all(signal.SIGKILL)
            try:
                self._ended(*os.waitpid(-1, 0))
            except ChildProcessError:
                return

    def _empty(self) -> None:
        if self._level == "none":
            return
        folders = _FOLDERS if self._level == "bubblewrap" else (self._scratch,)
        for folder in folders:
            for path in Path(folder).glob("*"):
                with contextlib.suppress(OSError):
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()

    def _say(self, header: FromZygote) -> None:
        self._control.sendall(frame(header))


def _wake_up(number: int, frame: object) -> None:
    """A child ended: the descriptor that Python writes to wakes the loop; a handler must be there for it."""
