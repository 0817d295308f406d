"""Sealed blobs on this machine's disk: durable once named, invisible until whole, uploads that resume.

A blob is one file named by its digest; an upload writes beside them and is moved into place when its bytes hash to the
name. All calls block (fsync, disk) and are safe from several threads.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from moregpu.blobs.syncing import Syncing
from moregpu.errors import Conflict, DigestMismatch, NotFound, OutOfSpace, TooLarge
from moregpu.platform.room import is_full

DISK_MARK = 0.90
"""Share of the disk that may be used; beyond it uploads are refused, so that the database can go on."""

LEFT_HERE = "here"
"""Folder for uploads that somebody of this user's on this machine wrote as files (`moregpu.blobs.nearby`)."""

_DIGEST = re.compile("[0-9a-f]{64}")
_LEFT = re.compile("[0-9a-f]{32}")
_COPY_BYTES = 1 << 20
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class BlobFiles:
    """The blobs under one folder (0700; files 0600)."""

    def __init__(self, root: Path, disk_mark: float = DISK_MARK) -> None:
        self._root = root
        self._partials = root / "partial"
        self._disk_mark = disk_mark
        self._lock = threading.Lock()  # guards the two below; may be taken while an upload's own lock is held
        self._beginning = threading.Lock()
        self._open: dict[str, Upload] = {}
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._partials.mkdir(mode=0o700, exist_ok=True)
        self._left_here = root / LEFT_HERE
        self._left_here.mkdir(mode=0o700, exist_ok=True)
        self._used_bytes = sum(path.stat().st_size for path in self._files())

    def begin(self, principal: str, digest: str | None, total_bytes: int) -> Upload:
        """Begin an upload of `total_bytes` sealed bytes, or go on with an earlier one from its `offset`.

        Partial uploads belong to (principal, digest): nobody can squat another's. A new upload of the same takes it
        over; writes of the older one then raise `Conflict`. Without a digest nothing resumes.

        Raises:
            OutOfSpace: the disk would be fuller than the mark.
            NotFound: the digest is none.
        """
        if digest is not None:
            _check_digest(digest)
        if total_bytes < 0:
            raise TooLarge("An upload has no negative length")
        name = _partial_name(principal, digest, total_bytes)
        path = self._partials / name
        with self._beginning:
            with self._lock:
                older = self._open.pop(name, None)
            if older is not None:
                older.give_up()
            with self._lock:
                present = path.stat().st_size if path.exists() else 0
                pending = sum(upload.total_bytes - upload.offset for upload in self._open.values())
                self._check_space(pending + max(0, total_bytes - present))
                upload = self._open[name] = Upload(self, name, path, digest, total_bytes)
        upload.catch_up()
        return upload

    def take_over(self, name: str, digest: str, total_bytes: int) -> None:
        """Make a file that was left here a blob, durably: its bytes are hashed as if they had come by the network.

        Raises:
            NotFound: there is no such file; the bytes have to be sent.
            DigestMismatch: they are not what the digest says; the file is thrown away.
            OutOfSpace: the disk is fuller than the mark; the file is thrown away.
        """
        _check_digest(digest)
        path = self._left_here / name
        if not _LEFT.fullmatch(name):
            raise NotFound("That is not the name of a file that was left here", "Send the bytes")
        try:
            file = os.open(path, os.O_RDONLY | _CLOSE_ON_EXEC | getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            raise NotFound("No such file was left here", "Send the bytes") from error
        try:
            self._check_space(1)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_size != total_bytes:
                raise DigestMismatch("The file that was left here is not what its name says", "Send the bytes")
            with Syncing(file) as syncing:
                syncing.begin()
                hashed = _hash_of(file)
            if hashed != digest:
                raise DigestMismatch("The file that was left here is not what its name says", "Send the bytes")
            self._move_in(path, digest, total_bytes)
        except (OSError, DigestMismatch, OutOfSpace) as error:
            # Also what the disk refused: asked again, it would say that all is well.
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                _check_full(error)
            raise
        finally:
            os.close(file)

    def offset(self, principal: str, digest: str) -> int | None:
        """Sealed bytes of this principal's own unfinished upload, None when there is none."""
        _check_digest(digest)
        prefix = _partial_prefix(principal, digest)
        sizes = [path.stat().st_size for path in self._partials.glob(f"{prefix}-*")]
        return max(sizes) if sizes else None

    def unfinished_bytes(self, principal: str, but: str = "") -> int:
        """What this principal's unfinished uploads take, or are about to; that of one digest left out."""
        left_out = _partial_prefix(principal, but) if but else "none"
        with self._lock:
            open_bytes = {name: upload.total_bytes for name, upload in self._open.items()}
        total = 0
        for path in self._partials.glob(f"{_whose(principal)}-*"):
            if not path.name.startswith(left_out):
                try:
                    total += open_bytes.get(path.name) or path.stat().st_size
                except FileNotFoundError:  # it has just ended
                    continue
        return total

    def drop_unfinished(self, principal: str, wanted_bytes: int, but: str = "") -> int:
        """Delete a principal's unfinished uploads, oldest first, until so many bytes are free; returns how many went.

        None that is being written, nor that of the digest `but`.
        """
        left_out = _partial_prefix(principal, but) if but else "none"
        freed = 0
        with self._lock:
            resting = [
                (found.st_mtime, found.st_size, path)
                for path in self._partials.glob(f"{_whose(principal)}-*")
                if path.name not in self._open and not path.name.startswith(left_out)
                for found in [path.stat()]
            ]
            for _, size, path in sorted(resting):
                if freed < wanted_bytes:
                    path.unlink()
                    freed += size
        return freed

    def path(self, digest: str) -> Path:
        """Where a blob's file is, or would be."""
        _check_digest(digest)
        return self._root / digest[:2] / digest

    def size(self, digest: str) -> int | None:
        """Sealed bytes of a blob, None when it is not here."""
        try:
            return self.path(digest).stat().st_size
        except (FileNotFoundError, NotFound):
            return None

    def open_reader(self, digest: str) -> Reader:
        """Open a blob for reading; raises `NotFound`."""
        try:
            return Reader(self.path(digest))
        except FileNotFoundError as error:
            raise NotFound("That blob is not here") from error

    def delete(self, digest: str) -> bool:
        """Delete a blob; whoever reads it reads on. Returns whether it was there."""
        path = self.path(digest)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return False
        with self._lock:
            self._used_bytes -= size
        return True

    def digests(self) -> Iterator[str]:
        """All blobs, in no order."""
        return (path.name for path in self._files())

    def older_than(self, at: float) -> list[str]:
        """Blobs whose files were written before `at` (epoch seconds)."""
        old: list[str] = []
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                if path.stat().st_mtime < at:
                    old.append(path.name)
        return old

    def clean_partials(self, older_than: float) -> int:
        """Delete unfinished uploads that nobody wrote to since `older_than` (epoch seconds); returns how many."""
        deleted = 0
        with self._lock:
            for path in self._partials.iterdir():
                if path.name not in self._open and path.stat().st_mtime < older_than:
                    path.unlink()
                    deleted += 1
        for path in self._left_here.iterdir():
            with contextlib.suppress(FileNotFoundError):  # taken over meanwhile
                if path.stat().st_mtime < older_than:
                    path.unlink()
                    deleted += 1
        return deleted

    def used_bytes(self) -> int:
        """Bytes of all blobs."""
        return self._used_bytes

    def free_bytes(self) -> int:
        """Bytes that uploads may still take before the mark."""
        usage = shutil.disk_usage(self._root)
        return max(0, usage.free - int((1.0 - self._disk_mark) * usage.total))

    def adopt(self, upload: Upload, digest: str) -> None:
        """Move a finished upload into place, durably (`Upload.finish` calls this)."""
        self._move_in(upload.path, digest, upload.total_bytes)

    def _move_in(self, path: Path, digest: str, total_bytes: int) -> None:
        target = self.path(digest)
        new = not target.exists()
        target.parent.mkdir(mode=0o700, exist_ok=True)
        path.replace(target)
        _sync_folder(target.parent)
        with self._lock:
            self._used_bytes += total_bytes if new else 0

    def forget(self, upload: Upload) -> None:
        """The upload has ended, one way or another (`Upload` calls this)."""
        with self._lock:
            if self._open.get(upload.name) is upload:
                del self._open[upload.name]

    def _check_space(self, wanted_bytes: int) -> None:
        free = self.free_bytes()
        if wanted_bytes > free:
            raise OutOfSpace(
                f"The coordinator's disk has room for {free} more bytes; {wanted_bytes} are to come",
                "Delete old jobs or blobs there, or give it a larger disk; nothing was kept of this upload",
            )

    def _files(self) -> Iterator[Path]:
        return (path for path in self._root.glob("[0-9a-f][0-9a-f]/*") if _DIGEST.fullmatch(path.name))


class Upload:
    """One upload under way. End it by `finish` (whole), `abort` (of no use) or `pause` (to be resumed)."""

    def __init__(self, files: BlobFiles, name: str, path: Path, digest: str | None, total_bytes: int) -> None:
        self.name = name
        self.path = path
        self.total_bytes = total_bytes
        self.offset = 0
        """Sealed bytes that are here; the next write goes there."""
        self._files = files
        self._digest = digest
        self._lock = threading.Lock()
        self._hash = blake3()
        self._superseded = False
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | _CLOSE_ON_EXEC, 0o600)

    def catch_up(self) -> None:
        """Hash what an earlier upload left, so that this one goes on behind it."""
        with self._lock:
            if self._file >= 0:
                self._hash_what_is_here()

    def write(self, data: memoryview | bytes) -> None:
        """The next sealed bytes.

        Raises:
            TooLarge: more than were announced.
            OutOfSpace: the disk is full; what was here before this call still counts.
            Conflict: the upload has ended, or a newer one of the same blob took over.
        """
        with self._lock:
            self._check_open()
            if self.offset + len(data) > self.total_bytes:
                raise TooLarge(f"More bytes come than the {self.total_bytes} that were announced")
            try:
                self._write_all(memoryview(data))
            except OSError as error:
                os.ftruncate(self._file, self.offset)
                _check_full(error)
                raise
            self._hash.update(data)
            self.offset += len(data)

    def finish(self) -> str:
        """Make it durable under its name, which is returned.

        Raises:
            Conflict: bytes are missing, or the upload has ended.
            DigestMismatch: the bytes are not what the name says; they are thrown away.
            OutOfSpace: the disk is full.
        """
        with self._lock:
            self._check_open()
            if self.offset != self.total_bytes:
                raise Conflict(f"{self.offset} of {self.total_bytes} bytes are here", "Go on from that offset")
            digest = self._hash.hexdigest()
            if self._digest is not None and digest != self._digest:
                self._end(keep=False)
                raise DigestMismatch("The uploaded bytes are not what their name says", "Upload them again")
            try:
                os.fsync(self._file)
                self._end(keep=True)  # closed first: Windows does not move an open file
                self._files.adopt(self, digest)
            except OSError as error:
                _check_full(error)
                raise
            return digest

    def pause(self) -> None:
        """The other end is gone: keep what is here for a resume (an upload without a digest is thrown away)."""
        with self._lock:
            self._end(keep=self._digest is not None)

    def abort(self) -> None:
        """Throw it away."""
        with self._lock:
            self._end(keep=False)

    def give_up(self) -> None:
        """A newer upload of the same blob goes on with the file."""
        with self._lock:
            self._superseded = True
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _end(self, *, keep: bool) -> None:
        if self._file < 0:
            return
        os.close(self._file)
        self._file = -1
        if not keep:
            self.path.unlink(missing_ok=True)
        self._files.forget(self)

    def _check_open(self) -> None:
        if self._file < 0:
            why = "A newer upload of the same blob took over" if self._superseded else "The upload has ended"
            raise Conflict(why)

    def _write_all(self, data: memoryview) -> None:
        os.lseek(self._file, self.offset, os.SEEK_SET)
        while data:
            data = data[os.write(self._file, data) :]

    def _hash_what_is_here(self) -> None:
        size = os.fstat(self._file).st_size
        if size > self.total_bytes:
            os.ftruncate(self._file, 0)
            return
        while self.offset < size:
            data = os.read(self._file, _COPY_BYTES)
            if not data:
                break
            self._hash.update(data)
            self.offset += len(data)


