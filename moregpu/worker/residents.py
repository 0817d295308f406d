"""Inputs that come again, kept open: whole tensors in shared memory, each in a region of its own.

A weight that many jobs name, or a matrix of which one job's tasks need columns, is decrypted once; a compute child maps
its region once, takes from it the part that a task means, and a graphics adapter keeps what was uploaded of it. Only
what was opened more than once altogether is kept, so what is needed once costs nothing more than before. The least
recently used goes first; all go when nothing has been computed for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from moregpu.blobs.format import RECORD_BYTES
from moregpu.blobs.regions import spans
from moregpu.jobs import Blob, Tensor
from moregpu.wire.statement import content_digest, scattered_digest
from moregpu.worker.memory import Region, RegionPool

LEAST_BYTES = 256 << 10
"""Below this, opening costs less than a region's page faults and descriptor."""

LARGEST_SHARE = 0.5
"""Of the limit, what one tensor may take: a few must fit beside each other."""

WINDOW_BYTES = 256 << 10

COUNTED = 4096
CONTENTS = 256

Name = tuple[str, bytes]
"""A blob's digest and its key: who names it with another key gets the error of that key."""


class Resident:
    """One tensor's plain bytes. `users` tasks need it now; while there are any it stays."""

    def __init__(self, blob: Blob, region: Region):
        self.blob = blob
        self.region = region
        self.users = 0
        self.opened = False
        self._contents: OrderedDict[tuple[bytes, str, object, object], bytes] = OrderedDict()

    def content(self, key: bytes, tensor: Tensor) -> bytes:
        """The content digest of the part that a tensor means; one job's tasks that mean the same part share it."""
        about = (key, tensor.dtype, tensor.shape, tensor.region)
        known = self._contents.get(about)
        if known is None:
            with self.region.view(0, self.blob.size_bytes) as plain:
                pieces = list(spans(tensor.shape, tensor.dtype, tensor.region))
                if len(pieces) == 1:
                    part = plain[pieces[0][0] : pieces[0][1]]
                    known = content_digest(key, tensor.dtype, tensor.part_shape, part)
                else:
                    known = scattered_digest(key, tensor.dtype, tensor.part_shape, _windows(plain, pieces))
            self._contents[about] = known
            if len(self._contents) > CONTENTS:
                self._contents.popitem(last=False)
        return known


class Residents:
    """What is kept open, at most `limit_bytes`. Used from the event loop alone; contents are read on threads."""

    def __init__(self, limit_bytes: int, regions: RegionPool):
        self._limit_bytes = limit_bytes
        self._regions = regions
        self._kept: OrderedDict[Name, Resident] = OrderedDict()  # the least recently used first
        self._opened_bytes: OrderedDict[Name, int] = OrderedDict()
        self.used_bytes = 0

    def take(self, tensor: Tensor, closed: list[Region]) -> Resident | None:
        """The resident of a tensor, for a task that needs it until `give_back`; None where it is opened as before.

        A new one is not `opened` yet: who takes it first opens it, or drops it. Regions that made room are added to
        `closed`, for the children to forget.
        """
        blob = tensor.data
        if not isinstance(blob, Blob) or not LEAST_BYTES <= blob.size_bytes <= self._limit_bytes * LARGEST_SHARE:
            return None
        if tensor.whole_bytes != blob.size_bytes or len(tensor.region or tensor.shape) != len(tensor.shape):
            return None  # whoever opens it says what is wrong
        name = (blob.digest, blob.key)
        resident = self._kept.get(name)
        if resident is None:
            opened = self._opened_bytes.pop(name, 0) + _opened_bytes(tensor)
            if opened <= blob.size_bytes or not self._room(blob, closed):
                self._count(name, opened)
                return None
            resident = self._kept[name] = Resident(blob, self._regions.fresh(blob.size_bytes))
            self.used_bytes += blob.size_bytes
        elif not resident.opened:
            return None  # another task is opening it
        self._kept.move_to_end(name)
        resident.users += 1
        return resident

    def give_back(self, resident: Resident) -> None:
        """A task needs it no more."""
        resident.users -= 1

    def drop(self, resident: Resident) -> Region:
        """Keep it no more (it could not be opened, or makes room); returns its region, which is closed."""
        del self._kept[resident.blob.digest, resident.blob.key]
        self.used_bytes -= resident.blob.size_bytes
        resident.region.close()
        return resident.region

    def clear(self) -> list[Region]:
        """Drop all that no task needs now; returns their regions."""
        return [self.drop(resident) for resident in list(self._kept.values()) if not resident.users]

    def _room(self, blob: Blob, closed: list[Region]) -> bool:
        for resident in list(self._kept.values()):
            if self.used_bytes + blob.size_bytes <= self._limit_bytes:
                break
            if not resident.users:
                closed.append(self.drop(resident))
        return self.used_bytes + blob.size_bytes <= self._limit_bytes

    def _count(self, name: Name, opened_bytes: int) -> None:
        self._opened_bytes[name] = opened_bytes
        if len(self._opened_bytes) > COUNTED:
            self._opened_bytes.popitem(last=False)


def _opened_bytes(tensor: Tensor) -> int:
    """What is opened for a part: columns of a matrix lie in every record of its rows."""
    region, shape = tensor.region, tensor.shape
    if region is None or region[1:] == tuple((0, size) for size in shape[1:]):
        return tensor.part_bytes
    row_bytes = tensor.whole_bytes // shape[0]
    return tensor.part_bytes if row_bytes >= RECORD_BYTES else (region[0][1] - region[0][0]) * row_bytes


def _windows(plain: memoryview, pieces: Iterable[tuple[int, int]]) -> Iterator[memoryview]:
    """Scattered pieces, copied together into one scratch buffer that stays in the processor's cache."""
    scratch = memoryview(bytearray(WINDOW_BYTES))
    at = 0
    for start, stop in pieces:
        if at + stop - start > WINDOW_BYTES:
            yield scratch[:at]
            at = 0
        if stop - start > WINDOW_BYTES:
            yield plain[start:stop]
            continue
        end = at + stop - start
        scratch[at:end] = plain[start:stop]
        at = end
    yield scratch[:at]
