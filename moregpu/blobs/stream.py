"""Sealing as the bytes come: for results that are combined piece by piece, and for uploads straight from an array."""

from __future__ import annotations

import os
from collections.abc import Callable

from blake3 import blake3

from moregpu.blobs.format import KEY_BYTES, RECORD_BYTES, SEALED_RECORD_BYTES, Readable, Sealer
from moregpu.jobs import Blob

Sink = Callable[[memoryview], None]
"""Takes sealed bytes; the memory is used again after it returns."""


class SealStream:
    """Takes plain bytes in pieces of any size, hands sealed ones to a sink, and knows the blob's name at the end."""

    def __init__(self, size_bytes: int, sink: Sink, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._sealer = Sealer(entropy(KEY_BYTES), size_bytes)
        self._sink = sink
        self._name = blake3()
        self._plain = bytearray(min(RECORD_BYTES, size_bytes))
        self._sealed = memoryview(bytearray(min(SEALED_RECORD_BYTES, size_bytes + 16)))
        self._filled = 0
        self._index = 0
        self._emit(memoryview(self._sealer.header))

    def write(self, data: Readable) -> None:
        """The next plain bytes; raises `ValueError` when more come than were announced."""
        view = memoryview(data).cast("B")
        if self._index * RECORD_BYTES + self._filled + len(view) > self._sealer.size_bytes:
            raise ValueError(f"more than {self._sealer.size_bytes} bytes")
        while view:
            wanted = self._sealer.record_bytes(self._index)
            if not self._filled and len(view) >= wanted:  # a whole record: no copy
                self._seal(view[:wanted])
                view = view[wanted:]
                continue
            part = view[: wanted - self._filled]
            self._plain[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == wanted:
                self._filled = 0
                self._seal(memoryview(self._plain)[:wanted])

    def finish(self) -> Blob:
        """Seal what is left; raises `ValueError` when fewer bytes came than were announced."""
        if not self._sealer.size_bytes and not self._index:
            self._seal(memoryview(b""))
        if self._index != self._sealer.records:
            raise ValueError(f"fewer than {self._sealer.size_bytes} bytes")
        return Blob(digest=self._name.hexdigest(), key=self._sealer.key, size_bytes=self._sealer.size_bytes)

    def _seal(self, plain: memoryview) -> None:
        written = self._sealer.seal_into(self._index, plain, self._sealed)
        self._index += 1
        self._emit(self._sealed[:written])

    def _emit(self, sealed: memoryview) -> None:
        self._name.update(sealed)
        self._sink(sealed)
