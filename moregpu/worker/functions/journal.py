"""Records in shared memory that the child appends to and the agent reads, also when the child is not there any more.

    u64 calls that have their record · u64 bytes of these records · the records

The memory can grow and never shrink, so that nothing the child does can pull it away under the agent's reading. What
the agent takes out is a copy: the child may write on.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct

from moregpu.encoding.layout import Malformed
from moregpu.encoding.records import HEAD as RECORD_HEAD
from moregpu.encoding.records import read_records
from moregpu.platform.memory import LARGE_BYTES, fallocate, room_for

_HEAD = struct.Struct("<QQ")
_F_ADD_SEALS, _F_SEAL_SHRINK, _F_SEAL_SEAL = 1033, 2, 1

FIRST_BYTES = 1 << 20
"""Of a new journal."""

KEPT_BYTES = 16 << 20
"""Memory of larger results goes back to the system as soon as they are taken."""

WRITTEN_BYTES = 1 << 20
"""A record from here on is written, not copied: pages that the system fills at once need neither a fault nor zeros.
200 MB took half as long."""


class Journal:
    """The child's side."""

    def __init__(self, fd: int):
        self._fd = fd
        self._map = mmap.mmap(fd, 0)
        self._calls = self._used = 0

    def begin(self) -> None:
        """Forget the records of the task before."""
        self._calls = self._used = 0
        _HEAD.pack_into(self._map, 0, 0, 0)

    def add(self, record: list[bytes | memoryview]) -> None:
        """Append one call's record. Raises `OSError` where that is more than a task's results may take."""
        size = sum(memoryview(part).nbytes for part in record)
        start = _HEAD.size + self._used
        if start + size > len(self._map):
            self._grow(start + size)
        if size < WRITTEN_BYTES:
            for part in record:
                length = memoryview(part).nbytes
                self._map[start : start + length] = part if isinstance(part, bytes) else memoryview(part).cast("B")
                start += length
        else:
            _write(self._fd, record, start)
        self._calls += 1
        self._used += size
        _HEAD.pack_into(self._map, 0, self._calls, self._used)

    def _grow(self, needed: int) -> None:
        size = max(needed, min(2 * len(self._map), needed + FIRST_BYTES))
        os.ftruncate(self._fd, size)
        self._map.resize(size)


class JournalReader:
    """The agent's side, which makes the memory. Raises `OSError` where there is none."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("results", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, FIRST_BYTES)
        fcntl.fcntl(self.fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_SEAL)
        self._map = mmap.mmap(self.fd, FIRST_BYTES, prot=mmap.PROT_READ | mmap.PROT_WRITE)

    @property
    def calls(self) -> int:
        """How many calls the child says are done."""
        return _HEAD.unpack_from(self._map)[0]

    @property
    def size_bytes(self) -> int:
        """As large as it has grown."""
        return os.fstat(self.fd).st_size

    def clear(self) -> None:
        """Forget what is there, before calls are sent."""
        _HEAD.pack_into(self._map, 0, 0, 0)

    def take(self, most: int) -> tuple[int, bytes | memoryview]:
        """A copy of the whole records of at most so many calls, and how many there are: nonsense gives none."""
        calls, used = _HEAD.unpack_from(self._map)
        size = self.size_bytes
        if calls > most or used > size - _HEAD.size or used < calls * RECORD_HEAD.size:
            return 0, b""
        # Read, not mapped: a page of shared memory that is looked at for the first time costs more than its copy.
        if used < LARGE_BYTES:
            records: bytes | memoryview = os.pread(self.fd, used, _HEAD.size)
        else:
            records = room_for(used)
            place = 0
            while place < used and (length := os.preadv(self.fd, [records[place:]], _HEAD.size + place)):
                place += length
            if place < used:
                return 0, b""  # it cannot shrink; were it to, another task's results would stand there
        if used > KEPT_BYTES:
            _give_back(self.fd, KEPT_BYTES, size)
        try:
            if sum(1 for _ in read_records(records)) == calls:
                return calls, records
        except Malformed:
            pass
        return 0, b""

    def close(self) -> None:
        """Let the memory go."""
        self._map.close()
        os.close(self.fd)


def _write(fd: int, parts: list[bytes | memoryview], start: int) -> None:
    for part in parts:
        left = memoryview(part).cast("B")
        while left:
            length = os.pwrite(fd, left, start)
            left, start = left[length:], start + length


def _give_back(fd: int, start: int, stop: int) -> None:
    """Free the memory behind a stretch, which then reads as zeros: the file keeps its size, the mappings stay good."""
    fallocate(fd, 0x01 | 0x02, start, stop - start)  # KEEP_SIZE | PUNCH_HOLE
