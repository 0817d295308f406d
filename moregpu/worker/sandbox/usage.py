"""What a sandbox takes, seen from outside: memory of all its processes, and files where no tmpfs bounds them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def resident_bytes(pid: int) -> tuple[int, int]:
    """Memory that this process and all below it hold: their own, and what they share without a file behind it.

    The second counts a page once for each process that looked at it; inputs and results, where they are mapped, too.
    """
    own = shared = 0
    for each in family(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{each}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    own += int(line.split()[1]) << 10
                elif line.startswith("RssShmem:"):
                    shared += int(line.split()[1]) << 10
                    break
    return own, shared


def family(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for each in found:  # grows while it is walked
        with contextlib.suppress(OSError, ValueError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def counted_beside(isolation: str, user: int | None) -> int:
    """Threads that count against a sandbox's limit of processes and are not its own.

    None only where it has a user namespace, in which the count begins at nothing. `user`: whose it is, where not ours.
    """
    if isolation == "bubblewrap" and user is None:
        return 0
    return tasks_of(os.getuid() if user is None else user)


def tasks_of(user: int) -> int:
    """Threads of all processes of a user."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == user or _owner(process) == user:
                total += sum(1 for _ in (process / "task").iterdir())
    return total


def _owner(process: Path) -> int:
    """Whose process it is, also where it hides (then its folder is root's)."""
    for line in (process / "status").read_text().splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return -1


def folder_bytes(folder: Path) -> int:
    """What the files below a folder take on disk."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_blocks * 512  # noqa: PTH118 — half the time of Path
    return total
