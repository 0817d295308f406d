"""Landlock by raw system calls: what a process may touch of files, TCP ports, abstract sockets and other processes.

For machines where unprivileged user namespaces are off. It stops neither UDP nor Unix sockets that have a path, so the
filter of system calls then denies sockets altogether (`seccomp.program(sockets=False)`).
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every processor
_VERSION = 1

NEEDED = 6
"""The first version that confines signals and abstract sockets, too (Linux 6.12)."""

_EXECUTE, _READ_FILE, _READ_DIR, _WRITE_FILE = 1, 4, 8, 2
_FILES = (1 << 16) - 1  # LANDLOCK_ACCESS_FS_EXECUTE … LANDLOCK_ACCESS_FS_IOCTL_DEV
_OF_A_FILE = _EXECUTE | _READ_FILE | _WRITE_FILE | (1 << 14) | (1 << 15)  # the others are a folder's
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract Unix sockets, signals


def version() -> int:
    """The kernel's version of Landlock; 0 where there is none."""
    return max(0, _libc().syscall(_CREATE, None, 0, _VERSION))


def restrict(*, read: Iterable[str], write: Iterable[str], devices: Iterable[str] = ()) -> None:
    """Confine this process and all that it starts, for good, to these paths; paths that do not exist are left out.

    No TCP, no abstract sockets, no signals to processes outside. Raises `OSError` where it cannot be had; then nothing
    is confined.
    """
    libc = _libc()
    attributes = struct.pack("QQQ", _FILES, _TCP, _SCOPES)
    rules = _checked(libc.syscall(_CREATE, attributes, len(attributes), 0))
    try:
        for paths, access in ((read, _READ), (write, _FILES), (devices, _READ_FILE | _WRITE_FILE)):
            for path in paths:
                if Path(path).exists():
                    _allow(libc, rules, path, access)
        _checked(libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
        _checked(libc.syscall(_RESTRICT, rules, 0))
    finally:
        os.close(rules)


def isolate_from_parent() -> None:
    """Put this process into a domain of its own within its parent's: it can signal neither parent nor siblings."""
    libc = _libc()
    attributes = struct.pack("QQQ", 0, 0, _SCOPES)
    rules = _checked(libc.syscall(_CREATE, attributes, len(attributes), 0))
    try:
        _checked(libc.syscall(_RESTRICT, rules, 0))
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, access: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        allowed = access if Path(path).is_dir() else access & _OF_A_FILE
        _checked(libc.syscall(_ADD, rules, 1, struct.pack("=Qi", allowed, fd), 0))
    finally:
        os.close(fd)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
