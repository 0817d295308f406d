"""A process's memory: how often cycles are sought, and what goes back to the system after a burst of work."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import sys

OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Rows, messages, events and strips are made by the thousand and form no cycles."""

LARGE_BYTES = 4 << 20
"""From here on memory is the system's own, in huge pages where it has them."""


def room_for(size_bytes: int) -> memoryview:
    """Zeroed memory for one value, gone when nobody holds it.

    The first touch of 200 MB page by page took 0.13 to 0.5 s, in huge pages 0.03: longer than what is done with them.
    """
    if size_bytes < LARGE_BYTES:
        return memoryview(bytearray(size_bytes))
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, size_bytes, **own)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def fallocate(fd: int, mode: int, start: int, length: int) -> None:
    """Linux's own, which a file system may refuse, as if nobody had asked."""
    ctypes.CDLL(None).fallocate(fd, mode, ctypes.c_int64(start), ctypes.c_int64(length))


def settle() -> None:
    """Once everything is imported: what is there now is not walked again and again in search of cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 20, 20)


def one_arena() -> None:
    """One malloc arena for all threads (glibc's M_ARENA_MAX): 8 MB less in the tray, measured.

    For a process whose threads hardly ever allocate at once; call it before they start. Also for one whose threads free
    large blocks: `trim` left 100 MB of what four threads had freed in theirs, and nothing of one (the coordinator).
    """
    _mallopt(_ARENA_MAX, 1)


def keep_until_trimmed() -> None:
    """What is freed stays with the process until `trim`, up to 128 MB: for one that trims once it rests.

    Else a block of some MB goes back at once, and the next one's pages are faulted in and zeroed anew: in one arena, a
    tenth of the CPU of checking products, a twentieth of bulk data.
    """
    _mallopt(_MMAP_THRESHOLD, 32 << 20)
    _mallopt(_TRIM_THRESHOLD, 128 << 20)


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h


def _mallopt(what: int, value: int) -> None:
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).mallopt(what, value)
        except (OSError, AttributeError):
            pass  # another C library


def give_back() -> None:
    """Give the system what is not needed any more. It takes some milliseconds: for when nothing else is due."""
    gc.collect()
    trim()


def trim() -> None:
    """Return freed pages to the system, where the C library keeps them (glibc); some milliseconds, without the lock."""
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError):
            pass  # another C library
