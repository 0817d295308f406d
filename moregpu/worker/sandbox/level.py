"""What confines user code on this machine, and why nothing better does."""

from __future__ import annotations

import os
import pwd
import stat
import sys
from pathlib import Path

import msgspec

from moregpu.worker.sandbox import bubblewrap, landlock
from moregpu.worker.sandbox.box import Isolation, Runtime, code_folder

USER = "moregpu-jobs"
"""The user that functions become where the worker is root's: `useradd --system moregpu-jobs` makes it."""

USER_VARIABLE = "MOREGPU_FUNCTIONS_USER"


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """Whose processes functions are; no number: the worker's own user."""

    user: int | None = None
    group: int | None = None
    trouble: str = ""  # why there is nobody


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    isolation: Isolation
    why: tuple[str, ...]  # what was tried, in words for the owner
    who: Who = Who()
    has_python: bool = True  # that functions can run on; without one they stay off, confined or not


def whose() -> Who:
    """The user that functions run as: our own, or, where that is root, one that exists for this."""
    if os.geteuid() != 0:
        return Who()
    name = os.environ.get(USER_VARIABLE, USER)
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        user, group = entry.pw_uid, entry.pw_gid
    except KeyError:
        if not name.isdigit():
            hint = f"make one with `useradd --system {USER}`, or name another in {USER_VARIABLE}"
            return Who(trouble=f"the worker runs as root, and there is no user {name} for functions; {hint}")
        user = group = int(name)
    if user == 0:
        return Who(trouble="functions never run as root")
    return Who(user=user, group=group)


def out_of_reach(runtime: Runtime, who: Who) -> str:
    """The first folder that bars the functions' user from their Python or from the pool's own code; "" for none.

    Where a root is built for functions everything is shown to them there; elsewhere they go by the machine's rights.
    """
    if who.user is None:
        return ""
    needed = [runtime.python, *runtime.folders, *runtime.paths, str(code_folder() / "moregpu" / "worker")]
    for path in needed:
        for way in (Path(path).absolute(), Path(path).resolve()):  # a link's own folder, and where it leads
            for folder in reversed(way.parents):
                if not _may_enter(folder, who):
                    return str(folder)
    return ""


def _may_enter(folder: Path, who: Who) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    if found.st_uid == who.user:
        return bool(found.st_mode & stat.S_IXUSR)
    return bool(found.st_mode & (stat.S_IXGRP if found.st_gid == who.group else stat.S_IXOTH))


def candidates() -> list[tuple[Isolation, str]]:
    """What may confine here, the best first, each with what is missing for it (empty: it can be tried)."""
    if sys.platform != "linux":
        return []
    bwrap = "" if bubblewrap.executable() else "bubblewrap is not installed (Debian: apt install bubblewrap)"
    version = landlock.version()
    old = f"Landlock {version} is too old" if version else "the kernel has no Landlock"
    return [
        ("bubblewrap", bwrap),
        ("landlock", "" if version >= landlock.NEEDED else f"{old} ({landlock.NEEDED}, Linux 6.12, is needed)"),
    ]


def readable_paths(folders: tuple[str, ...], code: Path) -> list[str]:
    """What a function may read where no root is built for it."""
    system = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives")
    return [*system, "/etc/localtime", *folders, str(code)]