class Reader:
    """An open blob. Safe from several threads; deleting the blob does not disturb it."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDONLY | _CLOSE_ON_EXEC)
        self.size_bytes = os.fstat(self._file).st_size
        """Sealed bytes."""

    def read_at(self, start: int, stop: int) -> bytes:
        """Sealed bytes [start, stop); fewer where the file ends. Fits `format.open_range`."""
        data = self._read(stop - start, start)
        if len(data) == stop - start or start + len(data) >= self.size_bytes:
            return data
        return data + self.read_at(start + len(data), stop)  # the system may give less than asked, above 2 GiB

    def _read(self, length: int, start: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file, length, start)
        with self._lock:  # Windows
            os.lseek(self._file, start, os.SEEK_SET)
            return os.read(self._file, length)

    def let_go(self) -> None:
        """Have the system use the file's memory for what is written next; what is durable is read from the disk again.

        In a virtual machine a page that was never used before is had from the host: files of 4 MiB took 7 to 10 ms of
        CPU each to write and sync, and 3 in memory that was in use a moment ago.
        """
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):  # a file system that has no such thing
                os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _hash_of(file: int) -> str:
    hash, buffer = blake3(), bytearray(_COPY_BYTES)
    with open(file, "rb", buffering=0, closefd=False) as whole:
        while length := whole.readinto(buffer):
            hash.update(memoryview(buffer)[:length])
    return hash.hexdigest()


def _check_digest(digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise NotFound("That is not a blob's name", "A name is 64 hex characters")


def _whose(principal: str) -> str:
    return blake3(principal.encode()).hexdigest(length=8)


def _partial_prefix(principal: str, digest: str | None) -> str:
    mark = secrets.token_hex(16) if digest is None else blake3(digest.encode()).hexdigest(length=16)
    return f"{_whose(principal)}-{mark}"


def _partial_name(principal: str, digest: str | None, total_bytes: int) -> str:
    return f"{_partial_prefix(principal, digest)}-{total_bytes}"


def _check_full(error: OSError) -> None:
    if is_full(error):
        raise OutOfSpace(
            "The coordinator's disk is full", "Free some space there; the upload can then go on"
        ) from error


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # no such thing there: NTFS journals the rename
        return
    file = os.open(folder, os.O_RDONLY | _CLOSE_ON_EXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
