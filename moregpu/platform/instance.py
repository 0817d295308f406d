"""One of a kind a user: the first process answers, a later one talks to it.

A lock that the system lets go when its holder dies (`flock`; on Windows the pipe itself, which only one process can
be the first to make), and a socket beside it that only this user can reach.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moregpu.platform import paths
from moregpu.platform.private import private_folder

if sys.platform == "win32" or TYPE_CHECKING:
    from multiprocessing.connection import Client, Listener
else:
    from moregpu.platform.calls import Client, Listener  # the same calls; the library would cost each tray a megabyte

_log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 1 << 20
ANSWER_S = 5.0
"""An answer that takes longer will not come."""

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def ask(name: str, request: dict[str, Any], timeout_s: float = ANSWER_S) -> dict[str, Any] | None:
    """Ask the one that runs; None when none does, or when it does not answer."""
    try:
        with Client(str(_address(name)), family=_FAMILY) as connection:
            connection.send_bytes(msgspec.json.encode(request))
            if not connection.poll(timeout_s):
                return None
            return msgspec.json.decode(connection.recv_bytes(MAX_MESSAGE_BYTES), type=dict[str, Any])
    except (OSError, EOFError, msgspec.MsgspecError):
        return None


class Instance:
    """The one that runs, until `close` or the end of the process."""

    def __init__(self, name: str, lock: int, listener: Listener):
        self._name = name
        self._lock = lock
        self._listener = listener
        self._closed = False

    @classmethod
    def claim(cls, name: str) -> Instance | None:
        """Become the one; None when there is one already. Raises `StateRefused` for a folder that is loose."""
        address = _address(name)
        lock = -1
        if sys.platform != "win32":
            import fcntl

            private_folder(address.parent)
            lock = os.open(address.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return None
            address.unlink(missing_ok=True)  # left by one that was killed: the lock is ours
        try:
            return cls(name, lock, Listener(str(address), family=_FAMILY))
        except OSError:
            if sys.platform == "win32":  # the pipe exists: somebody was first
                return None
            os.close(lock)
            raise

    def serve(self, answer: Answer) -> None:
        """Answer on a thread of its own; `answer` is called there."""
        threading.Thread(target=self._serve, args=(answer,), name="instance", daemon=True).start()

    def close(self) -> None:
        """Let another be the one."""
        self._closed = True
        self._listener.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _serve(self, answer: Answer) -> None:
        while not self._closed:
            try:
                with self._listener.accept() as connection:
                    self._answer(connection, answer)
            except (OSError, EOFError, msgspec.MsgspecError) as error:
                if not self._closed:
                    _log.debug("somebody asked and went: %s", error)

    @staticmethod
    def _answer(connection: Any, answer: Answer) -> None:
        if connection.poll(ANSWER_S):  # one that says nothing holds nobody up for long
            request = msgspec.json.decode(connection.recv_bytes(MAX_MESSAGE_BYTES), type=dict[str, Any])
            connection.send_bytes(msgspec.json.encode(answer(request)))


_FAMILY = "AF_PIPE" if sys.platform == "win32" else "AF_UNIX"


def _address(name: str) -> Path:
    """Where it listens. Short: a Unix socket's path has 107 bytes."""
    home = paths.home()
    whose = name if home is None else f"{name}-{hashlib.blake2b(str(home).encode(), digest_size=4).hexdigest()}"
    if sys.platform == "win32":
        return Path(rf"\\.\pipe\moregpu-{os.environ.get('USERNAME', '')}-{whose}")
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    base = Path(folder if os.access(folder, os.W_OK) else "/tmp")  # noqa: S108 — what is made in it is checked: 0700, ours
    return base / f"moregpu-{os.getuid()}" / f"{whose}.socket"
