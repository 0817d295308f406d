"""Memory that agent and compute child share, so that large tensors are never sent between them.

`memfd_create` where it exists (an unlinked temporary file elsewhere): nothing is left behind by a crash, and no name
can be guessed. (`multiprocessing.shared_memory` before Python 3.13 unlinks the owner's segment when a reader ends.)
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import threading
from collections.abc import Iterable

from moregpu.platform.memory import fallocate

ALIGNMENT = 64
"""Values start at multiples of a cache line, as vector instructions like it."""

FILLED_BYTES = 8 << 20
"""From here on a region that is about to be written from end to end gets its pages from a thread of their own."""

_NUMBER_BYTES = 8
_ADD_SEALS, _FUTURE_WRITE, _SIZE, _SEALED = 1033, 0x10, 0x2 | 0x4, 0x1  # linux/fcntl.h


class Region:
    """A piece of shared memory: `number` names it between agent and child."""

    def __init__(self, number: int, size_bytes: int):
        self.number = number
        self.size_bytes = size_bytes
        self.fd = _anonymous(size_bytes)
        self._map = mmap.mmap(self.fd, size_bytes)

    def view(self, start: int, size_bytes: int) -> memoryview:
        """Bytes [start, start + size)."""
        return memoryview(self._map)[start : start + size_bytes]

    def fill_ahead(self) -> None:
        """Have the system find its pages while what goes there is fetched: 200 MB were opened in 0.24, not 0.37 s.

        A page that is written before it was found is as good: what stands there stays.
        """
        if not hasattr(os, "memfd_create"):
            return
        try:
            fd = os.dup(self.fd)
        except OSError:
            return
        try:
            threading.Thread(target=_fill, args=(fd, self.size_bytes), name="fill", daemon=True).start()
        except RuntimeError:  # no thread is to be had: pages are found as they are written
            os.close(fd)

    def seal(self) -> None:
        """From now on whoever it is passed to can read it alone, and nobody changes its size. Raises `OSError`."""
        if hasattr(os, "memfd_create"):
            import fcntl

            fcntl.fcntl(self.fd, _ADD_SEALS, _FUTURE_WRITE | _SIZE | _SEALED)

    def close(self) -> None:
        """Give the descriptor back, once; the mapping goes when its last view does."""
        if self.fd >= 0:
            # A second close of the same number would close whatever has been opened under it since.
            os.close(self.fd)
            self.fd = -1


def _fill(fd: int, size_bytes: int) -> None:
    # Not posix_fallocate: where the system has none of its own, that writes, over what stands there meanwhile.
    fallocate(fd, 0, 0, size_bytes)  # whoever writes there hears of what is wrong
    os.close(fd)


def _anonymous(size_bytes: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("moregpu", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size_bytes)
    return fd


class RegionPool:
    """Regions for reuse: fresh memory costs a page fault every 4 KiB, a quarter of a download's time."""

    def __init__(self, kept_bytes: int = 256 << 20):
        self._kept_bytes = kept_bytes
        self._free: list[Region] = []
        self._next = 1

    def take(self, size_bytes: int) -> Region:
        """A region of at least that size (a power of two)."""
        wanted = max(mmap.PAGESIZE, 1 << (max(1, size_bytes) - 1).bit_length())
        for region in self._free:
            if region.size_bytes == wanted:
                self._free.remove(region)
                return region
        return self._made(wanted)

    def fresh(self, size_bytes: int) -> Region:
        """A region of exactly that size, to be written from end to end; whoever asked closes it."""
        region = self._made(size_bytes)
        if size_bytes >= FILLED_BYTES:
            region.fill_ahead()
        return region

    def _made(self, size_bytes: int) -> Region:
        region = Region(self._next, size_bytes)
        self._next += 1
        return region

    def give(self, region: Region) -> list[Region]:
        """Take a region back; returns those that were closed to stay within the limit (the child forgets them)."""
        self._free.append(region)
        closed: list[Region] = []
        while sum(free.size_bytes for free in self._free) > self._kept_bytes:
            oldest = self._free.pop(0)
            oldest.close()
            closed.append(oldest)
        return closed

    def clear(self) -> list[Region]:
        """Close what is free; returns it (the child forgets it)."""
        closed, self._free = self._free, []
        for region in closed:
            region.close()
        return closed


def offsets(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Where values of these sizes start in one region, and its size."""
    starts: list[int] = []
    stop = 0
    for size in sizes:
        starts.append(stop)
        stop += -(-size // ALIGNMENT) * ALIGNMENT
    return starts, stop


# ---- passing regions to the child ------------------------------------------------------------------------------------


def pass_region(passing: socket.socket, region: Region) -> None:
    """Send a region's descriptor, named by its number."""
    socket.send_fds(passing, [region.number.to_bytes(_NUMBER_BYTES, "little")], [region.fd])


class AttachedRegions:
    """The child's side: regions that were passed, mapped on first use."""

    def __init__(self, passing: socket.socket):
        self._passing = passing
        self._maps: dict[int, mmap.mmap] = {}

    def map(self, number: int) -> mmap.mmap:
        """The region of that number; it was passed before the frame that names it was sent."""
        while number not in self._maps:
            name, fds, _, _ = socket.recv_fds(self._passing, _NUMBER_BYTES, 1)
            if not fds:
                raise EOFError("the agent is gone")
            try:
                memory = mmap.mmap(fds[0], 0)
            except PermissionError:  # sealed: to be read alone
                memory = mmap.mmap(fds[0], 0, prot=mmap.PROT_READ)
            self._maps[int.from_bytes(name, "little")] = memory
            os.close(fds[0])
        return self._maps[number]

    def forget(self, numbers: Iterable[int]) -> None:
        """Drop mappings; the memory goes when its last array does."""
        for number in numbers:
            self._maps.pop(number, None)
