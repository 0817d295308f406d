"""Files and folders that only their owner may read: made so, and refused when they no longer are.

Folders are 0700, files 0600. A file appears whole or not at all: it is written beside its place under a fresh name
(`O_EXCL`), synced, and renamed. On Windows the folder's ACL of the user's profile stands in for mode bits.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from pathlib import Path

from moregpu.errors import StateRefused

_HAS_MODES = sys.platform != "win32"
_MARKS = ("pool.json", "enrolment.json", "profiles")
"""What lies in folders of MoreGPU's own, or beside them."""

_ELSEWHERE = "it is no folder of MoreGPU's own: name one inside it, such as '{}/moregpu'"


def private_folder(path: Path) -> Path:
    """Make a folder 0700 where there is none, or check the one that is there; raises `StateRefused` when looser."""
    if not path.exists():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(path)
    return path


def check_private(path: Path) -> None:
    """Raise `StateRefused` unless `path` belongs to this user and nobody else has any right on it."""
    found = path.stat()
    if not _HAS_MODES:
        return
    if found.st_uid != os.getuid():
        raise StateRefused(
            f"{path} belongs to another user (uid {found.st_uid}, this is {os.getuid()})", _other_owner(path, found)
        )
    if found.st_mode & 0o077:
        wanted = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise StateRefused(
            f"{path} can be read or changed by others (mode {stat.S_IMODE(found.st_mode):o}, expected {wanted})",
            f"chmod {wanted} '{path}', and think of who may have read it meanwhile"
            if _may_be_ours(path, found)
            else _ELSEWHERE.format(path),
        )


def _other_owner(path: Path, found: os.stat_result) -> str:
    """What to do about somebody else's: never to take from a service of theirs, or from everybody, what is theirs."""
    if not _may_be_ours(path, found):
        return _ELSEWHERE.format(path)
    run = f"run as that user: sudo -u '#{found.st_uid}' …"
    return run if os.getuid() == 0 else f"{run}, or: sudo chown -R {os.getuid()} '{path}'"


def _may_be_ours(path: Path, found: os.stat_result) -> bool:
    """Whether a place is MoreGPU's own, so that its rights may be changed; not one like /tmp, /srv or a whole home."""
    if not stat.S_ISDIR(found.st_mode):
        return True
    if found.st_mode & stat.S_ISVTX:
        return False
    place = path.absolute()
    ours, home = os.environ.get("MOREGPU_HOME", ""), os.environ.get("HOME", "")
    if (ours and place.is_relative_to(ours)) or (home and place != Path(home) and place.is_relative_to(home)):
        return True
    try:
        marked = any((folder / mark).exists() for folder in (place, place.parent) for mark in _MARKS)
        return marked or (place / "lock").is_file() or not any(place.iterdir())
    except OSError:
        return False


def write_private(path: Path, data: bytes) -> None:
    """Replace a file's content in one step, readable by its owner only, durable when this returns."""
    private_folder(path.parent)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    _sync_folder(path.parent)


def read_private(path: Path) -> bytes | None:
    """Read such a file; None when there is none, `StateRefused` when others could have read or changed it."""
    try:
        check_private(path)
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _sync_folder(path: Path) -> None:
    """Make a rename durable; folders cannot be opened for that on Windows."""
    if not _HAS_MODES:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
