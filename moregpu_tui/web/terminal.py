"""A console in a pseudo-terminal of its own: what a terminal emulator is to it, the page is through this."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import Mapping, Sequence

READ_BYTES = 1 << 16
BATCH_BYTES = 1 << 18
"""A screen comes in pieces of 4 KiB; what is there already goes as one message."""

MAX_WAITING_BYTES = 1 << 22
"""Of what was typed or pasted, and the console has not read."""

END_S = 5.0
"""A console restores its terminal and leaves within three seconds of being told; after five it is killed."""

_TOLD_ABOUT_ITS_TERMINAL = ("COLUMNS", "LINES", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TMUX", "STY", "VTE_VERSION")


class Terminal:
    """The server's end of a console's terminal. `end` it."""

    def __init__(self, command: Sequence[str], columns: int, rows: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self.resize(columns, rows)
        try:
            self.pid = _spawn(command, os.ttyname(slave))
        except OSError:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        self._waiting = bytearray()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        threading.Thread(target=self._wait, name=f"console-{self.pid}", daemon=True).start()

    async def read(self) -> bytes:
        """What the console drew since; b"" when it has closed its terminal."""
        readable = asyncio.Event()
        self._loop.add_reader(self._master, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(self._master)
        drawn = bytearray()
        with contextlib.suppress(OSError):  # EAGAIN: that was all; EIO: the console's end is closed
            while len(drawn) < BATCH_BYTES and (data := os.read(self._master, READ_BYTES)):
                drawn += data
        return bytes(drawn)

    def write(self, data: bytes) -> bool:
        """Type something. False when the console does not read and too much waits."""
        if len(self._waiting) + len(data) > MAX_WAITING_BYTES:
            return False
        self._waiting += data
        self._write()
        return True

    def resize(self, columns: int, rows: int) -> None:
        """Another size; the system tells the console."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def status(self) -> int:
        """How the console ended: its exit status, 128 and more by a signal."""
        return await asyncio.shield(self._ended)

    async def end(self) -> None:
        """Tell the console that its terminal is gone, wait for it, and leave nothing of it behind."""
        drain = asyncio.ensure_future(self._drain())  # it may wait for its last screen to be read
        try:
            if not self._ended.done():
                _signal(self.pid, signal.SIGHUP)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.status(), END_S)
        finally:
            drain.cancel()
            self.kill()

    def kill(self) -> None:
        """At once. What of its process group is left goes too."""
        _signal(self.pid, signal.SIGKILL)
        if self._master >= 0:
            self._loop.remove_writer(self._master)
            self._loop.remove_reader(self._master)
            os.close(self._master)
            self._master = -1

    async def _drain(self) -> None:
        while await self.read():
            pass

    def _write(self) -> None:
        try:
            del self._waiting[: os.write(self._master, self._waiting)]
        except BlockingIOError:
            pass
        except OSError:  # the console is gone
            self._waiting.clear()
        if self._waiting:
            self._loop.add_writer(self._master, self._write)
        else:
            self._loop.remove_writer(self._master)

    def _wait(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ended.set_result, code if code >= 0 else 128 - code)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """What the page's terminal is, instead of the one that the server was started in."""
    kept = {name: value for name, value in given.items() if name not in _TOLD_ABOUT_ITS_TERMINAL}
    # The page shows every sign, whatever the locale of the server's terminal says.
    return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUTF8": "1"}


def _spawn(command: Sequence[str], terminal: str) -> int:
    """Start a session of its own on a terminal: the first that it opens controls it.

    So the system itself tells it when this process is gone, however that ended, and when the size changes.
    """
    return os.posix_spawn(
        command[0],
        [*command],
        environment(os.environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGQUIT),
    )


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
