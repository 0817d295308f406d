"""Sealed blobs that a worker keeps for the next task: ciphertext only, the least recently used goes first.

Keys live in memory until the lease ends, so a copied cache is of no use to anybody.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections import OrderedDict
from pathlib import Path

from blake3 import blake3

from moregpu.blobs.local import Reader
from moregpu.errors import DigestMismatch

_DIGEST = re.compile("[0-9a-f]{64}")
_BINARY = getattr(os, "O_BINARY", 0)


class SealedCache:
    """At most `limit_bytes` of sealed blobs under one folder (0700). Safe from several threads."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self._root = root
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # oldest use first
        self._used_bytes = 0
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._load()

    def reader(self, digest: str) -> Reader | None:
        """Open a cached blob and mark it used; None when it is not here."""
        with self._lock:
            size = self._sizes.get(digest)
            if size is None:
                return None
            try:
                reader = Reader(self._root / digest)
                if reader.size_bytes == size:
                    self._sizes.move_to_end(digest)
                    os.utime(self._root / digest)
                    return reader
                reader.close()
            except FileNotFoundError:  # somebody emptied the folder
                pass
            self._drop(digest)
            return None

    def fits(self, sealed_bytes: int) -> bool:
        """Whether a blob of this length is kept at all."""
        return sealed_bytes <= self._limit_bytes

    def writer(self, digest: str, sealed_bytes: int) -> CacheWriter:
        """Begin to keep a blob; raises `ValueError` for a digest that is none."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError("that is not a blob's name")
        return CacheWriter(self, self._root / f"partial-{secrets.token_hex(8)}", digest, sealed_bytes)

    def put(self, digest: str, sealed: bytes | bytearray | memoryview) -> None:
        """Keep a whole blob, where it fits; raises `DigestMismatch` when the bytes are not what the name says."""
        if self.fits(len(sealed)):
            writer = self.writer(digest, len(sealed))
            writer.write(memoryview(sealed))
            writer.finish()

    def hot(self, limit: int = 256) -> list[str]:
        """Digests that are here, the most recently used first."""
        with self._lock:
            return [digest for digest, _ in zip(reversed(self._sizes), range(limit), strict=False)]

    def used_bytes(self) -> int:
        """Sealed bytes that are kept."""
        return self._used_bytes

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for digest in list(self._sizes):
                self._drop(digest)

    def adopt(self, path: Path, digest: str, sealed_bytes: int) -> None:
        """Take in a finished file (`CacheWriter` calls this), making room for it first."""
        with self._lock:
            while self._sizes and self._used_bytes + sealed_bytes > self._limit_bytes:
                self._drop(next(iter(self._sizes)))
            self._used_bytes -= self._sizes.pop(digest, 0)
            path.replace(self._root / digest)
            self._sizes[digest] = sealed_bytes
            self._used_bytes += sealed_bytes

    def _drop(self, digest: str) -> None:
        self._used_bytes -= self._sizes.pop(digest)
        try:
            (self._root / digest).unlink(missing_ok=True)
        except PermissionError:  # Windows: still being read; the next start finds it again
            pass

    def _load(self) -> None:
        found: list[tuple[float, str, int]] = []
        for path in self._root.iterdir():
            if _DIGEST.fullmatch(path.name):
                status = path.stat()
                found.append((status.st_mtime, path.name, status.st_size))
            elif path.name.startswith("partial-"):
                path.unlink()
        for _, digest, size in sorted(found):
            self._sizes[digest] = size
            self._used_bytes += size
        while self._used_bytes > self._limit_bytes:
            self._drop(next(iter(self._sizes)))


class CacheWriter:
    """One blob on its way into the cache; nothing is seen of it before `finish`."""

    def __init__(self, cache: SealedCache, path: Path, digest: str, sealed_bytes: int) -> None:
        self._cache = cache
        self._path = path
        self._digest = digest
        self._sealed_bytes = sealed_bytes
        self._hash = blake3()
        self._written = 0
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600), "wb")

    def write(self, sealed: memoryview) -> None:
        """The next sealed bytes; raises `OSError` when the disk is full (then `abort`: the cache is a convenience)."""
        self._file.write(sealed)
        self._hash.update(sealed)
        self._written += len(sealed)

    def finish(self) -> None:
        """Keep it; raises `DigestMismatch` when the bytes are not what the name says."""
        self._file.close()
        if self._written != self._sealed_bytes or self._hash.hexdigest() != self._digest:
            self.abort()
            raise DigestMismatch("A downloaded blob is not what its name says")
        self._cache.adopt(self._path, self._digest, self._sealed_bytes)

    def abort(self) -> None:
        """Throw it away."""
        self._file.close()
        self._path.unlink(missing_ok=True)
