"""A pool in one file and back: its identity, its rows and blobs; nothing half-restored, nothing beside its folder."""

from __future__ import annotations

import contextlib
import io
import sqlite3
import stat
from pathlib import Path

import msgspec
import pytest

from moregpu.blobs.format import seal
from moregpu.blobs.local import BlobFiles
from moregpu.coordinator import backup
from moregpu.coordinator.archive import ArchiveWriter, entries
from moregpu.coordinator.backup import ABOUT, About, back_up, restore
from moregpu.coordinator.state import STATE_VERSION, open_state
from moregpu.coordinator.store import database
from moregpu.errors import (
    Conflict,
    InvalidRequest,
    NotConfigured,
    OutOfSpace,
    StateRefused,
    VersionMismatch,
    WrongPassphrase,
)

PASSPHRASE = "correct horse battery"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less work for each guess: these tests guess often."""
    monkeypatch.setattr(ArchiveWriter.__init__, "__defaults__", ((4, 8, 1), *ArchiveWriter.__init__.__defaults__[1:]))  # type: ignore[index]


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A state folder with a database of three rows and two blobs."""
    path = tmp_path / "pool"
    open_state(path).close()
    connection = database.connect(path / "pool.sqlite")
    database.migrate(connection, path / "pool.sqlite")
    connection.executescript("CREATE TABLE test (n INTEGER); INSERT INTO test VALUES (1), (2), (3);")
    connection.close()
    keep(path, b"one")
    keep(path, bytes(3_000_000))
    return path


def keep(path: Path, content: bytes) -> str:
    blob, sealed = seal(content)
    upload = BlobFiles(path / "blobs").begin("me", blob.digest, len(sealed))
    upload.write(bytes(sealed))
    upload.finish()
    return blob.digest


def rows(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(path / "pool.sqlite")) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM test ORDER BY n")]


