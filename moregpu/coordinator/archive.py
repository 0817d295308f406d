"""One file that holds others, sealed under a passphrase: what `moregpu pool backup` writes.

    head      "MGPUBACK", version (1), scrypt's log2 n, r and p (one byte each), salt (16)             28 bytes
    record    length of what follows (4), AES-256-GCM of up to 1 MiB                                   again and again

The key is scrypt of the passphrase (NFKC) over the salt. A record's nonce is its number (11 bytes) and whether it is
the last (1); the head is every record's associated data. So a record that was changed, moved, left out or cut off, and
anything behind the last one, is noticed. All numbers are big-endian.

Inside: entries, one after the other, each `length of the name (2), name, size (8), content`; a name of no length ends
it.
"""

from __future__ import annotations

import os
import struct
import unicodedata
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from moregpu.errors import StateRefused, VersionMismatch, WrongPassphrase

MAGIC = b"MGPUBACK"
VERSION = 1
RECORD_BYTES = 1 << 20
MAX_NAME_BYTES = 255

WORK = (17, 8, 1)
"""scrypt's log2 n, r, p: 128 MiB and about half a second for each guess."""

_MOST_WORK = (20, 8, 4)
"""What a file may ask of whoever opens it: 1 GiB."""

_HEAD = struct.Struct(">8sBBBB16s")
_LENGTH = struct.Struct(">I")
_NAME = struct.Struct(">H")
_SIZE = struct.Struct(">Q")
_TAG_BYTES = 16


class Entry(NamedTuple):
    """A file within. Its `content` is to be read before the next entry is asked for."""

    name: str
    size_bytes: int
    content: Iterator[bytes]


class ArchiveWriter:
    """Writes entries to a file; `finish` makes it whole."""

    def __init__(
        self,
        file: BinaryIO,
        passphrase: str,
        work: tuple[int, int, int] = WORK,
        entropy: Callable[[int], bytes] = os.urandom,
    ):
        self._file = file
        salt = entropy(16)
        self._head = _HEAD.pack(MAGIC, VERSION, *work, salt)
        self._cipher = _cipher(passphrase, work, salt)
        self._number = 0
        self._waiting = bytearray()
        file.write(self._head)

    def add(self, name: str, size_bytes: int, content: Iterator[bytes]) -> None:
        """Add a file. Raises `ValueError` when the content has another size."""
        encoded = name.encode()
        if not 0 < len(encoded) <= MAX_NAME_BYTES:
            raise ValueError(f"a name has 1 to {MAX_NAME_BYTES} bytes")
        self._write(_NAME.pack(len(encoded)) + encoded + _SIZE.pack(size_bytes))
        left = size_bytes
        for piece in content:
            left -= len(piece)
            self._write(piece)
        if left:
            raise ValueError(f"{name} has {size_bytes - left} bytes, not {size_bytes}")

    def finish(self) -> None:
        """Say that this was all."""
        self._write(_NAME.pack(0))
        self._seal(bytes(self._waiting), last=True)

    def _write(self, data: bytes) -> None:
        self._waiting += data
        while len(self._waiting) > RECORD_BYTES:  # the last record is sealed by `finish` alone
            self._seal(bytes(self._waiting[:RECORD_BYTES]), last=False)
            del self._waiting[:RECORD_BYTES]

    def _seal(self, plain: bytes, *, last: bool) -> None:
        sealed = self._cipher.encrypt(_nonce(self._number, last=last), plain, self._head)
        self._file.write(_LENGTH.pack(len(sealed)) + sealed)
        self._number += 1


def entries(file: BinaryIO, passphrase: str) -> Iterator[Entry]:
    """The files of an archive, in order.

    Raises `WrongPassphrase`, `StateRefused` for a file that is none or was damaged, `VersionMismatch` for one of a
    newer version; damage may come to light late, so nothing counts before the iterator ended by itself.
    """
    plain = _Plain(file, passphrase)
    while length := _NAME.unpack(plain.exactly(_NAME.size))[0]:
        if length > MAX_NAME_BYTES:
            raise _damaged("a name is too long")
        try:
            name = plain.exactly(length).decode()
        except UnicodeDecodeError as error:
            raise _damaged("a name is no text") from error
        (size,) = _SIZE.unpack(plain.exactly(_SIZE.size))
        content = plain.pieces(size)
        yield Entry(name, size, content)
        for _ in content:  # what was not read is passed over
            pass
    plain.end()


class _Plain:
    """The opened records as one stream."""

    def __init__(self, file: BinaryIO, passphrase: str):
        self._file = file
        self._head = file.read(_HEAD.size)
        if len(self._head) != _HEAD.size or self._head[:8] != MAGIC:
            raise StateRefused("this is no backup of a pool", "give the file that `moregpu pool backup` wrote")
        _, version, *work, salt = _HEAD.unpack(self._head)
        if version > VERSION:
            raise VersionMismatch(
                f"this backup was written by a newer MoreGPU (format {version}, this one knows {VERSION})",
                "update MoreGPU on this machine; nothing was changed",
            )
        if version == 0 or not all(0 < asked <= most for asked, most in zip(work, _MOST_WORK, strict=True)):
            raise _damaged("its head asks for what no version writes")
        self._cipher = _cipher(passphrase, (work[0], work[1], work[2]), salt)
        self._number = 0
        self._record = memoryview(b"")
        self._last = False

    def exactly(self, count: int) -> bytes:
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> Iterator[bytes]:
        while count:
            if not self._record:
                self._next()
            piece, self._record = bytes(self._record[:count]), self._record[count:]
            count -= len(piece)
            yield piece

    def end(self) -> None:
        if self._record or not self._last:
            raise _damaged("something stands behind its end")
        if self._file.read(1):
            raise _damaged("something stands behind its end")

    def _next(self) -> None:
        if self._last:
            raise _damaged("it ends in the middle")
        prefix = self._file.read(_LENGTH.size)
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else 0
        if not _TAG_BYTES < length <= RECORD_BYTES + _TAG_BYTES:
            raise _damaged("it ends in the middle" if len(prefix) < _LENGTH.size else "a record has no such length")
        sealed = self._file.read(length)
        if len(sealed) != length:
            raise _damaged("it ends in the middle")
        for last in (False, True):
            try:
                self._record = memoryview(self._cipher.decrypt(_nonce(self._number, last=last), sealed, self._head))
            except InvalidTag:
                continue
            self._last = last
            self._number += 1
            return
        if self._number == 0:
            raise WrongPassphrase(
                "the passphrase does not open this backup",
                "try another; a file that was damaged at its beginning looks the same",
            )
        raise _damaged(f"its record {self._number} was changed")


def _cipher(passphrase: str, work: tuple[int, int, int], salt: bytes) -> AESGCM:
    log2_n, r, p = work
    text = unicodedata.normalize("NFKC", passphrase)  # the same letters typed on another system
    return AESGCM(Scrypt(salt=salt, length=32, n=1 << log2_n, r=r, p=p).derive(text.encode()))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _damaged(why: str) -> StateRefused:
    return StateRefused(f"this backup is damaged: {why}", "nothing was restored; take another backup, or copy it again")
