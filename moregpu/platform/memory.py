"""A process's memory: how often cycles are sought, and what goes back to the system after a burst of work."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import sys
import weakref
from collections import deque

OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Rows, messages, events and strips are made by the thousand and form no cycles."""

LARGE_BYTES = 4 << 20
"""From here on memory is the system's own, in huge pages where it has them."""

KEPT_BYTES = 256 << 20
"""Rooms that nobody holds any more are used again, up to so much of them."""

_HUGE_BYTES = 2 << 20
_kept: deque[mmap.mmap] = deque()
_forgotten = 0
"""How often rooms were forgotten: what was taken before is not kept when it comes back."""


def room_for(size_bytes: int) -> memoryview:
    """Memory for one value that is about to be written from end to end: what stood there before may stand there still.

    When nobody holds it any more it is for the next value, unless the system takes it meanwhile. The first touch of
    200 MB page by page took 0.13 to 0.5 s, in huge pages 0.03, in a virtual machine whose host gives memory as it is
    touched 0.18: longer than what is done with them.
    """
    if size_bytes < LARGE_BYTES:
        return memoryview(bytearray(size_bytes))
    memory = _kept_room(size_bytes) or _new_room(size_bytes)
    # Something of ours that every view of it holds on to: its end is theirs.
    owner = (ctypes.c_char * len(memory)).from_buffer(memory)
    weakref.finalize(owner, _keep, memory, _forgotten).atexit = False
    return memoryview(owner).cast("B")[:size_bytes]


def forget_rooms() -> None:
    """Give back what is kept of rooms, and what is held of them once it is let go."""
    global _forgotten
    _forgotten += 1
    _kept.clear()


def _kept_room(size_bytes: int) -> mmap.mmap | None:
    """One that is large enough, and not much larger."""
    for _ in range(len(_kept)):
        try:
            memory = _kept.popleft()
        except IndexError:  # another thread was faster
            return None
        if size_bytes <= len(memory) <= 2 * size_bytes:
            return memory
        _kept.append(memory)
    return None


def _new_room(size_bytes: int) -> mmap.mmap:
    own = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    memory = mmap.mmap(-1, -(-size_bytes // _HUGE_BYTES) * _HUGE_BYTES, **own)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _keep(memory: mmap.mmap, when: int) -> None:
    """Called when the last view is gone, wherever that is: it waits for nothing and locks nothing."""
    if not hasattr(mmap, "MADV_FREE") or when != _forgotten or len(memory) > KEPT_BYTES:
        return
    try:
        memory.madvise(mmap.MADV_FREE)  # the system may have it back whenever it is short of memory
        while sum(map(len, tuple(_kept))) + len(memory) > KEPT_BYTES:
            _kept.popleft()  # what was kept longest: values of another size came since
        _kept.append(memory)
    except (OSError, RuntimeError, IndexError):  # it has no such thing, or another thread keeps one at this moment
        return


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
