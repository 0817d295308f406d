"""A pool in one file, and back: `moregpu pool backup` and `restore`. The coordinator may go on meanwhile.

What the state folder holds is sealed under a wrapping key that lies in the keyring, so the file carries that key, too,
and is itself sealed under a passphrase (`moregpu.coordinator.archive`).

The database is copied at one moment. A row names a blob only once that blob is durable, and blobs are deleted once no
row names them: so the blobs that lie there before that moment and those after it are all that the copy can name. They
are held by links until they are written, whatever the coordinator deletes.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import sqlite3
import time
from collections.abc import Generator, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

import msgspec

from moregpu.coordinator.archive import ArchiveWriter, Entry, entries
from moregpu.coordinator.state import STATE_VERSION, held_empty, make_restored, one_backup, sealed_under
from moregpu.coordinator.store import database, stored
from moregpu.errors import Conflict, InvalidRequest, NotConfigured, OutOfSpace, StateRefused, VersionMismatch
from moregpu.platform.private import private_folder
from moregpu.platform.room import is_full
from moregpu.platform.secrets import TokenStore
from moregpu.wire.api import Event

ABOUT = "backup.json"
DATABASE = "pool.sqlite"
_PLAIN = ("keys", "tls-cert.pem", "tls-key.pem", "listening.json")
"""Files of the state folder that are copied as they are; only the keys must be there."""

_BLOB = re.compile(r"blobs/([0-9a-f]{2})/\1[0-9a-f]{62}")
_HELD = ".backup-"
_PIECE_BYTES = 1 << 20
_APART = 1 << 44
"""Two histories do not come within reach of each other by chance; and all numbers stay such as JSON's readers take."""

_EVENT = "INSERT INTO event (oldest, newest, at, body) VALUES (?, ?, ?, ?)"
_events = msgspec.msgpack.Decoder(list[Event])


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The first entry: what this is, and the key of all that is sealed in the rest."""

    id: str
    wrap_key: bytes
    made_at: float
    state_version: int
    database_version: int
    moregpu: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What was written or put back."""

    id: str
    made_at: float
    blobs: int
    bytes: int
    secrets_in: str = ""
    """Where the wrapping key went on restoring: "keyring" or "file"."""


def back_up(state: Path, file: Path, passphrase: str, tokens: TokenStore | None = None) -> Summary:
    """Write the pool of a state folder to a new file. `tokens`: where the wrapping key lies.

    Raises `NotConfigured` where no pool is, `Conflict` for a file that exists, `InvalidRequest` for one that cannot be
    made, `StateRefused`, `KeyringLocked`, `OutOfSpace`. A file that was begun and not finished is deleted.
    """
    state = state.expanduser().absolute()
    if not (state / DATABASE).exists():
        raise NotConfigured(f"there is no pool in {state}", "name its folder: --state DIR")
    _refuse_unwritable(file)
    id, wrap_key = sealed_under(state, tokens)
    begun = file.with_name(f".{file.name[:50]}.{secrets.token_hex(8)}")
    try:
        with _no_space(file.parent), one_backup(state), _held(state) as held:
            about = About(
                id=id,
                wrap_key=wrap_key,
                made_at=time.time(),
                state_version=STATE_VERSION,
                database_version=_version_of(held / DATABASE),
                moregpu=version("moregpu"),
            )
            with _new_file(begun) as out:
                summary = _write(out, passphrase, about, state, held)
            if file.exists():
                raise Conflict(f"{file} appeared meanwhile", "a backup never replaces another")
            begun.replace(file)
    finally:
        begun.unlink(missing_ok=True)
    return summary


