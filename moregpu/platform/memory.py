"""A process's memory, given back to the system: what a burst of work took stays with the allocator else."""

from __future__ import annotations

import ctypes
import gc
import sys


def one_arena() -> None:
    """One malloc arena for all threads (glibc's M_ARENA_MAX): 8 MB less in the tray, measured.

    For a process whose threads hardly ever allocate at once; call it before they start.
    """
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).mallopt(-8, 1)
        except AttributeError:
            pass  # another C library


def give_back() -> None:
    """Give the system what is not needed any more (glibc). It takes some milliseconds: for when nothing else is due."""
    gc.collect()
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except AttributeError:
            pass  # another C library
