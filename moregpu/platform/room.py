"""Whether an error says that there is no room on a disk."""

from __future__ import annotations

import errno

_NO_ROOM = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG)
"""A full disk, a quota (which Windows has under no such name), a file system or limit that lets no file grow more."""


def is_full(error: OSError) -> bool:
    """Whether it is want of room: some space freed mends it, and no rights do."""
    return error.errno in _NO_ROOM