def _refuse_unwritable(file: Path) -> None:
    """Say before the pool is copied that there can be no such file. Raises `Conflict`, `InvalidRequest`."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            file.lstat()  # raises for a name that is too long
            raise Conflict(f"{file} exists", "a backup never replaces another: give it a name of its own")
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be written: {error.strerror}", "choose another place") from error
    if not file.parent.is_dir():
        raise InvalidRequest(f"{file} cannot be written: there is no folder {file.parent}", "make it first")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise InvalidRequest(
            f"{file} cannot be written: nobody lets you write to {file.parent}", "choose another place"
        )


def restore(file: Path, state: Path, passphrase: str, tokens: TokenStore | None = None) -> Summary:
    """Make an empty folder the pool that a backup holds: same identity, keys, jobs, workers, tokens.

    Raises `StateRefused` for a folder with anything in it and for a damaged file, `WrongPassphrase`, `VersionMismatch`,
    `KeyringLocked`, `OutOfSpace`. A folder that could not be restored whole is left empty.
    """
    state = state.expanduser().absolute()
    if not file.is_file():
        raise NotConfigured(f"there is no file {file}", "name the file that `moregpu pool backup` wrote")
    if state.exists() and not state.is_dir():
        raise StateRefused(f"{state} cannot be used: it is no folder", "give the pool that comes back one: --state DIR")
    try:
        with held_empty(state), _no_space(state):
            try:
                return _unpack(file, state, passphrase, tokens)
            except BaseException:
                _empty(state)
                raise
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise StateRefused(
            f"{error.filename or state} cannot be used: {error.strerror}",
            "give the pool that comes back a folder of its own: --state DIR",
        ) from error


# ---- writing ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _held(state: Path) -> Generator[Path]:
    """A moment of the pool beside itself: the database as it was, links to every blob that it can name."""
    for left in state.glob(f"{_HELD}*"):  # by one that was killed
        shutil.rmtree(left, ignore_errors=True)
    held = private_folder(state / f"{_HELD}{secrets.token_hex(8)}")
    try:
        _link_blobs(state, held)
        _copy_database(state / DATABASE, held / DATABASE)
        _link_blobs(state, held)
        yield held
    finally:
        shutil.rmtree(held, ignore_errors=True)


def _link_blobs(state: Path, held: Path) -> None:
    for path in (state / "blobs").glob("[0-9a-f][0-9a-f]/*"):
        name = path.relative_to(state).as_posix()
        target = held / name
        if not _BLOB.fullmatch(name) or target.exists():
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile: no row names it any more
            try:
                os.link(path, target)
            except FileNotFoundError:
                raise
            except OSError:  # a file system without links
                shutil.copyfile(path, target)


def _copy_database(path: Path, to: Path) -> None:
    """One moment of the database, while others write to it."""
    os.close(os.open(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with (
            contextlib.closing(sqlite3.connect(path, timeout=30)) as source,
            contextlib.closing(sqlite3.connect(to)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # everything in the one file
    except sqlite3.Error as error:
        raise database.typed(error, path) from error


def _write(out: BinaryIO, passphrase: str, about: About, state: Path, held: Path) -> Summary:
    archive = ArchiveWriter(out, passphrase)
    encoded = msgspec.json.encode(about)
    archive.add(ABOUT, len(encoded), iter([encoded]))
    for name in _PLAIN:
        if (state / name).exists():
            content = (state / name).read_bytes()
            archive.add(name, len(content), iter([content]))
    blobs, size = 0, 0
    for path in (held / DATABASE, *sorted((held / "blobs").glob("*/*"))):
        length = path.stat().st_size
        archive.add(path.relative_to(held).as_posix(), length, _pieces(path))
        blobs, size = blobs + (path.name != DATABASE), size + length
    archive.finish()
    return Summary(id=about.id, made_at=about.made_at, blobs=blobs, bytes=size)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


# ---- putting back ----------------------------------------------------------------------------------------------------


def _unpack(file: Path, state: Path, passphrase: str, tokens: TokenStore | None) -> Summary:
    about: About | None = None
    blobs, size = 0, 0
    with file.open("rb") as archive:
        for entry in entries(archive, passphrase):
            if about is None:
                about = _about(entry)
                continue
            _put(entry, state)
            blobs, size = blobs + entry.name.startswith("blobs/"), size + entry.size_bytes
    if about is None or not (state / "keys").exists() or not (state / DATABASE).exists():
        raise StateRefused("this backup is damaged: it holds no pool", "take another one")
    kept = make_restored(state, about.id, about.wrap_key, tokens)
    _number_apart(state / DATABASE, about.id)
    return Summary(id=about.id, made_at=about.made_at, blobs=blobs, bytes=size, secrets_in=kept.value)


def _number_apart(path: Path, pool: str) -> None:
    """Number the events as no other history of this pool has.

    A reader resumes by the number of what it read last. Those that the pool gave away after this backup was taken would
    come again, for other events: whoever was here before would miss them, and could not know.
    """
    apart = secrets.randbelow(_APART) + 1
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            kept = connection.execute("SELECT oldest, newest, at, body FROM event ORDER BY newest").fetchall()
            connection.execute("DELETE FROM event")
            number = 0
            for oldest, newest, at, body in kept:
                events = [
                    msgspec.structs.replace(event, seq=(event.seq or 0) + apart)
                    for event in stored.decode(_events, body, "event")
                ]
                connection.execute(_EVENT, (oldest + apart, newest + apart, at, stored.encode(events)))
                number = newest
            number += apart + 1
            back = Event(type="pool.restored", id=pool, at=time.time(), seq=number, data={"detail": "from a backup"})
            connection.execute(_EVENT, (number, number, back.at, stored.encode([back])))
    except sqlite3.Error as error:
        raise database.typed(error, path) from error


def _about(entry: Entry) -> About:
    try:
        if entry.name != ABOUT or entry.size_bytes > _PIECE_BYTES:
            raise msgspec.ValidationError("it does not begin with what it is")
        about = msgspec.json.decode(b"".join(entry.content), type=About)
    except msgspec.DecodeError as error:
        raise StateRefused(f"this backup is damaged: {error}", "take another one") from error
    newest = database.migrations()[-1][0]
    if about.state_version > STATE_VERSION or about.database_version > newest:
        raise VersionMismatch(
            f"this backup is of MoreGPU {about.moregpu}, which is newer than this one ({version('moregpu')})",
            "update MoreGPU on this machine; nothing was changed",
        )
    return about


def _put(entry: Entry, state: Path) -> None:
    """Write one file, at a place that is known; a name that is none of ours is refused, whatever it says."""
    if entry.name not in (*_PLAIN, DATABASE) and not _BLOB.fullmatch(entry.name):
        raise StateRefused(f"this backup is damaged: {entry.name[:80]!r} is no file of a pool", "take another one")
    path = state / entry.name
    for folder in reversed(path.relative_to(state).parents[:-1]):
        (state / folder).mkdir(mode=0o700, exist_ok=True)
    try:
        with _new_file(path) as out:
            for piece in entry.content:
                out.write(piece)
    except FileExistsError as error:
        raise StateRefused(f"this backup is damaged: it holds {entry.name} twice", "take another one") from error


def _empty(state: Path) -> None:
    """Leave nothing half-restored; the lock goes with its holder."""
    for path in state.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != "lock":
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    """A file that was not there, for its owner alone, durable when this ends."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _no_space(where: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise OutOfSpace(f"the disk of {where} is full; nothing was kept", "free some space, then again") from error
        raise


def _version_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
