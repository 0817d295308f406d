"""Limits that a process puts on itself, and on all that it starts, before it runs what it does not trust."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

FILES = 256


def apply(*, memory_bytes: int, processes: int, file_bytes: int) -> None:
    """Set the limits; none can be raised again. What all processes take together is watched from outside.

    `memory_bytes` is of one process: what it allocates, not what it only reserves. `processes` is of its user (in its
    own user namespace, where there is one). `file_bytes` is of the largest file, shared memory of results among them.
    """
    for kind, value in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ):
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    # A file that grows too large is an error of the write, not the end of the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def become(user: int, group: int) -> None:
    """Stop being root, for good."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def go_first() -> None:
    """When the machine's memory runs out, this process and its children are what the kernel ends."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        pass  # no such file here: then nobody is preferred


def hide() -> None:
    """Keep other processes of the same user out of this one's memory and descriptors; no new rights by any program."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def orphans_come_here() -> None:
    """Processes below this one whose parent ends become its children, so that none is lost sight of."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
