"""The blobs of a coordinator on this very machine, as its files: what both ends can read needs no TLS on loopback.

A running coordinator leaves a note of where its blobs lie, named by its certificate, in a folder that its own user
alone may enter. Who finds it is that user, on that machine, and could read and write the blobs anyway: nobody is shown
a path, and nobody else gets this way. Who came by another port than the coordinator's own has something in between that
somebody put there, and goes through it. Blobs stay sealed, and are opened and verified as if they had travelled; rights
and quotas are asked for at the coordinator's doors as ever, since only they make an upload a blob of anybody's.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from moregpu.blobs.format import Readable, open_range, sealed_size
from moregpu.blobs.local import LEFT_HERE, Reader
from moregpu.blobs.stream import SealStream
from moregpu.blobs.syncing import Syncing
from moregpu.errors import StateRefused
from moregpu.jobs import Blob
from moregpu.platform.private import check_private, write_private
from moregpu.wire.invite import split_address

LEAST_BYTES = 1 << 20
"""Smaller blobs take the door: a file and a request for it cost about as much as the bytes in the request."""

_RUN = Path("/run/user")
_SHARED = Path("/tmp")  # noqa: S108 — a folder of one's own in it, checked to be so


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    blobs: str
    port: int


def announce(pin: bytes, port: int, blobs: Path) -> Callable[[], None]:
    """Leave the note for the coordinator of this certificate; returns what takes it away. Without a place: nothing."""
    said = _Note(blobs=str(blobs), port=port)
    note = _note(pin)
    if note is None:
        return lambda: None
    try:
        note.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(note, msgspec.json.encode(said))
    except (OSError, StateRefused):
        return lambda: None

    def retract() -> None:
        if _read(note) == said:  # not that of one that started meanwhile
            note.unlink(missing_ok=True)

    return retract


def find(pin: bytes | None, address: str) -> NearbyBlobs | None:
    """The blobs of the coordinator of this certificate, where it listens here, as this user, on that port."""
    note = _note(pin) if pin else None
    said = _read(note) if note is not None else None
    if said is None or split_address(address)[1] != said.port:
        return None
    return NearbyBlobs(Path(said.blobs))


class NearbyBlobs:
    """A folder of blobs that a coordinator of this user's keeps. Whatever fails here still has the network's way."""

    def __init__(self, root: Path):
        self._root = root

    def read_into(self, blob: Blob, start: int, stop: int, out: memoryview, *, is_last: bool = False) -> bool:
        """Open the plain bytes [start, stop) into `out`; False where the blob is not to be had here.

        `is_last`: nobody is expected to read it soon, so the system needs not keep it in memory. Raises
        `DigestMismatch` when a record does not open.
        """
        try:
            reader = Reader(self._root / blob.digest[:2] / blob.digest)
        except OSError:
            return False
        with reader:
            if reader.size_bytes != sealed_size(blob.size_bytes):
                return False
            open_range(blob, reader.read_at, start, stop, out)
            if is_last:
                reader.let_go()
        return True

    def has(self, digest: str) -> bool:
        """Whether a blob is to be had here."""
        return os.access(self._root / digest[:2] / digest, os.R_OK)

    def leave(self, pieces: Sequence[Readable], entropy: Callable[[int], bytes]) -> tuple[str, Blob] | None:
        """Seal a value's pieces into a file beside the blobs; returns its name and the blob, None where that fails.

        The coordinator takes it over when it is asked to (`Upload-Here`), or throws it away in time.
        """
        name = secrets.token_hex(16)
        path = self._root / LEFT_HERE / name
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            with Syncing(file) as syncing:

                def write(sealed: memoryview) -> None:
                    left = sealed
                    while left:
                        left = left[os.write(file, left) :]
                    syncing.wrote(len(sealed))

                stream = SealStream(sum(memoryview(piece).nbytes for piece in pieces), write, entropy)
                for piece in pieces:
                    stream.write(piece)
                blob = stream.finish()
            return name, blob
        except OSError:
            path.unlink(missing_ok=True)
            return None
        finally:
            os.close(file)

    def withdraw(self, name: str) -> None:
        """What was left is not wanted."""
        (self._root / LEFT_HERE / name).unlink(missing_ok=True)


def _note(pin: bytes) -> Path | None:
    if not hasattr(os, "getuid"):
        return None
    own = _RUN / str(os.getuid())
    folder = own / "moregpu" if own.is_dir() else _SHARED / f"moregpu-{os.getuid()}"
    return folder / pin.hex()


def _read(note: Path) -> _Note | None:
    """A note that only this user can have written, about a folder that is this user's."""
    try:
        if note.parent.is_symlink():
            return None
        check_private(note.parent)
        check_private(note)
        said = msgspec.json.decode(note.read_bytes(), type=_Note)
        check_private(Path(said.blobs))
    except (OSError, StateRefused, msgspec.MsgspecError):
        return None
    return said
