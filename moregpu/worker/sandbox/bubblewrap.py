"""Bubblewrap's arguments: a root that is built from nothing, namespaces of everything, no capability.

The root is never `/`: what is not named here does not exist inside. The command is process 1 of its PID namespace: with
it everything dies, and nothing inside can signal it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from moregpu.worker.sandbox.box import CODE, Box, code_folder, variables

_SYSTEM = ("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_NETWORK = ("/etc/resolv.conf", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki", "/etc/services", "/etc/gai.conf")
_SMALL_BYTES = 1 << 20

MADE_UP = {
    "passwd": "root:x:0:0::/:/bin/false\njob:x:{user}:{group}::/tmp:/bin/sh\n",
    "group": "root:x:0:\njob:x:{group}:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "hostname": "job\n",
}
"""The files of /etc that programs expect, with nothing of the machine's in them."""


def executable() -> str | None:
    """Where bubblewrap is installed, if it is."""
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")


def write_etc(folder: Path, user: int, group: int) -> None:
    """Make the made-up files once, for all sandboxes of a worker."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name, text in MADE_UP.items():
        (folder / name).write_text(text.format(user=user, group=group))


def arguments(box: Box, bwrap: str, etc: Path) -> list[str]:
    """The command line, up to the command that is to run inside."""
    args = [bwrap, "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "job", "--chdir", "/"]
    args += ["--cap-drop", "ALL", "--clearenv"]
    if box.user is None:
        args += ["--unshare-all", "--unshare-user", "--disable-userns"]
        args += ["--share-net"] if box.network else []
    else:
        # Started by root: namespaces need no user namespace. What runs inside first becomes `box.user` for good; new
        # user namespaces are then denied by the filter of system calls.
        args += ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        args += [] if box.network else ["--unshare-net"]
        args += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    for name, value in variables(box).items():
        args += ["--setenv", name, value]
    args += [*_root(box), *_etc(box, etc), *_devices(box)]
    args += ["--perms", "1777", "--size", str(box.tmpfs_bytes), "--tmpfs", "/tmp"]  # noqa: S108 — inside
    for folder in ("/run", "/var", "/home"):
        args += ["--perms", "0755", "--size", str(_SMALL_BYTES), "--tmpfs", folder]
    # Interpreter and packages last: they may lie under one of those folders.
    for folder in box.runtime.folders:
        args += [*_way_to(folder), "--ro-bind", folder, folder]
    args += [*_way_to(f"{CODE}/moregpu"), "--ro-bind", str(code_folder() / "moregpu"), f"{CODE}/moregpu"]
    return [*args, "--remount-ro", "/", "--"]


def _way_to(path: str) -> list[str]:
    """The folders above a mount, open to whoever the command becomes (made by the mount they would be root's alone)."""
    args: list[str] = []
    for folder in reversed(Path(path).parents[:-1]):
        args += ["--perms", "0755", "--dir", str(folder)]
    return args


def _root(box: Box) -> list[str]:
    args = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            args += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            args += ["--ro-bind", name, name]
    return args


def _etc(box: Box, etc: Path) -> list[str]:
    args = _way_to("/etc/hosts")
    for name in MADE_UP:
        args += ["--ro-bind", str(etc / name), f"/etc/{name}"]
    for name in (*_LOADER, *(_NETWORK if box.network else ())):
        args += ["--ro-bind-try", name, name]
    return args


def _devices(box: Box) -> list[str]:
    args = ["--proc", "/proc", "--dev", "/dev"]
    args += ["--perms", "1777", "--size", str(box.tmpfs_bytes), "--tmpfs", "/dev/shm"]  # noqa: S108 — inside
    if box.gpu:
        for path in sorted(Path("/dev").glob("nvidia*")):
            args += ["--dev-bind", str(path), str(path)]
        args += ["--dev-bind-try", "/dev/dri", "/dev/dri", "--ro-bind", "/sys", "/sys"]
    return [*args, "--remount-ro", "/dev"]