def everything(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_pool_comes_back_as_it_was(pool: Path, tmp_path: Path) -> None:
    back_up(pool, tmp_path / "file", PASSPHRASE)
    before = open_state(pool)
    before.close()
    summary = restore(tmp_path / "file", tmp_path / "again", PASSPHRASE)
    after = open_state(tmp_path / "again")
    after.close()
    assert after.keys.dump() == before.keys.dump()
    assert (after.id, after.row_key, after.tls_password, after.fresh) == (
        before.id, before.row_key, before.tls_password, False,
    )  # fmt: skip
    assert rows(tmp_path / "again") == [1, 2, 3]
    blobs = {name: data for name, data in everything(pool).items() if name.startswith("blobs/")}
    assert {name: data for name, data in everything(tmp_path / "again").items() if name.startswith("blobs/")} == blobs
    assert (summary.blobs, summary.secrets_in) == (2, "file")
    for path in [tmp_path / "again", *(tmp_path / "again").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_folder_is_as_before_and_the_file_is_for_its_owner_alone(pool: Path, tmp_path: Path) -> None:
    before = everything(pool)
    back_up(pool, tmp_path / "file", PASSPHRASE)
    assert everything(pool) == {**before, "backup.lock": b""}
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_running_coordinator_does_not_keep_it_from_being_backed_up(pool: Path, tmp_path: Path) -> None:
    state = open_state(pool)
    connection = database.connect(pool / "pool.sqlite")
    connection.execute("INSERT INTO test VALUES (4)")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO test VALUES (5)")  # not committed: not a part of any moment
    back_up(pool, tmp_path / "file", PASSPHRASE)
    connection.execute("COMMIT")
    connection.close()
    state.close()
    restore(tmp_path / "file", tmp_path / "again", PASSPHRASE)
    assert rows(tmp_path / "again") == [1, 2, 3, 4]


def test_every_blob_that_the_copied_rows_name_is_in_it(
    pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blobs come before the moment of the copy and go after it."""
    files = BlobFiles(pool / "blobs")
    early = keep(pool, b"deleted right after the copy")
    late: list[str] = []
    copy = backup._copy_database  # pyright: ignore[reportPrivateUsage]

    def meanwhile(path: Path, to: Path) -> None:
        late.append(keep(pool, b"made right before the copy"))
        copy(path, to)
        files.delete(early)

    monkeypatch.setattr(backup, "_copy_database", meanwhile)
    back_up(pool, tmp_path / "file", PASSPHRASE)
    with (tmp_path / "file").open("rb") as file:
        names = [entry.name for entry in entries(file, PASSPHRASE)]
    for digest in (early, *late):
        assert f"blobs/{digest[:2]}/{digest}" in names


def test_one_is_taken_at_a_time(pool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = backup._copy_database  # pyright: ignore[reportPrivateUsage]

    def meanwhile(path: Path, to: Path) -> None:
        with pytest.raises(StateRefused, match="another backup"):
            back_up(pool, tmp_path / "second", PASSPHRASE)
        copy(path, to)

    monkeypatch.setattr(backup, "_copy_database", meanwhile)
    back_up(pool, tmp_path / "first", PASSPHRASE)
    assert not (tmp_path / "second").exists()
    restore(tmp_path / "first", tmp_path / "again", PASSPHRASE)


def test_a_backup_replaces_nothing(pool: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(Conflict, match="exists"):
        back_up(pool, tmp_path / "file", PASSPHRASE)
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["none/x", "file/x", "x" * 300])
def test_a_place_that_cannot_be_written_is_told_before_the_pool_is_copied(
    pool: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidRequest, match="cannot be written"):
        back_up(pool, tmp_path / name, PASSPHRASE)
    assert not list(tmp_path.glob(".*"))


def test_the_longest_name_is_one(pool: Path, tmp_path: Path) -> None:
    back_up(pool, tmp_path / ("x" * 255), PASSPHRASE)
    assert (tmp_path / ("x" * 255)).is_file()


@pytest.mark.parametrize("name", ["file", "file/x"])
def test_a_pool_comes_back_into_no_file(pool: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    back_up(pool, tmp_path / "backup", PASSPHRASE)
    with pytest.raises(StateRefused, match="cannot be used"):
        restore(tmp_path / "backup", tmp_path / name, PASSPHRASE)
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_where_no_pool_is_there_is_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured):
        back_up(tmp_path / "nowhere", tmp_path / "file", PASSPHRASE)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_with_anything_in_it_is_not_restored_over(pool: Path, tmp_path: Path) -> None:
    back_up(pool, tmp_path / "file", PASSPHRASE)
    before = everything(pool)
    with pytest.raises(StateRefused, match="not empty"):
        restore(tmp_path / "file", pool, PASSPHRASE)
    assert everything(pool) == before


def refused(file: Path, into: Path, passphrase: str = PASSPHRASE) -> Exception:
    """The refusal, after which the folder is empty."""
    with pytest.raises((StateRefused, WrongPassphrase, VersionMismatch, OutOfSpace)) as error:
        restore(file, into, passphrase)
    assert list(into.iterdir()) == []
    return error.value


def test_a_wrong_passphrase_restores_nothing(pool: Path, tmp_path: Path) -> None:
    back_up(pool, tmp_path / "file", PASSPHRASE)
    assert isinstance(refused(tmp_path / "file", tmp_path / "again", "wrong"), WrongPassphrase)
    restore(tmp_path / "file", tmp_path / "again", PASSPHRASE)  # and the folder takes the right one


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_a_flipped_byte_or_a_cut_anywhere_restores_nothing(pool: Path, tmp_path: Path, share: float) -> None:
    back_up(pool, tmp_path / "whole", PASSPHRASE)
    data = (tmp_path / "whole").read_bytes()
    at = 40 + int(share * (len(data) - 41))
    (tmp_path / "flipped").write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
    refused(tmp_path / "flipped", tmp_path / "again")
    (tmp_path / "cut").write_bytes(data[:at])
    refused(tmp_path / "cut", tmp_path / "again")


def written(tmp_path: Path, pool: Path, files: dict[str, bytes], **about: object) -> Path:
    """A backup that somebody with the passphrase made up: the pool's own, with more or other files."""
    back_up(pool, tmp_path / "honest", PASSPHRASE)
    with (tmp_path / "honest").open("rb") as file:
        honest = {entry.name: b"".join(entry.content) for entry in entries(file, PASSPHRASE)}
    if about:
        honest[ABOUT] = msgspec.json.encode(
            msgspec.structs.replace(msgspec.json.decode(honest[ABOUT], type=About), **about)
        )
    out = io.BytesIO()
    archive = ArchiveWriter(out, PASSPHRASE)
    for name, content in [*honest.items(), *files.items()]:
        archive.add(name, len(content), iter([content]))
    archive.finish()
    (tmp_path / "made-up").write_bytes(out.getvalue())
    return tmp_path / "made-up"


@pytest.mark.parametrize(
    "name",
    [
        "../outside", "/tmp/outside", "blobs/../../outside", "blobs/aa/../../../outside", "keys/../../outside",
        "blobs/aa/" + "b" * 64, "blobs/aa/" + "a" * 63, "blobs/AA/" + "A" * 64, "blobs/partial/x", "pool.json", "lock",
        "secrets/x.secret", "tokens/x", "pool.sqlite-wal", "C:\\outside", "keys\x00", "keys", "\n",
    ],
)  # fmt: skip
def test_a_name_that_is_no_place_in_a_pool_is_refused(pool: Path, tmp_path: Path, name: str) -> None:
    file = written(tmp_path, pool, {name: b"evil"})
    outside = set(tmp_path.iterdir()) | {tmp_path / "again"}
    assert isinstance(refused(file, tmp_path / "again"), StateRefused)
    assert set(tmp_path.iterdir()) == outside
    assert not Path("/tmp/outside").exists()


@pytest.mark.parametrize(
    "newer", [{"state_version": STATE_VERSION + 1}, {"database_version": database.migrations()[-1][0] + 1}]
)
def test_a_pool_of_a_newer_version_is_refused(pool: Path, tmp_path: Path, newer: dict[str, int]) -> None:
    file = written(tmp_path, pool, {}, **newer)
    assert isinstance(refused(file, tmp_path / "again"), VersionMismatch)


def test_keys_of_another_pool_are_refused(pool: Path, tmp_path: Path) -> None:
    file = written(tmp_path, pool, {}, wrap_key=bytes(32))
    refused(file, tmp_path / "again")


def test_what_was_left_by_one_that_was_killed_is_cleaned_up(pool: Path, tmp_path: Path) -> None:
    left = pool / ".backup-0123456789abcdef"
    left.mkdir(mode=0o700)
    (left / "pool.sqlite").touch(0o600)
    open_state(pool).close()  # it keeps no coordinator from starting
    back_up(pool, tmp_path / "file", PASSPHRASE)
    assert not left.exists()
